// Products of a matrix of each head with vectors of its tokens: what mlaQPrime and mlaOut have in common.
import { type CommandEncoder, DTYPES, defineKernel, FLOATS, type FloatDtype, Tensor, tileStride } from "@mlxts/core";
import type { HeadMatrix } from "./head_weights.ts";
import { mlaLibrary } from "./library.ts";
import { SIMD } from "./threads.ts";
import { hasTiles } from "./tiles.ts";

/** Dtypes of a dense weight, and of the scales of a quantized one with the bits of its codes. */
const WEIGHTS = FLOATS.flatMap((dtype) => [dtype, `${dtype}b4`, `${dtype}b8`] as const);

const buffers = { x: "read", weight: "read", scales: "read?", biases: "read?", out: "write" } as const;
/**
 * x [tokens, heads, xDim], of which k columns are multiplied; weight [heads · headRows, cols], of which a head has rows
 * from `firstRow` on; out [tokens, heads, n].
 */
const params = {
  tokens: "u32",
  heads: "u32",
  n: "u32",
  k: "u32",
  xDim: "u32",
  cols: "u32",
  headRows: "u32",
  firstRow: "u32",
  groupSize: "u32",
} as const;

const PANEL = { panelRows: 6, groupColumns: 64, depth: 128 };
/** On a CPU with tiles of bf16, `tileRows` rows meet a threadgroup's columns at a time. */
const CPU_TILE = { tileRows: 32, tileColumns: 128 };
const TILE = { threads: 128, rows: 64, columns: 64, depthBytes: 64 };

interface Sizes {
  batch: number;
  tokens: number;
  heads: number;
  n: number;
  k: number;
  transpose: boolean;
  quantized: boolean;
  /** Whether a CPU multiplies many tokens by tiles of bf16. */
  tiles: boolean;
  /** Of an element of x and of the weight in a GPU's threadgroup memory. */
  elementBytes: number;
}

/** Rows of a CPU's threadgroup: as many as fit the scratch, fewer when that leaves too few threadgroups for many threads. */
function rowsOnCpu({ batch, tokens, heads, n, tiles }: Sizes): number {
  const [most, least, groups, unit, columns] = tiles
    ? [512, 64, 16, CPU_TILE.tileRows, CPU_TILE.tileColumns]
    : [516, 48, 32, PANEL.panelRows, PANEL.groupColumns];
  const others = batch * heads * Math.ceil(n / columns);
  const blocks = Math.max(Math.ceil(tokens / most), Math.min(Math.ceil(tokens / least), Math.ceil(groups / others)));
  return Math.ceil(Math.ceil(tokens / blocks) / unit) * unit;
}

/** Elements of a row that is padded to whole tiles. */
const paddedRow = (k: number) => Math.ceil(k / 32) * 32;

/**
 * Many tokens: register tiles. The weight is contracted along its columns if `transpose`, else along its rows. x is
 * [batch, xRows, xHeads, xDim], of which each sequence's tokens have the rows from `firstToken` on; xHeads is 1 where all
 * heads share x. With `lengths`, rows of x and out from a sequence's length on are left alone.
 */
export const headMatmulKernel = defineKernel({
  library: mlaLibrary,
  name: "head_matmul",
  variants: WEIGHTS.flatMap((weight) => [
    ...FLOATS.map((x) => `${x}_${weight}_f32`),
    ...(["f16", "bf16"] as const).flatMap((out) => [`f32_${weight}_${out}`, `${out}_${weight}_${out}`]),
  ]),
  buffers: { x: "read", weight: "read", scales: "read?", biases: "read?", lengths: "read?", out: "write" },
  params: { batch: "u32", ...params, xHeads: "u32", xRows: "u32", firstToken: "u32", transpose: "u32" },
  launchParams: { cpu: { groupRows: "u32" } },
  constants: { cpu: { ...PANEL, ...CPU_TILE }, gpu: TILE },
  scratch: {
    cpu: { panels: "f32", decoded: "f32", converted: "f32", sums: "f32" },
    gpu: {
      rows: "u32", // tokens of the threadgroup
      x: "u8", // two tiles, as of the weight
      weight: "u8",
    },
  },
  launch: {
    cpu: (sizes: Sizes) => {
      const { batch, tokens, heads, n, k, quantized, tiles } = sizes;
      const groupRows = rowsOnCpu(sizes);
      const { tileRows, tileColumns } = CPU_TILE;
      const columns = tiles ? tileColumns : PANEL.groupColumns;
      return {
        threadgroups: [Math.ceil(n / columns), Math.ceil(tokens / groupRows), heads * batch],
        params: { groupRows },
        scratch: tiles
          ? {
              // Pairs of bf16.
              panels: [tileColumns, paddedRow(k) / 2],
              decoded: [quantized ? Math.max(16 * paddedRow(k), 32 * tileColumns) / 2 : 1],
              converted: [tileRows, paddedRow(k) / 2],
              sums: [tileRows, tileColumns],
            }
          : {
              panels: [PANEL.groupColumns, PANEL.depth],
              decoded: [quantized ? PANEL.groupColumns : 1, PANEL.depth],
              converted: [PANEL.panelRows, PANEL.depth],
              sums: [groupRows, PANEL.groupColumns],
            },
      };
    },
    gpu: ({ batch, tokens, heads, n, transpose, elementBytes }) => {
      const rowBytes = tileStride("u8", TILE.depthBytes);
      const depth = TILE.depthBytes / elementBytes;
      return {
        threadgroups: [Math.ceil(n / TILE.columns), Math.ceil(tokens / TILE.rows), heads * batch],
        threadsPerThreadgroup: [TILE.threads, 1, 1],
        scratch: {
          rows: [2],
          x: [2, TILE.rows, rowBytes],
          weight: transpose ? [2, TILE.columns, rowBytes] : [2, depth, tileStride("u8", TILE.columns * elementBytes)],
        },
      };
    },
  },
});

