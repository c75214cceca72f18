import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { END_LAYER_OUTPUTS, END_LAYER_PARAMS, endLayerParams, SCALE } from "./end_layer.ts";
import { normsLibrary } from "./library.ts";
import {
  NORM_OPTIONS,
  ROW_LAUNCH_PARAMS,
  type Rows,
  rowsOnCpu,
  TWO_NORMS_ON_GPUS,
  TWO_NORMS_SCRATCH,
} from "./options.ts";
import type { FusedPostFfNorm2EndLayer } from "./signatures.ts";

export const fusedPostFfNorm2EndLayerKernel = defineKernel({
  library: normsLibrary,
  name: "fused_post_ff_norm2_end_layer",
  variants: FLOATS,
  buffers: {
    attn: "read",
    x: "read",
    residual: "read",
    weight2: "read",
    weight3: "read",
    scale: "read",
    m: "write?",
    hidden: "write",
  },
  params: END_LAYER_PARAMS,
  inPlace: [["hidden", "residual"]],
  launchParams: ROW_LAUNCH_PARAMS,
  // A row of m, where it is not stored.
  scratch: { cpu: { m: "f32" }, ...TWO_NORMS_SCRATCH },
  launch: {
    cpu: (sizes: Rows & { stored: boolean }) => ({
      ...rowsOnCpu(sizes),
      scratch: { m: [sizes.stored ? 0 : sizes.dim] },
    }),
    ...TWO_NORMS_ON_GPUS,
  },
});

/**
 * The end of a layer whose two branches are normalized before they meet the residual stream:
 * `m = attn + norm(x) · (weight2 + weightOffset)`, `hidden = (residual + norm(m) · (weight3 + weightOffset)) · scale`, with
 * norm(x) = x / √(Σx²/D + eps).
 *
 * - `attn`, `x`, `residual`, `m`, `hidden` [.., D] f32, f16 or bf16; each weight [D], dtype of attn or f32; `scale` [1] or
 *   [D] f32.
 * - `m` is stored where it is asked for. `hidden` may be exactly `residual`.
 * - `eps`, `weightOffset`, `rounding` as in `rmsNorm`, the same for both norms.
 *
 * Sums in f32, intermediate results rounded to the dtype of attn: the bits of `rmsNormAdd`, `rmsNormAdd` again, and a
 * product in f32. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const fusedPostFfNorm2EndLayer = defineOp({
  name: "fusedPostFfNorm2EndLayer",
  summary: "m = attn + norm(x) · weight2; (residual + norm(m) · weight3) · scale",
  inputs: {
    attn: { dtype: FLOATS, shape: "... D", doc: "what the first branch gave, normalized" },
    x: { dtype: ["=attn"], shape: "... D", doc: "what the second branch gave" },
    residual: { dtype: ["=attn"], shape: "... D", doc: "the residual stream" },
    weight2: { dtype: ["=attn", "f32"], shape: "D", doc: "factor of each column of the norm of `x`" },
    weight3: { dtype: ["=attn", "f32"], shape: "D", doc: "factor of each column of the norm of `m`" },
    scale: SCALE,
  },
  outputs: END_LAYER_OUTPUTS,
  params: NORM_OPTIONS,
  encode({ encoder, op, inputs, outputs, options, rows, dims }) {
    const dim = dims.D as number;
    encoder.dispatch(fusedPostFfNorm2EndLayerKernel, {
      op,
      variant: inputs.attn.dtype,
      buffers: { ...inputs, ...outputs },
      params: endLayerParams(rows, dim, options, inputs),
      sizes: { rows, dim, stored: outputs.m !== undefined },
    });
  },
}) as FusedPostFfNorm2EndLayer;
