// Attention in which each head has its own keys and values: those that kv_b makes of the latents, block by block.
import {
  type CommandEncoder,
  DTYPES,
  defineKernel,
  FLOATS,
  type FloatDtype,
  type Tensor,
  tileStride,
} from "@mlxts/core";
import { encodeDecompression } from "./head_matmul.ts";
import type { HeadMatrix } from "./head_weights.ts";
import { mlaLibrary } from "./library.ts";
import { hasTiles } from "./tiles.ts";

/** Keys that meet the queries at a time on a CPU, where its blocks of rows end. */
const BLOCK_KEYS = 64;
const PANEL = { panelRows: 6, panelColumns: 64 };
/** The same on a CPU with tiles of bf16, and tokens that meet the keys at a time. */
const CPU_TILE = { tileKeys: 256, tileQueries: 32 };
/**
 * On a GPU a threadgroup has `tileRows` tokens of a head and `tileColumns` columns of their outputs. Keys and values go
 * through its memory by tiles of `tileKeys` rows of `tileRowBytes`, each followed by padding; rotated keys by half as wide ones.
 */
const TILE = { threads: 256, tileRows: 128, tileKeys: 32, tileRowBytes: 256 };
/**
 * A row of `running` has, for each `tileColumns` columns of the values, the numbers of its softmax (on a GPU those of each of
 * the four lanes that share the row), then the sums. On a CPU the sums are not parted.
 */
const RUNNING = { softmaxSize: 8, tileColumns: 128 };

interface Sizes {
  batch: number;
  tokens: number;
  blockHeads: number;
  nope: number;
  rope: number;
  v: number;
  /** Whether a CPU multiplies them by tiles of bf16. */
  tiles: boolean;
}

/** Elements of a row of a CPU's scratch, where rows are padded to whole panels. */
const padded = (columns: number) => Math.ceil(columns / PANEL.panelColumns) * PANEL.panelColumns;
/** Tokens of a CPU's threadgroup: enough to repay packing, few enough for the cache. Bits of panels depend on it: on `tokens` alone. */
function tokensOnCpu({ tokens, tiles }: Sizes): number {
  const [most, unit] = tiles ? [TILE_TOKENS, CPU_TILE.tileQueries] : [258, PANEL.panelRows];
  return Math.ceil(Math.ceil(tokens / Math.ceil(tokens / most)) / unit) * unit;
}
const TILE_TOKENS = 512;

/**
 * Tokens of `blockHeads` heads, from `firstHead` on, against the keys and values of `rows` rows of the cache, from `firstRow`
 * on. Where a token sees rows behind them, its softmax and sums wait in `running` for the next block.
 */
export const headAttentionKernel = defineKernel({
  library: mlaLibrary,
  name: "head_attention",
  variants: FLOATS.flatMap((x) => FLOATS.map((cache) => `${x}_${cache}`)),
  buffers: {
    q: "read",
    qPe: "read",
    keys: "read",
    values: "read",
    kPeCache: "read",
    lengths: "read",
    running: "readWrite?",
    out: "write",
  },
  // Strides: elements from a row of the cache to the next, and rows from a sequence to the next.
  params: {
    batch: "u32",
    tokens: "u32",
    heads: "u32",
    firstHead: "u32",
    blockHeads: "u32",
    nope: "u32",
    rope: "u32",
    v: "u32",
    qDim: "u32",
    firstRow: "u32",
    rows: "u32",
    runningStride: "u32",
    capacity: "u32",
    ropeStride: "u32",
    sequenceStride: "u32",
    scale: "f32",
    causal: "u32",
    outDtype: "u32",
  },
  faults: {
    length: ([length, sequence], { capacity }) =>
      `\`lengths\` must be from 0 to ${capacity}, got ${length | 0} at sequence ${sequence}`,
    newRows: ([length, sequence], { tokens }) =>
      `\`lengths\` must be at least the ${tokens} new rows, got ${length | 0} at sequence ${sequence}`,
  },
  constants: {
    shared: RUNNING,
    cpu: { ...PANEL, blockKeys: BLOCK_KEYS, ...CPU_TILE },
    gpu: TILE,
  },
  launchParams: { cpu: { groupRows: "u32", keyWidth: "u32", width: "u32" } },
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
      length: "u32", // whether all lengths are right, and the sequence's own
      tiles: "u8", // one is multiplied while the next is on its way
    },
  },
  launch: {
    cpu: (sizes: Sizes) => {
      const { batch, tokens, blockHeads, nope, rope, v, tiles } = sizes;
      const groupRows = tokensOnCpu(sizes);
      // Both parts of a key are padded on their own: to a pair of bf16, or to a tile.
      const [keyWidth, width] = [tiles ? padded(nope) + padded(rope) : padded(nope + rope + 1), padded(v)];
      const [blockKeys, blockRows] = tiles ? [CPU_TILE.tileKeys, CPU_TILE.tileQueries] : [BLOCK_KEYS, PANEL.panelRows];
      return {
        threadgroups: [Math.ceil(tokens / groupRows), blockHeads, batch],
        params: { groupRows, keyWidth, width },
        scratch: {
          queries: [groupRows, keyWidth],
          sums: [groupRows, width],
          maxima: [groupRows],
          denominators: [groupRows],
          keys: [blockKeys, keyWidth],
          values: [blockKeys, width],
          scores: [blockRows, blockKeys],
          weights: [blockRows, blockKeys],
        },
      };
    },
    gpu: ({ batch, tokens, blockHeads, v }) => ({
      threadgroups: [Math.ceil(tokens / TILE.tileRows) * Math.ceil(v / RUNNING.tileColumns), blockHeads, batch],
      threadsPerThreadgroup: [TILE.threads, 1, 1],
      scratch: { length: [2], tiles: [2, TILE.tileKeys, tileStride("u8", TILE.tileRowBytes)] },
    }),
  },
});

