import { type CommandEncoder, constantsOf, defineKernel, defineOp, FLOATS, type Tensor, tileStride } from "@mlxts/core";
import { mlaLibrary } from "./library.ts";
import type { MlaAttention } from "./signatures.ts";
import { rowThreads, SIMD } from "./threads.ts";
import { hasTiles } from "./tiles.ts";

/** Keys that meet the queries at a time, on a CPU and on a GPU. */
const [CPU_KEYS, GPU_KEYS] = [128, 64];
/** Numbers of a row's softmax in `partial`, before its sums: maximum and denominator. */
const SOFTMAX_SIZE = 2;
/** Pieces of a cache at most, their rows at least, and query rows of all pieces of a sequence together at most. */
const CPU_PIECES = { maxPieces: 16, minPieceKeys: CPU_KEYS, mostPartialRows: 1024 };
/** Smaller and more, so that one sequence occupies a GPU. */
const GPU_PIECES = { maxPieces: 64, minPieceKeys: GPU_KEYS, mostPartialRows: 4096 };
const PANEL = { panelRows: 6, panelColumns: 64 };
/** On a GPU a piece meets `tileRows` query rows at a time, and `tileColumns` columns of them in a pass over its keys. */
const TILE = { tileRows: 32, simdgroups: 8, tileColumns: 512, scoreStride: 68 };

interface PiecesSizes {
  batch: number;
  pieces: number;
  rows: number;
  rank: number;
  rope: number;
  /** Whether a CPU multiplies them by tiles of bf16. */
  tiles: boolean;
}

/** Elements of a row of a CPU's scratch, where rows are padded to whole panels. */
const padded = (columns: number) => Math.ceil(columns / PANEL.panelColumns) * PANEL.panelColumns;
/** Query rows of a CPU's threadgroup: as many as the cache has room for, in groups of one size. */
const GROUP_ROWS = 96;
/** The same of tiles of bf16, of which `tileRows` meet `tileKeys` keys at a time; a tile has `tileDepth` columns of them. */
const CPU_TILE = { tileKeys: 256, tileRows: 32, tileDepth: 32 };
const TILE_GROUP_ROWS = 128;
const inGroups = (rows: number, most: number) => Math.ceil(rows / Math.ceil(rows / most));
const upTo = (n: number, unit: number) => Math.ceil(n / unit) * unit;

const buffers = {
  queries: "read",
  qPe: "read",
  latentCache: "read",
  kPeCache: "read",
  lengths: "read",
  treeMask: "read?",
  partial: "write",
} as const;
/** Strides: elements from a row of a cache to the next, and rows from a sequence to the next. */
const params = {
  batch: "u32",
  tokens: "u32",
  heads: "u32",
  rank: "u32",
  rope: "u32",
  capacity: "u32",
  latentStride: "u32",
  ropeStride: "u32",
  sequenceStride: "u32",
  scale: "f32",
  causal: "u32",
  mostPieces: "u32",
  pieces: "u32",
} as const;
const faults = {
  length: ([length, sequence]: readonly number[], { capacity }: { capacity: number }) =>
    `\`lengths\` must be from 0 to ${capacity}, got ${(length as number) | 0} at sequence ${sequence}`,
  newRows: ([length, sequence]: readonly number[], { tokens }: { tokens: number }) =>
    `\`lengths\` must be at least the ${tokens} new rows, got ${(length as number) | 0} at sequence ${sequence}`,
};

