import { defineOp, FLOATS } from "@mlxts/core";
import { encodeHeadProduct, rowsOfHead } from "./head_matmul.ts";
import type { MlaQPrime } from "./signatures.ts";

/**
 * Queries folded into the space of latents: `q'[h] = Wk_hᵀ · q_nope[h]`, so that `q' · c_t` is the score of the key that
 * head h would make of latent c_t.
 *
 * - `q` [N, L, H, D] f32, f16 or bf16; the first `nope` ≤ D columns of each head are its query without position, so `q` may
 *   be what the projection gave.
 * - `weight` [H · P, R] f32, f16 or bf16, `kv_b_proj` as checkpoints have it: of the P rows of head h the first `nope`
 *   are Wk_h, the others Wv_h. It is read in place.
 * - `out` [N, L, H, R] f32.
 *
 * Products and sums in f32. Where the processor has bf16 products and both q and weight are bf16, products are exact and
 * subnormal bf16 numbers (below 1.2e-38) count as 0; on GPUs all numbers below that may. Errors: `InvalidArgument` for
 * shapes, dtypes, options and overlap. DeepSeek-AI, "DeepSeek-V2", 2024.
 */
export const mlaQPrime: MlaQPrime = defineOp({
  name: "mlaQPrime",
  summary: "queries folded into the space of latents: Wk_hᵀ · q_nope[h]",
  inputs: {
    q: { dtype: FLOATS, shape: "N L H D", doc: "queries; of each head the first `nope` columns are read" },
    weight: { dtype: FLOATS, shape: "Hrows R", doc: "`kv_b_proj`: for each head rows of keys, then of values" },
  },
  outputs: {
    out: {
      dtype: ["f32"],
      shape: { text: "N, L, H, R", of: ({ dims: { N, L, H, R } }) => [N, L, H, R] as number[] },
      doc: "queries for latents",
    },
  },
  params: { nope: { kind: "number", integer: true, min: 1, doc: "columns of a query without position" } },
  rules({ dims, options: { nope }, fail }) {
    const D = dims.D as number;
    if (nope > D) fail("nope", `be at most the ${D} columns of \`q\``, nope);
    rowsOfHead(dims, ["nope", nope], fail);
  },
  encode({ encoder, op, inputs: { q, weight }, outputs: { out }, options: { nope } }) {
    encodeHeadProduct({ encoder, op, x: q, weight, out, k: nope, firstRow: 0, transpose: false });
  },
});
