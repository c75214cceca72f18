import { defineBench } from "@mlxts/core/testing";
import { ruleBench } from "./rule.ts";

export default defineBench({
  op: "gatedDeltaRule",
  cases: (["f32", "bf16"] as const).flatMap((dtype) => [
    ruleBench({ T: 1, Hk: 16, H: 32, dtype, path: "recurrent" }),
    ...([16, 32, 64] as const).map((chunkLength) =>
      ruleBench({ T: 512, Hk: 16, H: 32, dtype, path: "chunk", chunkLength }),
    ),
  ]),
});
