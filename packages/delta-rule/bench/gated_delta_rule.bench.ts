import { defineBench } from "@mlxts/core/testing";
import { ruleBench } from "./rule.ts";

/** The heads of Qwen3.5-0.8B, and those of its 4B model and of Qwen3-Next. */
const HEADS = [
  { Hk: 16, H: 16 },
  { Hk: 16, H: 32 },
] as const;

export default defineBench({
  op: "gatedDeltaRule",
  cases: [
    ...(["f32", "bf16"] as const).flatMap((dtype) => [
      ...HEADS.flatMap((heads) => [
        ruleBench({ T: 1, ...heads, dtype, path: "recurrent" }),
        ruleBench({ T: 512, ...heads, dtype, path: "chunk" }),
      ]),
      ...[false, true].flatMap((channels) =>
        ([16, 32, 64] as const).map((chunkLength) =>
          ruleBench({ T: 512, Hk: 16, H: 32, channels, dtype, path: "chunk", chunkLength }),
        ),
      ),
    ]),
    ruleBench({ T: 4096, Hk: 2, H: 4, dtype: "bf16", path: "chunk", gpuOnly: true }),
    ruleBench({ T: 8192, Hk: 16, H: 32, dtype: "bf16", path: "chunk", gpuOnly: true }),
  ],
});
