import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import {
  NORM_OPTIONS,
  NORM_PARAMS,
  normParams,
  ROW_LAUNCH,
  ROW_LAUNCH_PARAMS,
  ROW_SCRATCH,
  WEIGHTED,
} from "./options.ts";
import type { RmsNormAdd } from "./signatures.ts";

export const rmsNormAddKernel = defineKernel({
  library: normsLibrary,
  name: "rms_norm_add",
  variants: WEIGHTED,
  buffers: { x: "read", weight: "read", residual: "read", out: "write" },
  params: NORM_PARAMS,
  inPlace: [
    ["out", "x"],
    ["out", "residual"],
  ],
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
});

/**
 * RMS norm of each row, added to another tensor: `out = residual + x / √(Σx²/D + eps) · (w + weightOffset)`.
 *
 * - `x`, `residual`, `out` [.., D] f32, f16 or bf16; `weight` [D], dtype of x or f32. `out` may be exactly `x` or
 *   `residual`.
 * - `eps`, `weightOffset`, `rounding` as in `rmsNorm`.
 *
 * The norm is rounded to the dtype of x before it is added: the bits of `rmsNorm` and then a sum of two tensors. Sums in
 * f32. Errors: `InvalidArgument` for shapes, dtypes, options and partial overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const rmsNormAdd: RmsNormAdd = defineOp({
  name: "rmsNormAdd",
  summary: "residual + x / sqrt(mean(x²) + eps) · (weight + weightOffset)",
  inputs: {
    x: { dtype: FLOATS, shape: "... D", doc: "rows to normalize" },
    weight: { dtype: ["=x", "f32"], shape: "D", doc: "factor of each column" },
    residual: { dtype: ["=x"], shape: "... D", doc: "what the norm is added to" },
  },
  outputs: { out: { dtype: ["=x"], shape: "... D", inPlace: ["x", "residual"], doc: "the sums" } },
  params: NORM_OPTIONS,
  encode({ encoder, op, inputs: { x, weight, residual }, outputs: { out }, options, rows, dims }) {
    const dim = dims.D as number;
    encoder.dispatch(rmsNormAddKernel, {
      op,
      variant: `${x.dtype}_${weight.dtype}`,
      buffers: { x, weight, residual, out },
      params: normParams(rows, dim, options),
      sizes: { rows, dim },
    });
  },
});
