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
import type { RmsNormMul } from "./signatures.ts";

export const rmsNormMulKernel = defineKernel({
  library: normsLibrary,
  name: "rms_norm_mul",
  variants: WEIGHTED,
  buffers: { x: "read", weight: "read", factor: "read", out: "write" },
  params: { ...NORM_PARAMS, roundIntermediate: "u32" },
  inPlace: [
    ["out", "x"],
    ["out", "factor"],
  ],
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
});

/**
 * RMS norm of each row, times another tensor: `out = x / √(Σx²/D + eps) · (w + weightOffset) · factor`.
 *
 * - `x`, `factor`, `out` [.., D] f32, f16 or bf16; `weight` [D], dtype of x or f32. `out` may be exactly `x` or `factor`.
 * - `eps`, `weightOffset`, `rounding` as in `rmsNorm`.
 * - `roundIntermediate` true (default): the norm is rounded to the dtype of x before the product, so the result has the
 *   bits of `rmsNorm` and then a product of two tensors. False: it stays f32.
 *
 * Sums and products in f32. Errors: `InvalidArgument` for shapes, dtypes, options and partial overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const rmsNormMul: RmsNormMul = defineOp({
  name: "rmsNormMul",
  summary: "x / sqrt(mean(x²) + eps) · (weight + weightOffset) · factor",
  inputs: {
    x: { dtype: FLOATS, shape: "... D", doc: "rows to normalize" },
    weight: { dtype: ["=x", "f32"], shape: "D", doc: "factor of each column" },
    factor: { dtype: ["=x"], shape: "... D", doc: "factor of each element" },
  },
  outputs: { out: { dtype: ["=x"], shape: "... D", inPlace: ["x", "factor"], doc: "the products" } },
  params: {
    ...NORM_OPTIONS,
    roundIntermediate: {
      kind: "boolean",
      default: true,
      doc: "whether the norm is rounded to the dtype of x before `factor` multiplies",
    },
  },
  encode({ encoder, op, inputs: { x, weight, factor }, outputs: { out }, options, rows, dims }) {
    const dim = dims.D as number;
    encoder.dispatch(rmsNormMulKernel, {
      op,
      variant: `${x.dtype}_${weight.dtype}`,
      buffers: { x, weight, factor, out },
      params: { ...normParams(rows, dim, options), roundIntermediate: options.roundIntermediate ? 1 : 0 },
      sizes: { rows, dim },
    });
  },
});
