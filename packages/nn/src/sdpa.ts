import { constantsOf, defineKernel, defineOp, FLOATS, tileStride } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import { hasTiles } from "./product_launch.ts";
import type { Sdpa } from "./signatures.ts";
import { rowThreads, SIMD } from "./threads.ts";

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

/** Of both kernels that check `lengths`. */
const faults = {
  length: ([length, sequence]: readonly number[], { capacity }: { capacity: number }) =>
    `\`lengths\` must be from 0 to ${capacity}, got ${(length as number) | 0} at sequence ${sequence}`,
  newRows: ([length, sequence]: readonly number[], { tokens }: { tokens: number }) =>
    `\`lengths\` must be at least the ${tokens} new rows, got ${(length as number) | 0} at sequence ${sequence}`,
};

/** Up to this many query rows to a key/value head, the cache is cut into pieces. */
const PIECES_ROWS = 64;
/** Keys that meet the queries at a time. */
const BLOCK_KEYS = 64;

/**
 * On a CPU `panelRows` rows are multiplied by a panel of packed keys or values at a time; whole panels of any
 * instruction-set level fill `panelColumns`.
 */
const PANEL = { panelRows: 6, panelColumns: 64 };
/**
 * On a GPU a threadgroup has `tileRows` query rows and `tileColumns` columns of their outputs. Keys and values go through
 * its memory by tiles of `tileKeys` rows of `tileRowBytes`, each followed by padding.
 */
const TILE = {
  ...{ threads: 256, tileRows: 128, tileColumns: 128, tileKeys: 32, tileRowBytes: 256 },
  ...{ pairThreads: 0, pairKeys: 0, pairTiles: 0, fullKeys: 0, warpgroupThreads: 0 },
};
/**
 * NVIDIA's GPUs have room for more keys. Where all is of one dtype of 16 bits, `pairThreads` have the rows of a threadgroup,
 * whose queries lie in its memory beside `pairTiles` of `pairKeys` rows. Where rows have `tileColumns` and there is room for two threadgroups,
 * each has four tiles of `fullKeys` rows.
 */
const CUDA_TILE = { tileKeys: 64, pairThreads: 128, pairKeys: 32, pairTiles: 4, fullKeys: 64, warpgroupThreads: 384 };
/** Where warpgroups multiply, for GPUs of compute capability 9.0: rows of bf16 that are `dim` long, tiles of `keys` rows. */
const WARPGROUPS = { variant: "bf16_bf16_warpgroups", dim: 128, keys: 128 };

/** On a CPU with tiles of bf16, `tileQueries` rows meet `tileKeys` keys at a time. */
const CPU_TILE = { tileKeys: 256, tileQueries: 32 };

interface Sizes {
  batch: number;
  kvHeads: number;
  rows: number;
  dim: number;
}
interface TiledSizes extends Sizes {
  /** Whether a CPU multiplies them by tiles of bf16. */
  tiles: boolean;
  /** Whether queries and cache have one dtype of 16 bits. */
  pairs: boolean;
  /** Whether warpgroups multiply. */
  warpgroups: boolean;
}

/** Query rows of a CPU's threadgroup: enough to repay packing, few enough to occupy many threads. */
function rowsOnCpu({ batch, kvHeads, rows, tiles }: TiledSizes): number {
  const [most, least, groups, unit] = tiles ? [512, 64, 16, CPU_TILE.tileQueries] : [252, 48, 32, PANEL.panelRows];
  const blocks = Math.max(
    Math.ceil(rows / most),
    Math.min(Math.ceil(rows / least), Math.ceil(groups / (batch * kvHeads))),
  );
  return Math.ceil(Math.ceil(rows / blocks) / unit) * unit;
}

/** Elements of a row of a CPU's scratch, where rows of D are padded to whole panels. */
const padded = (dim: number) => Math.ceil(dim / PANEL.panelColumns) * PANEL.panelColumns;

/** Room for `length` of the scratch below. */
const LENGTH_BYTES = 64;

const queryTiles = (
  { batch, kvHeads, rows, dim }: Sizes,
  { threads, tileRows, tileColumns, tileKeys, tileRowBytes }: typeof TILE,
) => ({
  threadgroups: [Math.ceil(rows / tileRows) * Math.ceil(dim / tileColumns), kvHeads, batch] as const,
  threadsPerThreadgroup: [threads, 1, 1] as const,
  scratch: { length: [2], tiles: [2, tileKeys, tileStride("u8", tileRowBytes)], queries: [0] },
});

