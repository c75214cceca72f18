import { defineOp, FLOATS } from "@mlxts/core";
import { encodeHeadProduct } from "./head_matmul.ts";
import { HEAD_WEIGHTS, headKeys, headWeightRelations, latentWidth } from "./head_weights.ts";
import type { MlaQPrime } from "./signatures.ts";

/**
 * Queries folded into the space of latents: `q'[h] = Wk_hᵀ · q_nope[h]`, so that `q' · c_t` is the score of the key that
 * head h would make of latent c_t.
 *
 * - `q` [N, L, H, D] f32, f16 or bf16; the first `nope` ≤ D columns of each head are its query without position, so `q` may
 *   be what the projection gave.
 * - `kvB` [H · P, R], `kv_b_proj` as checkpoints have it: of the P rows of head h the first `nope` are Wk_h, the others
 *   Wv_h. Or `embedQ` [H, R, nope], Wk_hᵀ as MLX stores it. Either a tensor in f32, f16 or bf16 or a `Quantized` with bits 4
 *   or 8, of which groups run along the last dimension; read in place, its elements `scale·q + bias` in f32.
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
    kvB: HEAD_WEIGHTS.kvB,
    embedQ: HEAD_WEIGHTS.embedQ,
  },
  outputs: {
    out: {
      dtype: ["f32"],
      shape: {
        text: "N, L, H, R",
        of: (c) => [...(["N", "L", "H"].map((d) => c.dims[d]) as number[]), latentWidth(c)],
      },
      doc: "queries for latents",
    },
  },
  params: { nope: { kind: "number", integer: true, min: 1, doc: "columns of a query without position" } },
  relations: (c) => headWeightRelations(c, ["embedQ"]),
  rules(c) {
    const { dims, options, fail } = c;
    const D = dims.D as number;
    if (options.nope > D) fail("nope", `be at most the ${D} columns of \`q\``, options.nope);
    headKeys(c, options.nope);
  },
  encode(c) {
    const { encoder, op, inputs, outputs, options } = c;
    encodeHeadProduct({ encoder, op, x: inputs.q, matrix: headKeys(c, options.nope), from: "heads", out: outputs.out });
  },
});
