// What the two ops at the end of a layer share.
import type { Tensor } from "@mlxts/core";
import { f32Weights, NORM_PARAMS, normParams } from "./options.ts";

/** One number or one for each column; the shape says which. */
export const SCALE = {
  dtype: ["f32"],
  shape: {
    text: "1 or D",
    of: ({ dims }: { dims: Readonly<Record<string, number>> }, given: readonly number[]) =>
      given.length === 1 && given[0] === 1 ? [1] : [dims.D as number],
  },
  doc: "factor of the sum, one or one for each column",
} as const;

export const END_LAYER_OUTPUTS = {
  m: { dtype: ["=attn"], shape: "... D", optional: true, doc: "sum of the two branches" },
  hidden: { dtype: ["=attn"], shape: "... D", inPlace: ["residual"], doc: "the new residual stream" },
} as const;

export const END_LAYER_PARAMS = { ...NORM_PARAMS, f32Weights: "u32", vectorScale: "u32" } as const;

export const endLayerParams = (
  rows: number,
  dim: number,
  options: Parameters<typeof normParams>[2],
  { weight2, weight3, scale }: { weight2: Tensor; weight3: Tensor; scale: Tensor },
) => ({
  ...normParams(rows, dim, options),
  f32Weights: f32Weights(weight2, weight3),
  vectorScale: scale.size > 1 ? 1 : 0,
});