/** Many queries: a threadgroup takes some of the T · H / Hkv query rows that share a key/value head. */
export const sdpaKernel = defineKernel({
  library: nnLibrary,
  name: "sdpa",
  variants: [...variants, WARPGROUPS.variant],
  sm90a: [WARPGROUPS.variant],
  buffers: { q: "read", kCache: "read", vCache: "read", lengths: "read", out: "write" },
  early: ["lengths"],
  params,
  faults,
  constants: { cpu: { ...PANEL, ...CPU_TILE }, gpu: TILE, cuda: CUDA_TILE },
  launchParams: { cpu: { groupRows: "u32", width: "u32", tiles: "u32" } },
  scratch: {
    cpu: {
      queries: "f32",
      sums: "f32",
      maxima: "f32",
      denominators: "f32",
      keys: "f32", // packed
      values: "f32", // packed
      scores: "f32",
      weights: "u16", // scores rounded to bf16
    },
    gpu: {
      tiles: "u8", // one is multiplied while the next is on its way; warpgroups want them at the beginning
      queries: "u8", // where they do not stay in registers
      length: "u32", // whether all lengths are right, and the sequence's own
    },
  },
  launch: {
    cpu: (sizes: TiledSizes) => {
      const groupRows = rowsOnCpu(sizes);
      const width = padded(sizes.dim);
      const [blockKeys, blockRows] = sizes.tiles
        ? [CPU_TILE.tileKeys, CPU_TILE.tileQueries]
        : [BLOCK_KEYS, PANEL.panelRows];
      return {
        threadgroups: [Math.ceil(sizes.rows / groupRows), sizes.kvHeads, sizes.batch],
        params: { groupRows, width, tiles: sizes.tiles ? 1 : 0 },
        scratch: {
          queries: [groupRows, width],
          sums: [groupRows, width],
          maxima: [groupRows],
          denominators: [groupRows],
          keys: [blockKeys, width],
          values: [blockKeys, width],
          scores: [blockRows, blockKeys],
          weights: [blockRows, blockKeys],
        },
      };
    },
    gpu: (sizes, { constants }) => queryTiles(sizes, constants),
    cuda: (sizes, { limits, constants }) => {
      const { tileRows, tileColumns, tileRowBytes, pairThreads, pairKeys, pairTiles } = constants;
      const queries = tileRows * tileStride("u8", Math.ceil(sizes.dim / tileColumns) * tileRowBytes);
      const tiles = pairTiles * pairKeys * tileStride("u8", tileRowBytes);
      const launch = queryTiles(sizes, constants);
      if (sizes.warpgroups === true) {
        // Two tiles of keys, and of values.
        const scratch = { ...launch.scratch, tiles: [4, WARPGROUPS.keys, tileRowBytes] };
        return { ...launch, threadsPerThreadgroup: [constants.warpgroupThreads, 1, 1], scratch };
      }
      const full = 4 * constants.fullKeys * tileStride("u8", tileRowBytes);
      if (!sizes.pairs || queries + tiles + LENGTH_BYTES > limits.maxThreadgroupBytes) return launch;
      const whole = sizes.dim === tileColumns && 2 * (queries + full + LENGTH_BYTES) <= limits.maxThreadgroupBytes;
      const scratch = { length: [2], tiles: [whole ? full : tiles], queries: [queries] };
      return { ...launch, threadsPerThreadgroup: [pairThreads, 1, 1], scratch };
    },
  },
});

/**
 * On a GPU a piece meets `tileRows` query rows at a time, and `tileColumns` columns of them in a pass over its keys.
 * `scoreStride`: elements of a row of scores, those of a block and padding.
 */
const PIECES_TILE = { tileRows: 32, simdgroups: 8, tileColumns: 256, scoreStride: 68, productPadding: 0 };
/**
 * NVIDIA's GPUs have more and smaller pieces: nearly all of the time of a short cache is that of loads one after another.
 * Two more numbers with a row's softmax align its sums.
 */