/** Rows for which as many heads as fit are taken together; beyond, fewer rows of as many heads. */
const ROWS_TOGETHER = 4096;

/**
 * How many heads and rows of the cache are decompressed at a time: `room` rows of all heads together, if it can be, and
 * whole blocks of `keys`.
 */
function decompressedBlock(room: number, heads: number, capacity: number, keys: number) {
  const blockHeads = Math.max(1, Math.min(heads, Math.floor(room / Math.min(capacity, ROWS_TOGETHER))));
  const rows = Math.max(1, Math.floor(room / blockHeads / keys)) * keys;
  return { blockHeads, rows: Math.min(rows, capacity) };
}

interface HeadAttention extends Record<"q" | "qPe" | "latentCache" | "kPeCache" | "lengths" | "out", Tensor> {
  encoder: CommandEncoder;
  op: string;
  /** What makes keys of latents, and values. */
  keyMatrix: HeadMatrix;
  valueMatrix: HeadMatrix;
  softmaxScale: number;
  causal: boolean;
  /** Of decompressed keys and values. */
  scratchBytes: number;
}

/** What all blocks have in common: sizes, room for a block's keys and values, and for what waits between blocks. */
function planOf(given: HeadAttention) {
  const { encoder, q, qPe, latentCache, keyMatrix, valueMatrix, scratchBytes } = given;
  const [batch, tokens, heads, qDim] = q.shape as [number, number, number, number];
  const [capacity, rope] = [latentCache.shape[1] as number, qPe.lastDim];
  const [nope, v] = [keyMatrix.headDim, valueMatrix.headDim];
  const dtype = q.dtype === latentCache.dtype ? (q.dtype as FloatDtype) : "f32";
  const room = Math.floor(scratchBytes / (batch * (nope + v) * DTYPES[dtype].bytesPerElement));
  const tiles = hasTiles(encoder.device, dtype, latentCache.dtype);
  const { blockHeads, rows } = decompressedBlock(room, heads, capacity, tiles ? CPU_TILE.tileKeys : BLOCK_KEYS);
  const scratch = (columns: number) => encoder.empty(dtype, [batch * rows * blockHeads * columns]);
  const runningStride = Math.ceil(v / RUNNING.tileColumns) * (RUNNING.softmaxSize + RUNNING.tileColumns);
  return {
    sizes: { batch, tokens, heads, nope, rope, v, qDim, capacity, runningStride },
    tiles,
    blockHeads,
    rows,
    keys: scratch(nope),
    values: scratch(v),
    running: rows < capacity ? encoder.empty("f32", [batch, tokens, blockHeads, runningStride]) : undefined,
  };
}

/** Keys and values of a block's heads and rows, and the attention of all tokens over them. */
function encodeBlock(given: HeadAttention, plan: ReturnType<typeof planOf>, firstHead: number, firstRow: number): void {
  const { encoder, op, keyMatrix, valueMatrix, softmaxScale, causal, q, qPe, latentCache, kPeCache, lengths, out } =
    given;
  const { sizes, running } = plan;
  const { batch, heads, nope, rope, v, capacity } = sizes;
  const [rows, blockHeads] = [Math.min(plan.rows, capacity - firstRow), Math.min(plan.blockHeads, heads - firstHead)];
  const part = (tensor: Tensor, columns: number) => tensor.view(0, [batch, rows, blockHeads, columns]);
  const [keys, values] = [part(plan.keys, nope), part(plan.values, v)];
  const cached = { encoder, op, latentCache, lengths, firstToken: firstRow, firstHead };
  encodeDecompression({ ...cached, matrix: keyMatrix, out: keys });
  encodeDecompression({ ...cached, matrix: valueMatrix, out: values });
  encoder.dispatch(headAttentionKernel, {
    op,
    variant: `${q.dtype}_${latentCache.dtype}`,
    buffers: { q, qPe, keys, values, kPeCache, lengths, running, out },
    params: {
      ...sizes,
      firstHead,
      blockHeads,
      firstRow,
      rows,
      ropeStride: rope,
      sequenceStride: capacity,
      scale: softmaxScale,
      causal: causal ? 1 : 0,
      outDtype: FLOATS.indexOf(out.dtype as FloatDtype),
    },
    sizes: { ...sizes, blockHeads, tiles: plan.tiles },
  });
}

export function encodeHeadAttention(given: HeadAttention): void {
  const plan = planOf(given);
  const { heads, capacity } = plan.sizes;
  for (let firstHead = 0; firstHead < heads; firstHead += plan.blockHeads)
    for (let firstRow = 0; firstRow < capacity; firstRow += plan.rows) encodeBlock(given, plan, firstHead, firstRow);
}
