import { type CommandEncoder, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import { mlaLibrary } from "./library.ts";
import type { RopeYarn } from "./signatures.ts";
import { rowsTogether, rowThreads } from "./threads.ts";

type Sizes = Record<"tokens" | "heads" | "pairs", number>;

/** Rotates x and, for queries and keys at once, k: of the same tokens, with heads and columns of its own. */
export const ropeYarnKernel = defineKernel({
  library: mlaLibrary,
  name: "rope_yarn",
  variants: FLOATS,
  buffers: { x: "read", k: "read?", positions: "read", table: "read", out: "write", outK: "write?" },
  // `perToken`: whether `positions` has an entry for each token, not one for each sequence.
  params: {
    tokens: "u32",
    length: "u32",
    heads: "u32",
    dim: "u32",
    first: "u32",
    kHeads: "u32",
    kDim: "u32",
    kFirst: "u32",
    pairs: "u32",
    rows: "u32",
    perToken: "u32",
    interleaved: "u32",
  },
  inPlace: [
    ["out", "x"],
    ["outK", "k"],
  ],
  faults: {
    position: ([position, at], { length, rows, perToken }) =>
      `\`positions\` must be from 0 to ${rows - (perToken ? 1 : length)}, got ${position | 0} at ${
        perToken ? "token" : "sequence"
      } ${at}`,
  },
  launch: {
    cpu: ({ tokens }: Sizes) => ({ threadgroups: [tokens, 1, 1] }),
    gpu: ({ tokens, heads, pairs }) => {
      const threads = rowThreads(pairs, 1);
      const together = rowsTogether(heads, threads);
      return {
        threadgroups: [tokens, Math.ceil(heads / together), 1],
        threadsPerThreadgroup: [threads, together, 1],
      };
    },
  },
});

/** What a call rotates: x and, where there is a `k`, its heads with it. */
interface Rotation {
  x: Tensor;
  k?: { k: Tensor; first: number; out: Tensor };
  positions: Tensor;
  table: Tensor;
  out: Tensor;
  first: number;
  interleaved: boolean;
}

export function encodeRotation(encoder: CommandEncoder, op: string, rotation: Rotation): void {
  const { x, k, positions, table, out, first, interleaved } = rotation;
  const [N, L, heads, dim] = x.shape as [number, number, number, number];
  const [rows, , pairs] = table.shape as [number, number, number];
  const [, , kHeads = 0, kDim = 0] = k?.k.shape ?? [];
  const tokens = N * L;
  encoder.dispatch(ropeYarnKernel, {
    op,
    variant: x.dtype,
    buffers: { x, k: k?.k, positions, table, out, outK: k?.out },
    params: {
      tokens,
      length: L,
      heads,
      dim,
      first,
      kHeads,
      kDim,
      kFirst: k?.first ?? 0,
      pairs,
      rows,
      perToken: positions.shape.length === 2 ? 1 : 0,
      interleaved: interleaved ? 1 : 0,
    },
    sizes: { tokens, heads: heads + kHeads, pairs },
  });
}

export const PAIRING = {
  kind: "choice",
  values: ["interleaved", "half"],
  default: "interleaved",
  doc: "which elements form a pair: (2i, 2i + 1) or (i, i + pairs)",
} as const;

/**
 * Rotary position embedding by a table of cosines and sines, as `rotaryTable` makes it for YaRN and for the plain
 * embedding: with (c, s) = table[position, :, i], the pair (a, b) becomes (a·c − b·s, a·s + b·c).
 *
 * - `x` [N, L, H, D] f32, f16 or bf16. Columns `first` … `first + 2·pairs − 1` of each head are rotated: queries and keys
 *   are read inside their parents. `out` [N, L, H, 2·pairs]; where that is all of `x`, it may be exactly `x`.
 * - `positions` i32, [N, L], or [N]: the position of each sequence's first token, the others follow.
 * - `table` [rows, 2, pairs] f32: cosines, then sines, of each position from 0 on, both times the amplitude.
 * - `pairing` `interleaved` (default): elements (2i, 2i + 1), as DeepSeek; `half`: (i, i + pairs).
 *
 * Rotation in f32, rounded once. Errors: `InvalidArgument` for shapes, dtypes, options and partial overlap; a position
 * outside the table fails the submission, and nothing is written. Peng et al., "YaRN", 2023.
 */
export const ropeYarn: RopeYarn = defineOp({
  name: "ropeYarn",
  summary: "pairs of x rotated by the table's row at their position",
  inputs: {
    x: { dtype: FLOATS, shape: "N L H D", doc: "queries or keys of each head, with columns that are not rotated" },
    positions: { dtype: ["i32"], shape: "N L | N", doc: "position of each token, or of each sequence's first" },
    table: { dtype: ["f32"], shape: "rows 2 pairs", doc: "cosines and sines of each position, times the amplitude" },
  },
  outputs: {
    out: {
      dtype: ["=x"],
      shape: {
        text: "N, L, H, 2 pairs",
        of: ({ dims: { N, L, H, pairs } }) => [N, L, H, 2 * (pairs as number)] as number[],
      },
      inPlace: ["x"],
      doc: "the rotated columns",
    },
  },
  params: {
    first: { kind: "number", integer: true, min: 0, default: 0, doc: "first column that is rotated" },
    pairing: PAIRING,
  },
  rules({ dims: { D = 0, L = 0, pairs = 0, rows = 0 }, options: { first }, fail }) {
    if (L > rows) fail("table", `have a row for each of the ${L} tokens of a sequence`, rows);
    if (first + 2 * pairs > D) fail("first", `leave ${2 * pairs} columns of the ${D} of \`x\``, first);
  },
  encode({ encoder, op, inputs: { x, positions, table }, outputs: { out }, options: { first, pairing } }) {
    encodeRotation(encoder, op, { x, positions, table, out, first, interleaved: pairing === "interleaved" });
  },
});
