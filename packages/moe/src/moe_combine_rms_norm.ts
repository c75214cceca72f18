import {
  defineKernel,
  defineOp,
  NORM_OPTIONS,
  NORM_PARAMS,
  NORM_SCRATCH,
  NORM_VARIANTS,
  type NormRows,
  normParams,
  normRowsOnCuda,
  normRowsOnGpu,
} from "@mlxts/core";
import { moeLibrary } from "./library.ts";
import { COMBINE_FAULTS, COMBINE_INPUTS, COMBINED, checkCombined, encodePlaces } from "./moe_combine.ts";
import type { MoeCombineRmsNorm } from "./signatures.ts";

export const moeCombineRmsNormKernel = defineKernel({
  library: moeLibrary,
  name: "moe_combine_rms_norm",
  variants: NORM_VARIANTS,
  buffers: { ...COMBINED, normWeight: "read", sum: "write", out: "write" },
  params: { topK: "u32", ...NORM_PARAMS },
  inPlace: [["sum", "residual"]],
  faults: COMBINE_FAULTS,
  scratch: NORM_SCRATCH,
  launch: { cpu: ({ rows }: NormRows) => ({ threadgroups: [rows, 1, 1] }), gpu: normRowsOnGpu, cuda: normRowsOnCuda },
});

/**
 * What the experts of each token gave, added up as `moeCombine` does it, and the RMS norm of its rows:
 * `sum[n] = Σ_j weights[n, j] · y[n, j] + shared[n] · σ(sharedGate[n]) + residual[n]`,
 * `out = sum / √(Σsum²/D + eps) · (w + weightOffset)`. The residual stream and the next layer's input.
 *
 * - `y`, `weights`, `order`, `shared`, `sharedGate`, `residual` as in `moeCombine`. `normWeight` [D], dtype of y or f32.
 * - `sum`, `out` [N, D], dtype of y; `sum` may be exactly `residual`.
 * - `eps`, `weightOffset`, `rounding` as in `rmsNorm`.
 *
 * The norm is taken of the rounded sum: the bits of `moeCombine` and then `rmsNorm`. Sums in f32. Errors:
 * `InvalidArgument` for shapes, dtypes, options and overlap; an `order` that is no permutation fails the submission.
 */
export const moeCombineRmsNorm: MoeCombineRmsNorm = defineOp({
  name: "moeCombineRmsNorm",
  summary: "sum as of moeCombine; sum / sqrt(mean(sum²) + eps) · (normWeight + weightOffset)",
  inputs: {
    ...COMBINE_INPUTS,
    normWeight: { dtype: ["=y", "f32"], shape: "D", doc: "factor of each column in the norm" },
  },
  outputs: {
    sum: { dtype: ["=y"], shape: "N D", inPlace: ["residual"], doc: "a row for each token" },
    out: { dtype: ["=y"], shape: "N D", doc: "its norm" },
  },
  params: NORM_OPTIONS,
  rules: checkCombined,
  encode({ encoder, op, inputs, outputs: { sum, out }, options, dims }) {
    const { y, weights, order, shared, sharedGate, residual, normWeight } = inputs;
    const { N, topK, D } = dims as Record<"N" | "topK" | "D", number>;
    const places = encodePlaces(encoder, op, order);
    encoder.dispatch(moeCombineRmsNormKernel, {
      op,
      variant: `${y.dtype}_${normWeight.dtype}`,
      buffers: { y, weights, order, places, shared, sharedGate, residual, normWeight, sum, out },
      params: { topK, ...normParams(N, D, options) },
      sizes: { rows: N, dim: D },
    });
  },
});
