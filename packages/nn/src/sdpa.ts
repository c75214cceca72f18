import { defineKernel, defineOp, FLOATS, OLD_SCRATCH, oldLaunch } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Sdpa } from "./signatures.ts";

const variants = FLOATS.flatMap((x) => FLOATS.map((cache) => `${x}_${cache}`));
const params = {
  batch: "u32",
  tokens: "u32",
  heads: "u32",
  kvHeads: "u32",
  dim: "u32",
  capacity: "u32",
  scale: "f32",
  causal: "u32",
} as const;

/** Both kernels that look at `lengths` say the same. */
const faults = {
  length: ([length, sequence]: readonly number[], { capacity }: { capacity: number }) =>
    `\`lengths\` must be from 0 to ${capacity}, got ${(length as number) | 0} at sequence ${sequence}`,
  newRows: ([length, sequence]: readonly number[], { tokens }: { tokens: number }) =>
    `\`lengths\` must be at least the ${tokens} new rows, got ${(length as number) | 0} at sequence ${sequence}`,
};

/** Rows of the cache that meet the queries at a time, and the most pieces a sequence's cache is cut into. */
const BLOCK_KEYS = 64;
const CPU_PIECES = { maxPieces: 16, minPieceKeys: 128 };
/** Up to this many query rows to a key/value head, the cache is cut into pieces. */
const PIECES_ROWS = 64;

/** On a GPU a threadgroup is 32 query rows, 64 keys at a time, of which each simdgroup scores 8; 256 columns in a pass. */
const TILE = { tileRows: 32, simdgroups: 8, tileKeys: 64, tileColumns: 256, scoreStride: 68 };
/** Its scores of two blocks, and of each row what earlier sums are multiplied by and the denominator. */
const tileBytes = (rows: number) => {
  const used = Math.min(TILE.tileRows, Math.ceil(rows / 8) * 8);
  return 4 * (2 * used * TILE.scoreStride + 2 * used);
};
/** A GPU's pieces: smaller and more, so that one sequence occupies it. */
const GPU_PIECES = { maxPieces: 64, minPieceKeys: 64 };

interface TiledSizes {
  batch: number;
  kvHeads: number;
  rows: number;
  groupRows: number;
  dim: number;
}

const padded = (dim: number) => Math.ceil(dim / 64) * 64;

/** Many queries: a threadgroup is `groupRows` of the T · H / Hkv query rows that share a key/value head. */
export const sdpaKernel = defineKernel({
  library: nnLibrary,
  name: "sdpa",
  variants,
  buffers: { q: "read", kCache: "read", vCache: "read", lengths: "read", out: "write" },
  params: { ...params, groupRows: "u32" },
  faults,
  constants: { shared: TILE },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ batch, kvHeads, rows, groupRows, dim }: TiledSizes, { gpu }) => ({
    threadgroups: [Math.ceil(rows / groupRows), kvHeads, batch],
    threadsPerThreadgroup: [gpu ? 32 * TILE.simdgroups : 1, 1, 1],
    // On a CPU: queries, sums, maxima and denominators; packed keys and values; scores of six rows.
    threadgroupBytes: gpu
      ? tileBytes(rows)
      : 4 * (groupRows * (2 * padded(dim) + 2) + BLOCK_KEYS * 2 * padded(dim) + 6 * BLOCK_KEYS),
  })),
});

interface PiecesSizes {
  batch: number;
  kvHeads: number;
  pieces: number;
  rows: number;
  dim: number;
}

/** Few queries, first half: each piece of the cache against all queries of its head, unnormalized. */
export const sdpaPiecesKernel = defineKernel({
  library: nnLibrary,
  name: "sdpa_pieces",
  variants,
  buffers: { q: "read", kCache: "read", vCache: "read", lengths: "read", partial: "write" },
  params,
  faults,
  constants: { shared: GPU_PIECES },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ batch, kvHeads, pieces, rows, dim }: PiecesSizes, { gpu }) => ({
    // On a GPU the rows of a piece may be several tiles.
    threadgroups: [gpu ? pieces * Math.ceil(rows / TILE.tileRows) : pieces, kvHeads, batch],
    threadsPerThreadgroup: [gpu ? 32 * TILE.simdgroups : 1, 1, 1],
    threadgroupBytes: gpu ? tileBytes(rows) : 4 * rows * (2 * padded(dim) + BLOCK_KEYS + 2),
  })),
});

/** Few queries, second half: the pieces of each query put together in order. */
export const sdpaMergeKernel = defineKernel({
  library: nnLibrary,
  name: "sdpa_merge",
  variants: FLOATS,
  buffers: { partial: "read", lengths: "read", out: "write" },
  params: { tokens: "u32", heads: "u32", kvHeads: "u32", dim: "u32", pieces: "u32" },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ rows, dim }: { rows: number; dim: number }, { gpu }) => ({
    threadgroups: [rows, 1, 1],
    // Four columns to a thread.
    threadsPerThreadgroup: [gpu ? 32 * Math.min(8, Math.ceil(dim / 128)) : 1, 1, 1],
  })),
});