const CUDA_PIECES = {
  ...{ tileRows: 8, scoreStride: 36, blockKeys: 32, minPieceKeys: 32, softmaxSize: 4 },
  // A multiprocessor has room for one threadgroup.
  leastPieces: 16,
  // Numbers that a row of sums in its memory is longer, where matrix units multiply.
  productPadding: 8,
};
/** Pieces of a long sequence that are wanted, of all heads of the cache; each head has `leastPieces` all the same. */
const PIECES_AT_ONCE = 128;

/** Columns of rows that they multiply by matrix units, where all is of 16 bits. */
const PRODUCT_DIMS: readonly number[] = [128, 256];

interface PiecesSizes extends Sizes {
  pieces: number;
  /** Whether queries and cache have one dtype of 16 bits. */
  pairs: boolean;
}

/** The rows of a piece may be several tiles. */
const piecesOnGpu = (
  { batch, kvHeads, pieces, rows }: PiecesSizes,
  { tileRows, simdgroups, scoreStride }: Pick<typeof PIECES_TILE, "tileRows" | "simdgroups" | "scoreStride">,
  sums: readonly number[],
) => {
  const used = Math.min(tileRows, Math.ceil(rows / 8) * 8);
  return {
    threadgroups: [pieces * Math.ceil(rows / tileRows), kvHeads, batch] as const,
    threadsPerThreadgroup: [SIMD * simdgroups, 1, 1] as const,
    scratch: { length: [2], scores0: [used, scoreStride], scores1: [used, scoreStride], factors: [used], sums },
  };
};

/** What the kernels of pieces are told besides. */
const PIECES_PARAMS = { mostPieces: "u32" } as const;

/** Few queries, first half: each piece of the cache against all queries of its head, unnormalized. */
export const sdpaPiecesKernel = defineKernel({
  library: nnLibrary,
  name: "sdpa_pieces",
  variants,
  buffers: { q: "read", kCache: "read", vCache: "read", lengths: "read", partial: "write" },
  early: ["lengths"],
  params: { ...params, ...PIECES_PARAMS },
  faults,
  constants: {
    // `softmaxSize`: numbers of a row's softmax in `partial`, before its sums: maximum and denominator.
    cpu: { blockKeys: BLOCK_KEYS, leastPieces: 16, maxPieces: 16, minPieceKeys: 128, softmaxSize: 2 },
    // Smaller and more, so that one sequence occupies a GPU.
    gpu: {
      ...{ ...PIECES_TILE, blockKeys: BLOCK_KEYS, minPieceKeys: BLOCK_KEYS, softmaxSize: 2 },
      ...{ leastPieces: 64, maxPieces: 64 },
    },
    cuda: CUDA_PIECES,
  },
  launchParams: { cpu: { width: "u32" } },
  scratch: {
    cpu: {
      queries: "f32",
      sums: "f32",
      maxima: "f32",
      denominators: "f32",
      scores: "f32",
      weights: "u16", // scores rounded to bf16
    },
    gpu: {
      length: "u32", // whether all lengths are right, and the sequence's own
      scores0: "f32", // of two blocks in turn: one is written while the other is still read
      scores1: "f32",
      factors: "f32", // what a row's earlier sums are multiplied by
      sums: "f32", // of each simdgroup's keys, where matrix units multiply
    },
  },
  launch: {
    cpu: ({ batch, kvHeads, pieces, rows, dim }: PiecesSizes) => {
      const width = padded(dim);
      return {
        threadgroups: [pieces, kvHeads, batch],
        params: { width },
        scratch: {
          queries: [rows, width],
          sums: [rows, width],
          maxima: [rows],
          denominators: [rows],
          scores: [rows, BLOCK_KEYS],
          weights: [rows, BLOCK_KEYS],
        },
      };
    },
    gpu: (sizes, { constants }) => piecesOnGpu(sizes, constants, [0]),
    cuda: (sizes, { constants }) => {
      const { simdgroups, tileRows, productPadding } = constants;
      const products = sizes.pairs && PRODUCT_DIMS.includes(sizes.dim);
      return piecesOnGpu(sizes, constants, products ? [simdgroups, tileRows, sizes.dim + productPadding] : [0]);
    },
  },
});

/** So many pieces a thread of an NVIDIA GPU waits for at once; others have the same columns of those that follow. */
const MERGED_AT_ONCE = 8;
/** Such threads of different columns at most. */
const MERGED_COLUMN_THREADS = 64;