/** First half: each piece of a sequence's cache against its query rows, heads within tokens, unnormalized. */
export const mlaPiecesKernel = defineKernel({
  library: mlaLibrary,
  name: "mla_pieces",
  variants: FLOATS.flatMap((x) => FLOATS.map((cache) => `${x}_${cache}`)),
  buffers,
  params,
  faults,
  constants: {
    shared: { softmaxSize: SOFTMAX_SIZE },
    cpu: { blockKeys: CPU_KEYS, ...PANEL, groupRows: GROUP_ROWS, ...CPU_TILE, ...CPU_PIECES },
    gpu: { blockKeys: GPU_KEYS, ...TILE, ...GPU_PIECES },
  },
  launchParams: { cpu: { groupRows: "u32", width: "u32" } },
  scratch: {
    cpu: {
      queries: "f32",
      sums: "f32",
      maxima: "f32",
      denominators: "f32",
      values: "f32", // packed
      scores: "f32",
      weights: "u16", // scores rounded to bf16
      copied: "u16", // rows on their way to tiles
    },
    gpu: {
      length: "u32", // whether all lengths are right, and the sequence's own
      scores0: "f32", // of two blocks in turn: one is written while the other is still read
      scores1: "f32",
      factors: "f32", // what a row's earlier sums are multiplied by
    },
  },
  launch: {
    cpu: ({ batch, pieces, rows, rank, rope, tiles }: PiecesSizes) => {
      const { tileKeys, tileRows, tileDepth } = CPU_TILE;
      const groupRows = tiles ? upTo(inGroups(rows, TILE_GROUP_ROWS), tileRows) : inGroups(rows, GROUP_ROWS);
      const width = padded(rank);
      const depth = upTo(rank, tileDepth) + upTo(rope, tileDepth);
      return {
        threadgroups: [pieces, Math.ceil(rows / groupRows), batch],
        params: { groupRows, width },
        scratch: {
          queries: [groupRows, tiles ? depth / 2 : width + padded(rope)],
          sums: [groupRows, width],
          maxima: [groupRows],
          denominators: [groupRows],
          values: tiles ? [tileKeys, tileDepth / 2] : [CPU_KEYS, PANEL.panelColumns],
          scores: tiles ? [tileKeys, tileRows] : [groupRows, CPU_KEYS],
          weights: [groupRows, tiles ? tileKeys : CPU_KEYS],
          copied: [tiles ? tileDepth : 0, depth],
        },
      };
    },
    gpu: ({ batch, pieces, rows }) => {
      const used = Math.min(TILE.tileRows, Math.ceil(rows / 8) * 8);
      return {
        threadgroups: [pieces, Math.ceil(rows / TILE.tileRows), batch],
        threadsPerThreadgroup: [SIMD * TILE.simdgroups, 1, 1],
        scratch: {
          length: [2],
          scores0: [used, TILE.scoreStride],
          scores1: [used, TILE.scoreStride],
          factors: [used],
        },
      };
    },
  },
});

/**
 * The same on a GPU for many query rows, at least `leastQueries`, over a cache of 16 bits: a threadgroup takes `tileRows` of
 * them, and `tileKeys` rows of the cache at a time, whose columns all have room in its memory.
 */
const TILES = { threads: 256, tileRows: 32, tileKeys: 16, mostRank: 512, mostRope: 64, leastQueries: 32 };
/** NVIDIA's GPUs multiply f32 in parts, so that fewer queries are worth it, and have registers for the scores of more keys. */
const CUDA_TILES = { tileKeys: 32, leastQueries: 16 };
/** The launch rule with so many keys at a time. */
const inTiles = (tileKeys: number) => (sizes: PiecesSizes) => ({
  threadgroups: [sizes.pieces, Math.ceil(sizes.rows / TILES.tileRows), sizes.batch] as const,
  threadsPerThreadgroup: [TILES.threads, 1, 1] as const,
  scratch: {
    length: [2],
    latents: [tileKeys, tileStride("u16", TILES.mostRank)],
    rotated: [tileKeys, tileStride("u16", TILES.mostRope)],
    scores: [(TILES.threads / SIMD) * 16, tileStride("f32", tileKeys)],
  },
});
const TILED_DTYPES = ["f16", "bf16"] as const;
export const mlaTilesKernel = defineKernel({
  library: mlaLibrary,
  name: "mla_tiles",
  variants: TILED_DTYPES,
  buffers,
  params,
  faults,
  constants: { gpu: TILES, cuda: CUDA_TILES },
  scratch: {
    gpu: {
      length: "u32", // whether all lengths are right, and the sequence's own
      latents: "u16",
      rotated: "u16",
      scores: "f32", // of each part of the columns
    },
  },
  launch: { gpu: inTiles(TILES.tileKeys), cuda: inTiles(CUDA_TILES.tileKeys) },
});

