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
import type { FusedMoeWsumPostFfNorm2EndLayer } from "./signatures.ts";

export const fusedMoeWsumPostFfNorm2EndLayerKernel = defineKernel({
  library: normsLibrary,
  name: "fused_moe_wsum_post_ff_norm2_end_layer",
  variants: FLOATS,
  buffers: {
    attn: "read",
    experts: "read",
    routing: "read",
    residual: "read",
    weight2: "read",
    weight3: "read",
    scale: "read",
    m: "write?",
    hidden: "write",
  },
  params: { ...END_LAYER_PARAMS, topK: "u32" },
  inPlace: [["hidden", "residual"]],
  launchParams: ROW_LAUNCH_PARAMS,
  // A row of weighted sums, and one of m, where it is not stored.
  scratch: { cpu: { x: "f32", m: "f32" }, ...TWO_NORMS_SCRATCH },
  launch: {
    cpu: (sizes: Rows & { stored: boolean }) => ({
      ...rowsOnCpu(sizes),
      scratch: { x: [sizes.dim], m: [sizes.stored ? 0 : sizes.dim] },
    }),
    ...TWO_NORMS_ON_GPUS,
  },
});

/**
 * The weighted sum of a token's experts, and the end of the layer:
 * `x = Σ_k routing[row, k] · experts[row, k]` in ascending k, `m = attn + norm(x) · (weight2 + weightOffset)`,
 * `hidden = (residual + norm(m) · (weight3 + weightOffset)) · scale`, with norm(x) = x / √(Σx²/D + eps).
 *
 * - `attn`, `residual`, `m`, `hidden` [.., D], `experts` [.., topK, D] f32, f16 or bf16; `routing` [.., topK] f32; each
 *   weight [D], dtype of attn or f32; `scale` [1] or [D] f32.
 * - `m` is stored where it is asked for. `hidden` may be exactly `residual`.
 * - `eps`, `weightOffset`, `rounding` as in `rmsNorm`, the same for both norms.
 *
 * Sums in f32, intermediate results rounded to the dtype of attn, x too: the bits of a combining op and then
 * `fusedPostFfNorm2EndLayer`. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const fusedMoeWsumPostFfNorm2EndLayer = defineOp({
  name: "fusedMoeWsumPostFfNorm2EndLayer",
  summary: "x = Σ_k routing[k] · experts[k]; m = attn + norm(x) · weight2; (residual + norm(m) · weight3) · scale",
  inputs: {
    attn: { dtype: FLOATS, shape: "... D", doc: "what the first branch gave, normalized" },
    experts: { dtype: ["=attn"], shape: "... topK D", doc: "what the experts of each token gave" },
    routing: { dtype: ["f32"], shape: "... topK", doc: "weight of each of them" },
    residual: { dtype: ["=attn"], shape: "... D", doc: "the residual stream" },
    weight2: { dtype: ["=attn", "f32"], shape: "D", doc: "factor of each column of the norm of the experts' sum" },
    weight3: { dtype: ["=attn", "f32"], shape: "D", doc: "factor of each column of the norm of `m`" },
    scale: SCALE,
  },
  outputs: END_LAYER_OUTPUTS,
  params: NORM_OPTIONS,
  encode({ encoder, op, inputs, outputs, options, rows, dims }) {
    const { D: dim, topK } = dims as Record<"D" | "topK", number>;
    encoder.dispatch(fusedMoeWsumPostFfNorm2EndLayerKernel, {
      op,
      variant: inputs.attn.dtype,
      buffers: { ...inputs, ...outputs },
      params: { ...endLayerParams(rows, dim, options, inputs), topK },
      sizes: { rows, dim, stored: outputs.m !== undefined },
    });
  },
}) as FusedMoeWsumPostFfNorm2EndLayer;
