import {
  DTYPES,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  OLD_SCRATCH,
  type OpContext,
  oldLaunch,
  type Tensor,
} from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Matmul } from "./signatures.ts";

const variants = FLOATS.flatMap((x) => FLOATS.flatMap((weight) => FLOATS.map((out) => `${x}_${weight}_${out}`)));
const buffers = { x: "read", weight: "read", bias: "read?", out: "write" } as const;

/** Columns of a threadgroup of the tiled kernel, and the piece of the contracted dimension that is packed at a time. */
const TILE_COLUMNS = 64;
const TILE_ROWS = 6;
const TILE_DEPTH = 128;

/** The same of a GPU: threads, the most rows and the columns of a threadgroup, the piece of the contracted dimension. */
const GPU = { gpuThreads: 128, gpuRows: 64, gpuColumns: 64, gpuDepth: 32 };

interface TiledSizes {
  m: number;
  n: number;
  groupRows: number;
  /** Of an element in a GPU's threadgroup memory. */
  elementBytes: number;
}

/** Products by register tiles; a threadgroup is `groupRows` × 64 outputs. */
export const matmulKernel = defineKernel({
  library: nnLibrary,
  name: "matmul",
  variants,
  buffers,
  params: { m: "u32", n: "u32", k: "u32", groupRows: "u32", transpose: "u32", biasF32: "u32" },
  constants: { shared: GPU },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ m, n, groupRows, elementBytes }: TiledSizes, { gpu }) =>
    gpu
      ? {
          threadgroups: [Math.ceil(n / GPU.gpuColumns), Math.ceil(m / groupRows), 1],
          threadsPerThreadgroup: [GPU.gpuThreads, 1, 1],
          // Rows of x and of the weight, 16 bytes between them.
          threadgroupBytes: (groupRows + GPU.gpuColumns) * (GPU.gpuDepth * elementBytes + 16),
        }
      : {
          threadgroups: [Math.ceil(n / TILE_COLUMNS), Math.ceil(m / groupRows), 1],
          threadsPerThreadgroup: [1, 1, 1],
          // A packed panel of the weight, converted rows of x, and the sums.
          threadgroupBytes: 4 * (TILE_COLUMNS * TILE_DEPTH + TILE_ROWS * TILE_DEPTH + groupRows * TILE_COLUMNS),
        },
  ),
});

/** The most rows of x of the few-row kernel. */
const MATVEC_ROWS = 8;
/** Of a threadgroup on a GPU; outputs of a simdgroup. */
const SIMDGROUPS = 4;
const SIMDGROUP_COLUMNS = 4;

interface MatvecSizes {
  m: number;
  n: number;
  k: number;
  groupColumns: number;
}

/** Products for few rows: each row of the weight is read once for all of x; a threadgroup is `groupColumns` outputs. */
export const matvecKernel = defineKernel({
  library: nnLibrary,
  name: "matvec",
  variants,
  buffers,
  params: { m: "u32", n: "u32", k: "u32", groupColumns: "u32", biasF32: "u32" },
  constants: { shared: { rows: MATVEC_ROWS, simdgroups: SIMDGROUPS, simdgroupColumns: SIMDGROUP_COLUMNS } },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ m, n, k, groupColumns }: MatvecSizes, { gpu }) => ({
    threadgroups: [Math.ceil(n / groupColumns), 1, 1],
    threadsPerThreadgroup: [gpu ? 32 * SIMDGROUPS : 1, 1, 1],
    // A GPU's simdgroups put sums together.
    threadgroupBytes: gpu ? 4 * 32 * SIMDGROUPS : matvecBytes(m, k),
  })),
});

/** x widened to f32, its rows padded to whole pairs of the widest vectors. */
const matvecBytes = (m: number, k: number) => 4 * m * Math.ceil(k / 32) * 32;

const MATVEC_BYTES = 1 << 20;

/**
 * Outputs of a threadgroup. On a CPU at least 32 Ki weights, so that waking a thread pays. On a GPU each simdgroup has
 * its own, unless that occupies too few: then they share, and split long rows of the weight.
 */
function matvecColumns({ n, k }: { n: number; k: number }, gpu: boolean): number {
  if (!gpu) return Math.max(8, Math.ceil(32768 / k / 8) * 8);
  return n < 1024 && k >= 512 ? SIMDGROUP_COLUMNS : SIMDGROUPS * SIMDGROUP_COLUMNS;
}