/**
 * Up to this many tokens of a sequence are few, however many sequences there are: its bits must not depend on its neighbors.
 * A GPU's threadgroup has as many tokens of all sequences.
 */
const FEW = { tokens: 8 };

/** Few tokens, contracted along the rows: each row of the weight is read once and added to all of a head's sums. */
export const headRowsKernel = defineKernel({
  library: mlaLibrary,
  name: "head_rows",
  variants: FLOATS.flatMap((x) => WEIGHTS.map((weight) => `${x}_${weight}`)),
  buffers,
  params,
  // Columns of a threadgroup. On a GPU its simdgroups share the rows.
  constants: { shared: { ...FEW, groupColumns: 128 }, gpu: { simdgroups: 8 } },
  scratch: { cpu: { decoded: "f32" }, gpu: { partial: "f32" } },
  launch: {
    cpu: ({ heads, n, k, quantized }: Sizes, { constants: { groupColumns } }) => ({
      threadgroups: [Math.ceil(n / groupColumns), heads, 1],
      scratch: { decoded: [quantized ? k : 1, groupColumns] },
    }),
    gpu: ({ tokens, heads, n }, { constants: { groupColumns, simdgroups } }) => ({
      threadgroups: [Math.ceil(n / groupColumns), heads, Math.ceil(tokens / FEW.tokens)],
      threadsPerThreadgroup: [SIMD * simdgroups, 1, 1],
      scratch: { partial: [simdgroups, groupColumns] },
    }),
  },
});

/** Few tokens, contracted along the columns: dot products, each row of the weight read once. */
export const headDotsKernel = defineKernel({
  library: mlaLibrary,
  name: "head_dots",
  variants: WEIGHTS.flatMap((weight) => [
    ...FLOATS.map((x) => `${x}_${weight}_f32`),
    ...["f16", "bf16"].map((out) => `f32_${weight}_${out}`),
  ]),
  buffers,
  params,
  launchParams: { cpu: { width: "u32" } },
  // Rows of the weight in a threadgroup, of which some are read at a time, on a GPU by a simdgroup; and tokens.
  constants: {
    shared: FEW,
    cpu: { groupRows: 32, rows: 4, groupTokens: 32 },
    gpu: { simdgroups: 4, simdgroupRows: 4 },
  },
  scratch: { cpu: { x: "f32", decoded: "f32" } },
  launch: {
    cpu: ({ tokens, heads, n, k, quantized }: Sizes, { constants: { groupRows, rows, groupTokens } }) => {
      // Whole vectors, two by two, of the widest; of codes as many as a vector of words has.
      const unit = quantized ? 128 : 32;
      const width = Math.ceil(k / unit) * unit;
      return {
        threadgroups: [Math.ceil(n / groupRows), heads, Math.ceil(tokens / groupTokens)],
        params: { width },
        scratch: { x: [Math.min(tokens, groupTokens), width], decoded: [quantized ? rows : 1, width] },
      };
    },
    gpu: ({ tokens, heads, n }, { constants: { simdgroups, simdgroupRows } }) => ({
      threadgroups: [Math.ceil(n / (simdgroups * simdgroupRows)), heads, Math.ceil(tokens / FEW.tokens)],
      threadsPerThreadgroup: [SIMD * simdgroups, 1, 1],
    }),
  },
});

