import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import {
  f32Weights,
  NORM_OPTIONS,
  NORM_PARAMS,
  normParams,
  ROW_LAUNCH_PARAMS,
  type Rows,
  rowsOnCpu,
  TWO_NORMS_ON_GPUS,
  TWO_NORMS_SCRATCH,
} from "./options.ts";
import type { FusedPostAttnTripleNorm } from "./signatures.ts";

export const fusedPostAttnTripleNormKernel = defineKernel({
  library: normsLibrary,
  name: "fused_post_attn_triple_norm",
  variants: FLOATS,
  buffers: {
    hidden: "read",
    attn: "read",
    weightPost: "read",
    weightA: "read",
    weightB: "read",
    weightC: "read",
    res: "write?",
    outA: "write",
    outB: "write",
    outC: "write",
  },
  params: { ...NORM_PARAMS, f32Weights: "u32" },
  inPlace: [["res", "hidden"]],
  launchParams: ROW_LAUNCH_PARAMS,
  // A row of res, where it is not stored.
  scratch: { cpu: { res: "f32" }, ...TWO_NORMS_SCRATCH },
  launch: {
    cpu: (sizes: Rows & { stored: boolean }) => ({
      ...rowsOnCpu(sizes),
      scratch: { res: [sizes.stored ? 0 : sizes.dim] },
    }),
    ...TWO_NORMS_ON_GPUS,
  },
});

/**
 * What follows attention in layers that normalize its result and the input of three branches:
 * `res = hidden + norm(attn) · (weightPost + weightOffset)`, `outA = norm(res) · (weightA + weightOffset)`, and so `outB`
 * and `outC`, with norm(x) = x / √(Σx²/D + eps).
 *
 * - `hidden`, `attn`, `res`, `outA`, `outB`, `outC` [.., D] f32, f16 or bf16; each weight [D], dtype of hidden or f32.
 * - `res` is stored where it is asked for; it may be exactly `hidden`.
 * - `eps`, `weightOffset`, `rounding` as in `rmsNorm`, the same for all norms.
 *
 * Sums in f32, intermediate results rounded to the dtype of hidden: the bits of `rmsNormAdd` and then `rmsNormTriple`.
 * Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const fusedPostAttnTripleNorm = defineOp({
  name: "fusedPostAttnTripleNorm",
  summary: "res = hidden + norm(attn) · weightPost; norm(res) · weight for three weights",
  inputs: {
    hidden: { dtype: FLOATS, shape: "... D", doc: "the residual stream" },
    attn: { dtype: ["=hidden"], shape: "... D", doc: "what attention gave" },
    weightPost: { dtype: ["=hidden", "f32"], shape: "D", doc: "factor of each column of the norm of `attn`" },
    weightA: { dtype: ["=hidden", "f32"], shape: "D", doc: "factor of each column of `outA`" },
    weightB: { dtype: ["=hidden", "f32"], shape: "D", doc: "of `outB`" },
    weightC: { dtype: ["=hidden", "f32"], shape: "D", doc: "of `outC`" },
  },
  outputs: {
    res: { dtype: ["=hidden"], shape: "... D", optional: true, inPlace: ["hidden"], doc: "the new residual stream" },
    outA: { dtype: ["=hidden"], shape: "... D", doc: "its norm with the first weight" },
    outB: { dtype: ["=hidden"], shape: "... D", doc: "with the second one" },
    outC: { dtype: ["=hidden"], shape: "... D", doc: "with the third one" },
  },
  params: NORM_OPTIONS,
  encode({ encoder, op, inputs, outputs, options, rows, dims }) {
    const { hidden, weightPost, weightA, weightB, weightC } = inputs;
    const dim = dims.D as number;
    encoder.dispatch(fusedPostAttnTripleNormKernel, {
      op,
      variant: hidden.dtype,
      buffers: { ...inputs, ...outputs },
      params: { ...normParams(rows, dim, options), f32Weights: f32Weights(weightPost, weightA, weightB, weightC) },
      sizes: { rows, dim, stored: outputs.res !== undefined },
    });
  },
}) as FusedPostAttnTripleNorm;