/** Rows of a threadgroup: as many as fit the scratch, fewer when that leaves too few threadgroups for many threads. */
function tiledRows(m: number, n: number): number {
  const blocks = Math.max(Math.ceil(m / 504), Math.min(Math.ceil(m / 48), Math.ceil(64 / Math.ceil(n / TILE_COLUMNS))));
  return Math.ceil(Math.ceil(m / blocks) / TILE_ROWS) * TILE_ROWS;
}

const inner = (c: OpContext) => {
  const [rows = 0, cols = 0] = c.tensors.weight?.shape ?? [];
  return c.options.transpose ? { from: cols, to: rows } : { from: rows, to: cols };
};

/** On a GPU two threadgroups share what one could take, for the sake of occupancy. */
const gpuRows = (m: number) => (m > GPU.gpuRows / 2 && m <= GPU.gpuRows ? GPU.gpuRows / 2 : GPU.gpuRows);

/**
 * Matrix product with a dense weight: `y = x · Wᵀ + bias` (`transpose: true`, the default) or `y = x · W + bias`.
 *
 * - `x` [.., cols] f32, f16 or bf16 ([.., rows] without `transpose`); `weight` [rows, cols] f32, f16 or bf16,
 *   whatever x has. `out` [.., rows] ([.., cols] without `transpose`).
 * - `bias` optional, one entry per output column, f32 or the dtype of x, added in f32.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 *
 * Products and sums in f32, one rounding at the store. Where the processor has bf16 products and both x and weight are
 * bf16, products are exact and subnormal bf16 numbers (below 1.2e-38) count as 0; on GPUs all numbers below that may.
 * Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 */
export const matmul: Matmul = defineOp({
  name: "matmul",
  summary: "x · weightᵀ + bias",
  inputs: {
    x: {
      dtype: FLOATS,
      shape: {
        text: ".., cols",
        of: (c) => [...(c.tensors.x as Tensor).shape.slice(0, -1), inner(c).from],
      },
      doc: "rows to multiply",
    },
    weight: { dtype: FLOATS, shape: "rows cols", doc: "the matrix" },
    bias: {
      dtype: ["f32", "=x"],
      shape: { text: "rows", of: (c) => [inner(c).to] },
      optional: true,
      doc: "added to each row of the product",
    },
  },
  outputs: {
    out: {
      dtype: (c) => (c.options.outDtype ?? (c.tensors.x as Tensor).dtype) as Dtype,
      shape: { text: ".., rows", of: (c) => [...(c.tensors.x as Tensor).shape.slice(0, -1), inner(c).to] },
      doc: "the product",
    },
  },
  params: {
    transpose: { kind: "boolean", default: true, doc: "contract the columns of the weight, not its rows" },
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "default: the dtype of x" },
  },
  relations({ inputs: { weight }, fail }) {
    // The other shapes are read off the weight's.
    if (weight.shape.length !== 2) fail("weight", "have shape [rows, cols]", weight.shape);
  },
  encode({ encoder, op, inputs: { x, weight, bias }, outputs: { out }, options }) {
    const k = x.lastDim;
    const m = x.size / k;
    const n = out.lastDim;
    const variant = `${x.dtype}_${weight.dtype}_${out.dtype}`;
    const given = { x, weight, bias, out };
    const biasF32 = bias?.dtype === "f32" ? 1 : 0;
    const { gpu } = encoder.device;
    if (options.transpose && m <= MATVEC_ROWS && (gpu || matvecBytes(m, k) <= MATVEC_BYTES)) {
      const groupColumns = matvecColumns({ n, k }, gpu);
      encoder.dispatch(matvecKernel, {
        op,
        variant,
        buffers: given,
        params: { m, n, k, groupColumns, biasF32 },
        sizes: { m, n, k, groupColumns },
      });
      return;
    }
    const groupRows = gpu ? gpuRows(m) : tiledRows(m, n);
    const elementBytes = x.dtype === weight.dtype ? DTYPES[x.dtype].bytesPerElement : 4;
    encoder.dispatch(matmulKernel, {
      op,
      variant,
      buffers: given,
      params: { m, n, k, groupRows, transpose: options.transpose ? 1 : 0, biasF32 },
      sizes: { m, n, groupRows, elementBytes },
    });
  },
});
