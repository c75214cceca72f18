// Products of each head's rows of kv_b with vectors of its tokens: what mlaQPrime and mlaOut have in common.
import {
  type CommandEncoder,
  constantsOf,
  DTYPES,
  defineKernel,
  FLOATS,
  type FloatDtype,
  type Tensor,
  tileStride,
} from "@mlxts/core";
import { mlaLibrary } from "./library.ts";
import { SIMD } from "./threads.ts";

const buffers = { x: "read", weight: "read", out: "write" } as const;
/**
 * x [tokens, heads, xDim], of which k columns are multiplied; weight [heads · headRows, rank], of which a head has rows
 * from `firstRow` on; out [tokens, heads, n].
 */
const params = {
  tokens: "u32",
  heads: "u32",
  n: "u32",
  k: "u32",
  xDim: "u32",
  rank: "u32",
  headRows: "u32",
  firstRow: "u32",
} as const;

const PANEL = { panelRows: 6, groupColumns: 64, depth: 128 };
const TILE = { threads: 128, rows: 64, columns: 64, depthBytes: 64 };

interface Sizes {
  batch: number;
  tokens: number;
  heads: number;
  n: number;
  transpose: boolean;
  /** Of an element of x and of the weight in a GPU's threadgroup memory. */
  elementBytes: number;
}

/** Rows of a CPU's threadgroup: as many as fit the scratch, fewer when that leaves too few threadgroups for many threads. */
function rowsOnCpu({ tokens, heads, n }: Sizes): number {
  const others = heads * Math.ceil(n / PANEL.groupColumns);
  const blocks = Math.max(Math.ceil(tokens / 504), Math.min(Math.ceil(tokens / 48), Math.ceil(64 / others)));
  return Math.ceil(Math.ceil(tokens / blocks) / PANEL.panelRows) * PANEL.panelRows;
}

/**
 * Many tokens: register tiles. The weight is contracted along its columns if `transpose`, else along its rows. x is
 * [batch, xRows, xHeads, xDim], of which each sequence's tokens have the rows from `firstToken` on; xHeads is 1 where all
 * heads share x. With `lengths`, rows of x and out from a sequence's length on are left alone.
 */
