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
import type { AddRmsNorm } from "./signatures.ts";

export const addRmsNormKernel = defineKernel({
  library: normsLibrary,
  name: "add_rms_norm",
  variants: WEIGHTED,
  buffers: { a: "read", b: "read", weight: "read", sum: "write", out: "write" },
  early: ["weight"],
  params: NORM_PARAMS,
  inPlace: [
    ["sum", "a"],
    ["sum", "b"],
  ],
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
});

/**
 * Sum of two tensors, and the RMS norm of its rows: `sum = a + b`, `out = sum / √(Σsum²/D + eps) · (w + weightOffset)`.
 * The residual stream and the next layer's input in models that normalize first.
 *
 * - `a`, `b`, `sum`, `out` [.., D] f32, f16 or bf16; `weight` [D], dtype of a or f32. `sum` may be exactly `a` or `b`.
 * - `eps`, `weightOffset`, `rounding` as in `rmsNorm`.
 *
 * The norm is taken of the rounded sum: the bits of a sum of two tensors and then `rmsNorm`. Sums in f32. Errors:
 * `InvalidArgument` for shapes, dtypes, options and overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const addRmsNorm: AddRmsNorm = defineOp({
  name: "addRmsNorm",
  summary: "sum = a + b; sum / sqrt(mean(sum²) + eps) · (weight + weightOffset)",
  inputs: {
    a: { dtype: FLOATS, shape: "... D", doc: "first summand" },
    b: { dtype: ["=a"], shape: "... D", doc: "second summand" },
    weight: { dtype: ["=a", "f32"], shape: "D", doc: "factor of each column" },
  },
  outputs: {
    sum: { dtype: ["=a"], shape: "... D", inPlace: ["a", "b"], doc: "the sums" },
    out: { dtype: ["=a"], shape: "... D", doc: "their rows normalized" },
  },
  params: NORM_OPTIONS,
  encode({ encoder, op, inputs: { a, b, weight }, outputs: { sum, out }, options, rows, dims }) {
    const dim = dims.D as number;
    encoder.dispatch(addRmsNormKernel, {
      op,
      variant: `${a.dtype}_${weight.dtype}`,
      buffers: { a, b, weight, sum, out },
      params: normParams(rows, dim, options),
      sizes: { rows, dim },
    });
  },
});
