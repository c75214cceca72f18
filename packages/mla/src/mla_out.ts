import { defineOp, FLOATS, type FloatDtype } from "@mlxts/core";
import { encodeHeadProduct, rowsOfHead } from "./head_matmul.ts";
import type { MlaOut } from "./signatures.ts";

/**
 * The values of what attention gave: `out[h] = Wv_h · vc[h]`, where `vc[h]` is the weighted sum of latents.
 *
 * - `vc` [N, L, H, R] f32.
 * - `weight` [H · P, R] f32, f16 or bf16, `kv_b_proj` as checkpoints have it: of the P rows of head h the last `v` are
 *   Wv_h. It is read in place.
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
    weight: { dtype: FLOATS, shape: "Hrows R", doc: "`kv_b_proj`: for each head rows of keys, then of values" },
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
  rules({ dims, options: { v }, fail }) {
    rowsOfHead(dims, ["v", v], fail);
  },
  encode({ encoder, op, inputs: { vc, weight }, outputs: { out }, options: { v }, dims }) {
    const firstRow = (dims.Hrows as number) / (dims.H as number) - v;
    encodeHeadProduct({ encoder, op, x: vc, weight, out, k: vc.lastDim, firstRow, transpose: true });
  },
});
