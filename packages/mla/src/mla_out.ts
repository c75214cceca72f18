import { defineOp, FLOATS, type FloatDtype } from "@mlxts/core";
import { encodeHeadProduct } from "./head_matmul.ts";
import { HEAD_WEIGHTS, headValues, headWeightRelations } from "./head_weights.ts";
import type { MlaOut } from "./signatures.ts";

/**
 * The values of what attention gave: `out[h] = Wv_h · vc[h]`, where `vc[h]` is the weighted sum of latents.
 *
 * - `vc` [N, L, H, R] f32.
 * - `kvB` [H · P, R], `kv_b_proj` as checkpoints have it: of the P rows of head h the last `v` are Wv_h. Or `unembedOut`
 *   [H, v, R], Wv_h as MLX stores it. Either a tensor in f32, f16 or bf16 or a `Quantized` with bits 4 or 8, of which
 *   groups run along the last dimension; read in place, its elements `scale·q + bias` in f32.
 * - `out` [N, L, H, v] f32, f16 or bf16, as `outDtype` says.
 *
 * Products and sums in f32, one rounding at the store; GPUs may take numbers below 1.2e-38 as 0. Errors: `InvalidArgument`
 * for shapes, dtypes, options and overlap. DeepSeek-AI, "DeepSeek-V2", 2024.
 */
export const mlaOut: MlaOut = defineOp({
  name: "mlaOut",
  summary: "the values of weighted latents: Wv_h · vc[h]",
  inputs: {
    vc: { dtype: ["f32"], shape: "N L H R", doc: "weighted sums of latents" },
    kvB: HEAD_WEIGHTS.kvB,
    unembedOut: HEAD_WEIGHTS.unembedOut,
  },
  outputs: {
    out: {
      dtype: (c) => c.options.outDtype as FloatDtype,
      shape: { text: "N, L, H, v", of: ({ dims: { N, L, H }, options }) => [N, L, H, options.v] as number[] },
      doc: "outputs of heads",
    },
  },
  params: {
    v: { kind: "number", integer: true, min: 1, doc: "columns of a value" },
    outDtype: { kind: "choice", values: FLOATS, default: "f32", doc: "dtype of the result" },
  },
  relations: (c) => headWeightRelations(c, ["unembedOut"]),
  rules(c) {
    headValues(c, c.options);
  },
  encode(c) {
    const { encoder, op, inputs, outputs, options } = c;
    encodeHeadProduct({ encoder, op, x: inputs.vc, matrix: headValues(c, options), from: "latents", out: outputs.out });
  },
});