/** Query rows of a threadgroup: enough to repay packing, few enough to occupy many threads. */
function tiledRows(rows: number, heads: number): number {
  const blocks = Math.max(Math.ceil(rows / 252), Math.min(Math.ceil(rows / 48), Math.ceil(64 / heads)));
  return Math.ceil(Math.ceil(rows / blocks) / 6) * 6;
}

/**
 * Scaled dot-product attention over a cache: `out[b, i, h] = Σ_t softmax_t(scale · q[b, i, h] · k[b, h', t]) · v[b, h', t]`
 * with h' = ⌊h · Hkv / H⌋ (neighboring heads share a key/value head), over the rows t that query i sees.
 *
 * - `q`, `out` [B, T, H, D] f32, f16 or bf16; H a multiple of Hkv; any D.
 * - `kCache`, `vCache` [B, Hkv, capacity, D] f32, f16 or bf16, whatever q has, both of one dtype.
 * - `lengths` i32 [B]: rows valid in each sequence's cache, those of the T new tokens included.
 * - `causal` true (default): query i sees t < lengths[b] − T + i + 1; false: t < lengths[b]. A query that sees nothing
 *   gives 0. Rows that a query does not see never enter its arithmetic, whatever they hold.
 * - `scale` > 0, default D^−1/2.
 *
 * Scores, softmax and sums in f32, one rounding at the store; q and k of dtype bf16 may be multiplied by the processor's
 * bf16 products, which are exact but take subnormal bf16 numbers (below 1.2e-38) as 0; GPUs may take all numbers below
 * that as 0. Few queries: the cache is read once for all heads that share it (on a GPU once for 32 query rows), in pieces
 * whose borders depend on the sequence's length only. Errors: `InvalidArgument` for shapes, dtypes, options and overlap;
 * lengths outside 0 … capacity, or below T when causal, fail the submission. Vaswani et al., "Attention Is All You
 * Need", 2017; Ainslie et al., "GQA", 2023; online softmax: Milakov and Gimelshein, 2018.
 */
export const sdpa: Sdpa = defineOp({
  name: "sdpa",
  summary: "softmax(scale · q · kᵀ) · v over the visible rows of a cache",
  inputs: {
    q: { dtype: FLOATS, shape: "B T H D", doc: "queries, in groups of H / Hkv heads for each head of the cache" },
    kCache: { dtype: FLOATS, shape: "B Hkv capacity D", doc: "cache of keys" },
    vCache: { dtype: ["=kCache"], shape: "B Hkv capacity D", doc: "cache of values" },
    lengths: { dtype: ["i32"], shape: "B", doc: "valid rows of each sequence's cache, the new ones included" },
  },
  outputs: { out: { dtype: ["=q"], shape: "B T H D", doc: "what each query attends to" } },
  params: {
    scale: { kind: "number", above: 0, optional: true, doc: "multiplies the scores; default D^-1/2" },
    causal: { kind: "boolean", default: true, doc: "the last query sees all rows, each earlier one a row less" },
  },
  relations({ dims, fail }) {
    // A letter is missing where a tensor has another number of dimensions: its shape is refused later.
    const { Hkv = 1, H = Hkv, T = 1, capacity = T } = dims;
    if (H % Hkv !== 0) fail("q", `have a number of heads that the cache's ${Hkv} divides`, H);
    if (T > capacity) fail("q", `have at most the cache's ${capacity} rows`, T);
  },
  encode({ encoder, op, inputs: { q, kCache, vCache, lengths }, outputs: { out }, options, dims }) {
    const { B, T, H, D, Hkv, capacity } = dims as Record<"B" | "T" | "H" | "D" | "Hkv" | "capacity", number>;
    const rows = (T * H) / Hkv;
    const { gpu } = encoder.device;
    const variant = `${q.dtype}_${kCache.dtype}`;
    const common = {
      batch: B,
      tokens: T,
      heads: H,
      kvHeads: Hkv,
      dim: D,
      capacity,
      scale: options.scale ?? D ** -0.5,
      causal: options.causal ? 1 : 0,
    };
    if (T > 1 && rows > PIECES_ROWS) {
      const groupRows = gpu ? TILE.tileRows : tiledRows(rows, B * Hkv);
      encoder.dispatch(sdpaKernel, {
        op,
        variant,
        buffers: { q, kCache, vCache, lengths, out },
        params: { ...common, groupRows },
        sizes: { batch: B, kvHeads: Hkv, rows, groupRows, dim: D },
      });
      return;
    }
    const { maxPieces, minPieceKeys } = gpu ? GPU_PIECES : CPU_PIECES;
    const pieces = Math.min(maxPieces, Math.ceil(capacity / minPieceKeys));
    // Of each query row: D sums, the maximum and the denominator.
    const partial = encoder.empty("f32", [B, Hkv, pieces, rows, D + 2]);
    encoder.dispatch(sdpaPiecesKernel, {
      op,
      variant,
      buffers: { q, kCache, vCache, lengths, partial },
      params: common,
      sizes: { batch: B, kvHeads: Hkv, pieces, rows, dim: D },
    });
    encoder.dispatch(sdpaMergeKernel, {
      op,
      variant: q.dtype,
      buffers: { partial, lengths, out },
      params: { tokens: T, heads: H, kvHeads: Hkv, dim: D, pieces },
      sizes: { rows: B * T * H, dim: D },
    });
  },
});
