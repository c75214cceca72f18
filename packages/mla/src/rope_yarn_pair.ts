import { defineOp, FLOATS } from "@mlxts/core";
import { encodeRotation, PAIRING } from "./rope_yarn.ts";
import type { RopeYarnPair } from "./signatures.ts";

const rotated = (heads: string, x: "q" | "k") =>
  ({
    dtype: [`=${x}`],
    shape: {
      text: `N, L, ${heads}, 2 pairs`,
      of: ({ dims }: { dims: Record<string, number> }) =>
        [dims.N, dims.L, dims[heads], 2 * (dims.pairs as number)] as number[],
    },
    inPlace: [x],
    doc: `the rotated columns of \`${x}\``,
  }) as const;

/**
 * Rotary position embedding of queries and keys of the same tokens by a table, as `ropeYarn` rotates each of them.
 *
 * - `q` [N, L, Hq, Dq], `k` [N, L, Hk, Dk], both f32, f16 or bf16. Columns `firstQ` … `firstQ + 2·pairs − 1` of each head of q
 *   are rotated, and those from `firstK` on of k. `outQ` [N, L, Hq, 2·pairs], `outK` [N, L, Hk, 2·pairs]; where that is all
 *   of its input, it may be exactly that.
 * - `positions`, `table` and `pairing` as in `ropeYarn`.
 *
 * The bits of two calls of `ropeYarn`, in one dispatch. Errors: as `ropeYarn`. Peng et al., "YaRN", 2023.
 */
export const ropeYarnPair: RopeYarnPair = defineOp({
  name: "ropeYarnPair",
  summary: "pairs of q and of k rotated by the table's row at their position",
  inputs: {
    q: { dtype: FLOATS, shape: "N L Hq Dq", doc: "queries of each head, with columns that are not rotated" },
    k: { dtype: ["=q"], shape: "N L Hk Dk", doc: "keys of each head, with columns that are not rotated" },
    positions: { dtype: ["i32"], shape: "N L | N", doc: "position of each token, or of each sequence's first" },
    table: { dtype: ["f32"], shape: "rows 2 pairs", doc: "cosines and sines of each position, times the amplitude" },
  },
  outputs: { outQ: rotated("Hq", "q"), outK: rotated("Hk", "k") },
  params: {
    firstQ: { kind: "number", integer: true, min: 0, default: 0, doc: "first column of `q` that is rotated" },
    firstK: { kind: "number", integer: true, min: 0, default: 0, doc: "first column of `k` that is rotated" },
    pairing: PAIRING,
  },
  rules({ dims: { Dq = 0, Dk = 0, L = 0, pairs = 0, rows = 0 }, options: { firstQ, firstK }, fail }) {
    if (L > rows) fail("table", `have a row for each of the ${L} tokens of a sequence`, rows);
    if (firstQ + 2 * pairs > Dq) fail("firstQ", `leave ${2 * pairs} columns of the ${Dq} of \`q\``, firstQ);
    if (firstK + 2 * pairs > Dk) fail("firstK", `leave ${2 * pairs} columns of the ${Dk} of \`k\``, firstK);
  },
  encode({ encoder, op, inputs: { q, k, positions, table }, outputs: { outQ, outK }, options }) {
    encodeRotation(encoder, op, {
      x: q,
      k: { k, first: options.firstK, out: outK },
      positions,
      table,
      out: outQ,
      first: options.firstQ,
      interleaved: options.pairing === "interleaved",
    });
  },
});