/** The buffers of a matrix, and the word for it in the names of kernels. */
function weightOf({ given }: HeadMatrix) {
  if (given instanceof Tensor)
    return { name: given.dtype as FloatDtype, groupSize: 0, weight: given, scales: undefined, biases: undefined };
  const { weight, scales, biases, bits, groupSize } = given;
  return { name: `${scales.dtype}b${bits}`, groupSize, weight, scales, biases };
}

/** Of an element of a GPU's tiles of x and of a weight of this name. */
const elementBytesOf = ({ dtype }: Tensor, weight: string) => (dtype === weight ? DTYPES[dtype].bytesPerElement : 4);
/** Whether tiles of bf16 hold both: decoded weights are rounded to bf16 where the result is. */
const byTiles = ({ device }: CommandEncoder, x: Tensor, given: HeadMatrix["given"], out: Tensor) =>
  hasTiles(device, x.dtype, given instanceof Tensor ? given.dtype : out.dtype);

interface HeadProduct {
  encoder: CommandEncoder;
  op: string;
  /** [N, L, H, D], of which the first columns are multiplied. */
  x: Tensor;
  matrix: HeadMatrix;
  /** Whether x are latents, or so wide as the head's other dimension; the result is the other one. */
  from: "latents" | "heads";
  out: Tensor;
}

/** out[n, l, h] = the matrix of head h, or its transpose, times x[n, l, h]. */
export function encodeHeadProduct({ encoder, op, x, matrix, from, out }: HeadProduct): void {
  const [N, L, heads, xDim] = x.shape as [number, number, number, number];
  const { cols, headRows, firstRow, rank, headDim, latentsAlong } = matrix;
  const { name, groupSize, ...weight } = weightOf(matrix);
  const buffers = { x, ...weight, out };
  const tokens = N * L;
  const [k, n] = from === "latents" ? [rank, headDim] : [headDim, rank];
  const transpose = (from === "latents") === (latentsAlong === "columns");
  const elementBytes = elementBytesOf(x, name);
  const tiles = byTiles(encoder, x, matrix.given, out);
  const sizes = { batch: 1, tokens, heads, n, k, transpose, quantized: groupSize > 0, tiles, elementBytes };
  const params = { tokens, heads, n, k, xDim, cols, headRows, firstRow, groupSize };
  const variant = `${x.dtype}_${name}_${out.dtype}`;
  if (L > FEW.tokens)
    encoder.dispatch(headMatmulKernel, {
      op,
      variant,
      buffers: { ...buffers, lengths: undefined },
      params: { ...params, batch: 1, xHeads: heads, xRows: tokens, firstToken: 0, transpose: transpose ? 1 : 0 },
      sizes,
    });
  else if (transpose) encoder.dispatch(headDotsKernel, { op, variant, buffers, params, sizes });
  else encoder.dispatch(headRowsKernel, { op, variant: `${x.dtype}_${name}`, buffers, params, sizes });
}

interface Decompression {
  encoder: CommandEncoder;
  op: string;
  /** [N, capacity, R] */
  latentCache: Tensor;
  matrix: HeadMatrix;
  lengths: Tensor;
  /** [N, rows, heads, n] */
  out: Tensor;
  /** The first row of the cache, and the first head. */
  firstToken: number;
  firstHead: number;
}

/** Keys or values of heads: out[n, t, h] = the head's matrix times latentCache[n, firstToken + t], up to lengths[n]. */
export function encodeDecompression(given: Decompression): void {
  const { encoder, op, latentCache: x, matrix, lengths, out, firstToken, firstHead } = given;
  const { cols, headRows, rank, headDim: n, latentsAlong } = matrix;
  const { name, groupSize, ...weight } = weightOf(matrix);
  const [batch, xRows] = x.shape as [number, number, number];
  const [, tokens, heads] = out.shape as [number, number, number, number];
  const transpose = latentsAlong === "columns";
  const elementBytes = elementBytesOf(x, name);
  const tiles = byTiles(encoder, x, matrix.given, out);
  encoder.dispatch(headMatmulKernel, {
    op,
    variant: `${x.dtype}_${name}_${out.dtype}`,
    buffers: { x, ...weight, lengths, out },
    params: {
      batch,
      tokens,
      heads,
      n,
      k: rank,
      xDim: rank,
      cols,
      headRows,
      firstRow: matrix.firstRow + firstHead * headRows,
      groupSize,
      xHeads: 1,
      xRows,
      firstToken,
      transpose: transpose ? 1 : 0,
    },
    sizes: { batch, tokens, heads, n, k: rank, transpose, quantized: groupSize > 0, tiles, elementBytes },
  });
}
