import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import {
  f32Weights,
  NORM_OPTIONS,
  NORM_PARAMS,
  normParams,
  ROW_LAUNCH,
  ROW_LAUNCH_PARAMS,
  ROW_SCRATCH,
} from "./options.ts";
import type { RmsNormTriple } from "./signatures.ts";

export const rmsNormTripleKernel = defineKernel({
  library: normsLibrary,
  name: "rms_norm_triple",
  variants: FLOATS,
  buffers: {
    x: "read",
    weightA: "read",
    weightB: "read",
    weightC: "read",
    outA: "write",
    outB: "write",
    outC: "write",
  },
  params: { ...NORM_PARAMS, f32Weights: "u32" },
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
});

/**
 * One RMS norm with three weights: `outA = x / √(Σx²/D + eps) · (weightA + weightOffset)`, and so `outB` and `outC`.
 *
 * - `x`, `outA`, `outB`, `outC` [.., D] f32, f16 or bf16; each weight [D], dtype of x or f32. No output may be `x`.
 * - `eps`, `weightOffset`, `rounding` as in `rmsNorm`.
 *
 * Sums in f32; the bits of three calls of `rmsNorm`. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const rmsNormTriple: RmsNormTriple = defineOp({
  name: "rmsNormTriple",
  summary: "x / sqrt(mean(x²) + eps) · (weight + weightOffset) for three weights",
  inputs: {
    x: { dtype: FLOATS, shape: "... D", doc: "rows to normalize" },
    weightA: { dtype: ["=x", "f32"], shape: "D", doc: "factor of each column of `outA`" },
    weightB: { dtype: ["=x", "f32"], shape: "D", doc: "of `outB`" },
    weightC: { dtype: ["=x", "f32"], shape: "D", doc: "of `outC`" },
  },
  outputs: {
    outA: { dtype: ["=x"], shape: "... D", doc: "the rows with the first weight" },
    outB: { dtype: ["=x"], shape: "... D", doc: "with the second one" },
    outC: { dtype: ["=x"], shape: "... D", doc: "with the third one" },
  },
  params: NORM_OPTIONS,
  encode({ encoder, op, inputs, outputs, options, rows, dims }) {
    const { x, weightA, weightB, weightC } = inputs;
    const dim = dims.D as number;
    encoder.dispatch(rmsNormTripleKernel, {
      op,
      variant: x.dtype,
      buffers: { ...inputs, ...outputs },
      params: { ...normParams(rows, dim, options), f32Weights: f32Weights(weightA, weightB, weightC) },
      sizes: { rows, dim },
    });
  },
});