/** Second half: the pieces of each query row put together in order. */
export const mlaMergeKernel = defineKernel({
  library: mlaLibrary,
  name: "mla_merge",
  variants: ["f32"],
  buffers: { partial: "read", lengths: "read", vc: "write", lse: "write?" },
  params: { rows: "u32", rank: "u32", capacity: "u32", mostPieces: "u32", pieces: "u32" },
  launch: {
    cpu: ({ rows, batch }: { rows: number; batch: number; rank: number }) => ({ threadgroups: [rows, batch, 1] }),
    gpu: ({ rows, batch, rank }) => ({
      threadgroups: [rows, batch, 1],
      threadsPerThreadgroup: [rowThreads(rank, 4), 1, 1],
    }),
  },
});

interface Attention extends Record<"queries" | "qPe" | "latentCache" | "kPeCache" | "lengths" | "vc", Tensor> {
  encoder: CommandEncoder;
  op: string;
  treeMask?: Tensor | undefined;
  lse?: Tensor | undefined;
  softmaxScale: number;
  causal: boolean;
}

export function encodeAttention({ encoder, op, vc, lse, softmaxScale, causal, treeMask, ...given }: Attention): void {
  const { queries, qPe, latentCache, lengths } = given;
  const [N, L, H, R] = queries.shape as [number, number, number, number];
  const [rope, capacity] = [qPe.lastDim, latentCache.shape[1] as number];
  const { maxPieces, minPieceKeys, mostPartialRows, softmaxSize } = constantsOf(mlaPiecesKernel, encoder.device);
  const rows = L * H;
  const mostPieces = Math.max(1, Math.min(maxPieces, Math.floor(mostPartialRows / rows)));
  const pieces = Math.min(mostPieces, Math.ceil(capacity / minPieceKeys));
  const partial = encoder.empty("f32", [N, pieces, rows, softmaxSize + R]);
  const dtype = TILED_DTYPES.find((name) => name === qPe.dtype && name === latentCache.dtype);
  const { device } = encoder;
  // A CPU has none of these.
  const { leastQueries = Number.POSITIVE_INFINITY } = constantsOf(mlaTilesKernel, device) as Partial<typeof TILES>;
  const fits = rows >= leastQueries && R <= TILES.mostRank && rope <= TILES.mostRope;
  const tiled = dtype && fits && device.library(mlaLibrary).has(mlaTilesKernel.name, dtype);
  const dispatch = {
    op,
    buffers: { ...given, treeMask, partial },
    params: {
      batch: N,
      tokens: L,
      heads: H,
      rank: R,
      rope,
      capacity,
      latentStride: R,
      ropeStride: rope,
      sequenceStride: capacity,
      scale: softmaxScale,
      causal: causal ? 1 : 0,
      mostPieces,
      pieces,
    },
    sizes: { batch: N, pieces, rows, rank: R, rope, tiles: hasTiles(encoder.device, qPe.dtype, latentCache.dtype) },
  };
  if (tiled) encoder.dispatch(mlaTilesKernel, { ...dispatch, variant: dtype });
  else encoder.dispatch(mlaPiecesKernel, { ...dispatch, variant: `${qPe.dtype}_${latentCache.dtype}` });
  encoder.dispatch(mlaMergeKernel, {
    op,
    variant: "f32",
    buffers: { partial, lengths, vc, lse },
    params: { rows, rank: R, capacity, mostPieces, pieces },
    sizes: { rows, batch: N, rank: R },
  });
}