export const headMatmulKernel = defineKernel({
  library: mlaLibrary,
  name: "head_matmul",
  variants: FLOATS.flatMap((weight) => [
    ...FLOATS.map((x) => `${x}_${weight}_f32`),
    ...(["f16", "bf16"] as const).flatMap((out) => [`f32_${weight}_${out}`, `${out}_${weight}_${out}`]),
  ]),
  buffers: { x: "read", weight: "read", lengths: "read?", out: "write" },
  params: { batch: "u32", ...params, xHeads: "u32", xRows: "u32", firstToken: "u32", transpose: "u32" },
  launchParams: { cpu: { groupRows: "u32" } },
  constants: { cpu: PANEL, gpu: TILE },
  scratch: {
    cpu: { panels: "f32", converted: "f32", sums: "f32" },
    gpu: {
      rows: "u32", // tokens of the threadgroup
      x: "u8", // two tiles, as of the weight
      weight: "u8",
    },
  },
  launch: {
    cpu: (sizes: Sizes) => {
      const groupRows = rowsOnCpu(sizes);
      return {
        threadgroups: [
          Math.ceil(sizes.n / PANEL.groupColumns),
          Math.ceil(sizes.tokens / groupRows),
          sizes.heads * sizes.batch,
        ],
        params: { groupRows },
        scratch: {
          panels: [PANEL.groupColumns, PANEL.depth],
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

/** Up to this many tokens are few. */
const FEW = { tokens: 8 };

/** Few tokens, contracted along the rows: each row of the weight is read once and added to all of a head's sums. */
export const headRowsKernel = defineKernel({
  library: mlaLibrary,
  name: "head_rows",
  variants: FLOATS.flatMap((x) => FLOATS.map((weight) => `${x}_${weight}`)),
  buffers,
  params,
  // Columns of a threadgroup. On a GPU its simdgroups share the rows.
  constants: { shared: { ...FEW, groupColumns: 128 }, gpu: { simdgroups: 8 } },
  scratch: { gpu: { partial: "f32" } },
  launch: {
    cpu: ({ heads, n }: Sizes, { constants: { groupColumns } }) => ({
      threadgroups: [Math.ceil(n / groupColumns), heads, 1],
    }),
    gpu: ({ heads, n }, { constants: { groupColumns, simdgroups } }) => ({
      threadgroups: [Math.ceil(n / groupColumns), heads, 1],
      threadsPerThreadgroup: [SIMD * simdgroups, 1, 1],
      scratch: { partial: [simdgroups, groupColumns] },
    }),
  },
});

/** Few tokens, contracted along the columns: dot products, each row of the weight read once. */
export const headDotsKernel = defineKernel({
  library: mlaLibrary,
  name: "head_dots",
  variants: FLOATS.flatMap((weight) => FLOATS.map((out) => `f32_${weight}_${out}`)),
  buffers,
  params,
  launchParams: { cpu: { width: "u32" } },
  // Rows of the weight in a threadgroup; a GPU's simdgroup has some of them.
  constants: { shared: FEW, cpu: { groupRows: 32 }, gpu: { simdgroups: 4, simdgroupRows: 4 } },
  scratch: { cpu: { x: "f32" } },
  launch: {
    cpu: ({ tokens, heads, n, k }: Sizes & { k: number }, { constants: { groupRows } }) => {
      // Whole vectors, two by two, of the widest.
      const width = Math.ceil(k / 32) * 32;
      return {
        threadgroups: [Math.ceil(n / groupRows), heads, 1],
        params: { width },
        scratch: { x: [tokens, width] },
      };
    },
    gpu: ({ heads, n }, { constants: { simdgroups, simdgroupRows } }) => ({
      threadgroups: [Math.ceil(n / (simdgroups * simdgroupRows)), heads, 1],
      threadsPerThreadgroup: [SIMD * simdgroups, 1, 1],
    }),
  },
});

interface HeadProduct {
  encoder: CommandEncoder;
  op: string;
  /** [N, L, H, D] */
  x: Tensor;
  weight: Tensor;
  out: Tensor;
  /** Columns of x that are multiplied. */
  k: number;
  /** The first of a head's rows of the weight. */
  firstRow: number;
  transpose: boolean;
}

const named = (...tensors: Tensor[]) => tensors.map(({ dtype }) => dtype as FloatDtype).join("_");
const elementBytesOf = (x: Tensor, weight: Tensor) => (x.dtype === weight.dtype ? DTYPES[x.dtype].bytesPerElement : 4);

export function encodeHeadProduct({ encoder, op, x, weight, out, k, firstRow, transpose }: HeadProduct): void {
  const [N, L, heads, xDim] = x.shape as [number, number, number, number];
  const [rows, rank] = weight.shape as [number, number];
  const [tokens, n] = [N * L, out.lastDim];
  const given = { x, weight, out };
  const sizes = { batch: 1, tokens, heads, n, k, transpose, elementBytes: elementBytesOf(x, weight) };
  const common = { tokens, heads, n, k, xDim, rank, headRows: rows / heads, firstRow };
  const few = tokens <= constantsOf(headRowsKernel, encoder.device).tokens;
  if (!few)
    encoder.dispatch(headMatmulKernel, {
      op,
      variant: named(x, weight, out),
      buffers: { ...given, lengths: undefined },
      params: { ...common, batch: 1, xHeads: heads, xRows: tokens, firstToken: 0, transpose: transpose ? 1 : 0 },
      sizes,
    });
  else if (transpose)
    encoder.dispatch(headDotsKernel, { op, variant: named(x, weight, out), buffers: given, params: common, sizes });
  else encoder.dispatch(headRowsKernel, { op, variant: named(x, weight), buffers: given, params: common, sizes });
}

interface Decompression {
  encoder: CommandEncoder;
  op: string;
  /** [N, capacity, R] */
  latentCache: Tensor;
  weight: Tensor;
  lengths: Tensor;
  /** [N, rows, heads, n] */
  out: Tensor;
  /** The first row of the cache. */
  firstToken: number;
  /** Rows of the weight from a head to the next, and the first one that is multiplied. */
  headRows: number;
  firstRow: number;
}

/** Keys or values of heads: out[n, t, h] = rows of the head's weight · latentCache[n, firstToken + t], up to lengths[n]. */
export function encodeDecompression({ encoder, op, firstToken, headRows, firstRow, ...buffers }: Decompression): void {
  const { latentCache: x, weight, lengths, out } = buffers;
  const [batch, xRows, rank] = x.shape as [number, number, number];
  const [, tokens, heads, n] = out.shape as [number, number, number, number];
  encoder.dispatch(headMatmulKernel, {
    op,
    variant: named(x, weight, out),
    buffers: { x, weight, lengths, out },
    params: {
      batch,
      tokens,
      heads,
      n,
      k: rank,
      xDim: rank,
      rank,
      headRows,
      firstRow,
      xHeads: 1,
      xRows,
      firstToken,
      transpose: 1,
    },
    sizes: { batch, tokens, heads, n, transpose: true, elementBytes: elementBytesOf(x, weight) },
  });
}

/** Rows of the weight that each head has; refuses others than whole numbers of at least `least`. */
export function rowsOfHead(
  { Hrows = 0, H = 1 }: Readonly<Record<string, number>>,
  [option, used]: readonly [name: string, value: number],
  fail: (argument: string, rule: string, value: unknown) => never,
): number {
  if (Hrows % H !== 0) fail("weight", `have the same number of rows for each of the ${H} heads`, Hrows);
  const rows = Hrows / H;
  if (used >= rows) fail(option, `be less than the ${rows} rows that the weight has for a head`, used);
  return rows;
}
