// Both paths over the number of tokens: where `auto` changes.
import { defineBench } from "@mlxts/core/testing";
import { ruleBench, type Setting } from "./rule.ts";

export const TOKENS = [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048];

type Layer = Required<Pick<Setting, "Hk" | "H" | "K" | "V" | "channels">> & { dtypes: readonly Setting["dtype"][] };
/** The layers that are measured: few heads and many, small and large keys, gates of heads and of channels. */
export const LAYERS: readonly Layer[] = [
  { Hk: 2, H: 4, K: 128, V: 128, channels: false, dtypes: ["f32", "bf16"] },
  { Hk: 16, H: 32, K: 128, V: 128, channels: false, dtypes: ["f32", "bf16"] },
  { Hk: 8, H: 8, K: 64, V: 64, channels: false, dtypes: ["f32", "bf16"] },
  { Hk: 4, H: 4, K: 192, V: 256, channels: false, dtypes: ["f32", "bf16"] },
  { Hk: 16, H: 16, K: 128, V: 128, channels: true, dtypes: ["f32", "bf16"] },
];

export default defineBench({
  op: "gatedDeltaRule crossover",
  cases: LAYERS.flatMap(({ dtypes, ...layer }) =>
    dtypes.flatMap((dtype) =>
      TOKENS.flatMap((T) => (["recurrent", "chunk"] as const).map((path) => ruleBench({ T, ...layer, dtype, path }))),
    ),
  ),
});