/**
 * Attention over a cache of latents that all heads share, for folded queries:
 * `vc[i, h] = Σ_t softmax_t(softmaxScale · (queries[i, h] · c_t + qPe[i, h] · p_t)) · c_t` over the rows t that token i sees.
 *
 * - `queries` [N, L, H, R] f32, as `mlaQPrime` gives them; `qPe` [N, L, H, rope] f32, f16 or bf16, rotated.
 * - `latentCache` [N, capacity, R] and `kPeCache` [N, capacity, rope] f32, f16 or bf16, whatever qPe has, of one dtype.
 * - `lengths` i32 [N]: rows valid in each sequence's cache, those of the L new tokens included.
 * - `causal` true (default): token i sees t < lengths[n] − L + i + 1; false: t < lengths[n]. With `treeMask` u32
 *   [L, ⌈L / 32⌉], token i sees all rows before the new ones, and new row j where bit j of its mask is set.
 * - `vc` [N, L, H, R] f32; `lse` [N, L, H] f32, if asked for: the logarithm of the sum of exp(score). Where a token sees
 *   nothing they are 0 and −∞. Rows that a token does not see never enter its arithmetic, whatever they hold.
 *
 * Scores, softmax and sums in f32. Queries and weights are rounded before their products to bf16, where the processor has
 * products of bf16 and qPe and the caches are bf16; on a GPU to the dtype of qPe and the caches, where that is one of 16 bits
 * and there are many query rows. The cache is cut into pieces, whose borders depend on the sequence's
 * length, L and H only; each row of it is read once for a block of heads and tokens. Errors: `InvalidArgument` for shapes,
 * dtypes, options and overlap; lengths outside 0 … capacity, or below L when causal or with a mask, fail the submission.
 * DeepSeek-AI, "DeepSeek-V2", 2024; online softmax: Milakov and Gimelshein, 2018.
 */
export const mlaAttention: MlaAttention = defineOp({
  name: "mlaAttention",
  summary: "softmax(softmaxScale · (queries · c + qPe · p)) · c over the visible rows of the latent cache",
  inputs: {
    queries: { dtype: ["f32"], shape: "N L H R", doc: "queries folded into the space of latents" },
    qPe: { dtype: FLOATS, shape: "N L H rope", doc: "rotated queries" },
    latentCache: { dtype: FLOATS, shape: "N capacity R", doc: "cache of latents" },
    kPeCache: { dtype: ["=latentCache"], shape: "N capacity rope", doc: "cache of rotated keys" },
    lengths: { dtype: ["i32"], shape: "N", doc: "valid rows of each sequence's cache, the new ones included" },
    treeMask: {
      dtype: ["u32"],
      shape: {
        text: "L, ⌈L / 32⌉",
        of: ({ dims: { L = 1 } }) => [L, Math.ceil(L / 32)],
      },
      optional: true,
      doc: "bit j of row i: new token i sees new token j; in place of `causal`",
    },
  },
  outputs: {
    vc: { dtype: ["f32"], shape: "N L H R", doc: "weighted sums of latents" },
    lse: { dtype: ["f32"], shape: "N L H", optional: true, doc: "logarithms of the softmax's denominators" },
  },
  params: {
    softmaxScale: { kind: "number", above: 0, doc: "multiplies the scores; `yarnRotary` gives it" },
    causal: { kind: "boolean", default: true, doc: "the last token sees all rows, each earlier one a row less" },
  },
  relations({ dims, fail }) {
    const { L = 1, capacity = L } = dims;
    if (L > capacity) fail("queries", `have at most the cache's ${capacity} rows`, L);
  },
  encode({ encoder, op, inputs, outputs: { vc, lse }, options: { softmaxScale, causal } }) {
    encodeAttention({ encoder, op, ...inputs, vc, lse, softmaxScale, causal });
  },
}) as MlaAttention;