/** Few queries, second half: the pieces of each query put together in order. */
export const sdpaMergeKernel = defineKernel({
  library: nnLibrary,
  name: "sdpa_merge",
  variants: FLOATS,
  buffers: { partial: "read", lengths: "read", out: "write" },
  early: ["lengths"],
  params: { tokens: "u32", heads: "u32", kvHeads: "u32", dim: "u32", capacity: "u32", pieces: "u32", ...PIECES_PARAMS },
  // What threads of the same columns have added up.
  scratch: { gpu: { sums: "f32" } },
  launch: {
    cpu: ({ batch, tokens, heads }: Record<"batch" | "tokens" | "heads" | "dim" | "pieces", number>) => ({
      threadgroups: [batch * tokens * heads, 1, 1],
    }),
    gpu: ({ batch, tokens, heads, dim }) => ({
      threadgroups: [heads, tokens, batch],
      threadsPerThreadgroup: [rowThreads(dim), 1, 1],
      // Metal wants some, though nobody uses it here.
      scratch: { sums: [4] },
    }),
    cuda: ({ batch, tokens, heads, dim, pieces }) => {
      const threads = rowThreads(dim, MERGED_COLUMN_THREADS);
      const together = Math.ceil(pieces / MERGED_AT_ONCE);
      return {
        threadgroups: [heads, tokens, batch],
        threadsPerThreadgroup: [threads, together, 1],
        scratch: { sums: [Math.max(1, together - 1), threads, 4] },
      };
    },
  },
});

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
 * Scores, softmax and sums in f32, one rounding at the store. Where q and the cache have one dtype, weights are rounded to
 * it: to bf16 where the processor has bf16 products, and on a GPU with many queries; of few queries with D 128 or 256,
 * NVIDIA's GPUs take a weight as two such numbers. Those products are exact but take subnormal bf16 numbers (below 1.2e-38)
 * as 0; GPUs may take all numbers below that as 0. Few queries: the cache is read once for all heads that share it (on a GPU
 * once for 32 query rows, on NVIDIA's for 8), in pieces whose borders depend on the sequence's length and on Hkv only.
 * Errors: `InvalidArgument` for shapes, dtypes, options and overlap; lengths outside 0 … capacity, or below T when causal,
 * fail the submission. Vaswani et al., "Attention Is All You Need", 2017; Ainslie et al., "GQA", 2023; online softmax:
 * Milakov and Gimelshein, 2018.
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
    const variant = `${q.dtype}_${kCache.dtype}`;
    const pairs = q.dtype === kCache.dtype && q.dtype !== "f32";
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
      const warpgroups =
        variant === "bf16_bf16" &&
        D === WARPGROUPS.dim &&
        [q, kCache, vCache, out].every(({ byteOffset }) => byteOffset % 16 === 0) &&
        encoder.device.library(nnLibrary).has(sdpaKernel.name, WARPGROUPS.variant);
      encoder.dispatch(sdpaKernel, {
        op,
        variant: warpgroups ? WARPGROUPS.variant : variant,
        buffers: { q, kCache, vCache, lengths, out },
        params: common,
        sizes: {
          batch: B,
          kvHeads: Hkv,
          rows,
          dim: D,
          tiles: hasTiles(encoder.device) && variant === "bf16_bf16",
          pairs,
          warpgroups,
        },
      });
      return;
    }
    const { leastPieces, maxPieces, minPieceKeys, softmaxSize } = constantsOf(sdpaPiecesKernel, encoder.device);
    const mostPieces = Math.min(maxPieces, Math.max(leastPieces, Math.floor(PIECES_AT_ONCE / Hkv)));
    const pieces = Math.min(mostPieces, Math.ceil(capacity / minPieceKeys));
    const partial = encoder.empty("f32", [B, Hkv, pieces, rows, softmaxSize + D]);
    encoder.dispatch(sdpaPiecesKernel, {
      op,
      variant,
      buffers: { q, kCache, vCache, lengths, partial },
      params: { ...common, mostPieces },
      sizes: { batch: B, kvHeads: Hkv, pieces, rows, dim: D, pairs },
    });
    encoder.dispatch(sdpaMergeKernel, {
      op,
      variant: q.dtype,
      buffers: { partial, lengths, out },
      params: { tokens: T, heads: H, kvHeads: Hkv, dim: D, capacity, pieces, mostPieces },
      sizes: { batch: B, tokens: T, heads: H, dim: D, pieces },
    });
  },
});
