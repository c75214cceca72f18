// Both paths over the number of tokens: where `auto` changes.
import { defineBench } from "@mlxts/core/testing";
import { ruleBench } from "./rule.ts";

const HEADS = [
  { Hk: 2, H: 4 },
  { Hk: 16, H: 32 },
];

export default defineBench({
  op: "gatedDeltaRule crossover",
  cases: HEADS.flatMap((heads) =>
    (["f32", "bf16"] as const).flatMap((dtype) =>
      [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048].flatMap((T) =>
        (["recurrent", "chunk"] as const).map((path) => ruleBench({ T, ...heads, dtype, path })),
      ),
    ),
  ),
});
