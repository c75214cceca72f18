import {
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  type Machine,
  OLD_SCRATCH,
  oldLaunch,
  type Tensor,
} from "@mlxts/core";
import { type Axis, collapse } from "./broadcast.ts";
import { quant4Library } from "./library.ts";
import { type Bits, combinations, QUANTIZED, quantizedDims } from "./quantized.ts";
import type { QuantizedMatmul } from "./signatures.ts";

const BUFFERS = { x: "read", weight: "read", scales: "read", biases: "read", bias: "read?", out: "write" } as const;
/** Matrices of the batch are counted over two axes and the grid's third; strides count matrices, 0 where one is shared. */
const PARAMS = {
  m: "u32",
  rows: "u32",
  cols: "u32",
  groupSize: "u32",
  biasDtype: "u32",
  batch0: "u32",
  batch1: "u32",
  xStride0: "u32",
  xStride1: "u32",
  xStride2: "u32",
  qStride0: "u32",
  qStride1: "u32",
  qStride2: "u32",
} as const;
const VARIANTS = combinations(FLOATS, FLOATS, FLOATS, ["b4", "b8"]);
const OFFERED: readonly Bits[] = [4, 8];
/** Up to this many rows of x the weights are decoded in registers; above, once into a panel. */
const MATVEC_ROWS = 8;
const PANEL_BYTES = 1 << 23;
/** Rows of W of a GPU's simdgroup in the matvec kernel. */
const SIMDGROUP_ROWS = 4;
/** A GPU's threadgroup in the matmul kernel: tileM rows of x against tileRows of W, tileCols columns at a time. */
const TILE = { tileM: 32, tileRows: 64, tileCols: 32, tileStride: 36 } as const;
/** Two tiles of x, one of W. */
const TILE_BYTES = 4 * TILE.tileStride * (2 * TILE.tileM + TILE.tileRows);
/** The same for x · W: tileM rows of x against tileCols columns, tileRows rows of W at a time. */
const ROWS_TILE = { tileM: 32, tileCols: 64, tileRows: 32, xStride: 36, stride: 68 } as const;
/** Two tiles of x, two of W. */
const ROWS_TILE_BYTES = 8 * (ROWS_TILE.tileM * ROWS_TILE.xStride + ROWS_TILE.tileRows * ROWS_TILE.stride);
/** x · W with few rows of x: columns of a threadgroup, whose simdgroups share the rows of W. */
const STRIP_COLUMNS = 64;
const STRIP_SIMDGROUPS = 8;

interface Sizes {
  m: number;
  rows: number;
  cols: number;
  groupSize: number;
  batch: number;
}

const ceil = (n: number, unit: number) => Math.ceil(n / unit);
const roundUp = (n: number, unit: number) => ceil(n, unit) * unit;

/** x in the order of the codes (at most 6 bytes each), its sums by group, scales and biases of 16 rows. */
const matvecBytes = (m: number, cols: number, groupSize: number) =>
  6 * m * roundUp(cols, 128) + 4 * ((m + 32) * roundUp(cols / groupSize, 16) + 64);

/** x packed, its sums by group, sums of products, scales and biases of 64 rows, one decoded panel. */
const matmulBytes = (mBlock: number, cols: number, groupSize: number) => {
  const groups = cols / groupSize;
  return 4 * (mBlock * (cols + 64) + (mBlock + 32) * roundUp(groups, 16) + 128 * groups + 64 * 512 + 128);
};

/** Rows of x that a threadgroup takes, and whether against panels; 0 rows where not one fits its memory. */
function blockOf(
  m: number,
  cols: number,
  groupSize: number,
  { gpu, limits }: Machine,
): { panels: boolean; rows: number } {
  if (gpu) return m > MATVEC_ROWS ? { panels: true, rows: TILE.tileM } : { panels: false, rows: m };
  const limit = limits.maxThreadgroupBytes;
  const fitting = (most: number, bytes: typeof matvecBytes) => {
    let rows = most;
    while (rows > 0 && bytes(rows, cols, groupSize) > limit) rows--;
    return rows;
  };
  if (m > MATVEC_ROWS) {
    const rows = fitting(Math.min(m, 512, Math.max(48, Math.floor(PANEL_BYTES / (4 * cols)))), matmulBytes);
    // A panel decoded for so few rows costs more than decoding in registers.
    if (rows > MATVEC_ROWS) return { panels: true, rows };
  }
  return { panels: false, rows: fitting(Math.min(m, MATVEC_ROWS), matvecBytes) };
}

export const quantizedMatvecKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matvec",
  variants: VARIANTS,
  buffers: BUFFERS,
  params: PARAMS,
  constants: { shared: { mostM: MATVEC_ROWS, simdgroupRows: SIMDGROUP_ROWS } },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ m, rows, cols, groupSize, batch }: Sizes, { gpu }) => ({
    threadgroups: [ceil(rows, gpu ? 2 * SIMDGROUP_ROWS : 16), 1, batch],
    threadsPerThreadgroup: [64, 1, 1],
    threadgroupBytes: gpu ? 0 : matvecBytes(m, cols, groupSize),
  })),
});

export const quantizedMatmulKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matmul",
  variants: VARIANTS,
  buffers: BUFFERS,
  params: { ...PARAMS, mBlock: "u32" },
  constants: { shared: TILE },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ m, rows, cols, groupSize, batch, mBlock }: Sizes & { mBlock: number }, { gpu }) => ({
    threadgroups: [ceil(rows, TILE.tileRows), ceil(m, mBlock), batch],
    threadsPerThreadgroup: [128, 1, 1],
    threadgroupBytes: gpu ? TILE_BYTES : matmulBytes(mBlock, cols, groupSize),
  })),
});

export const quantizedMatmulRowsKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matmul_rows",
  variants: VARIANTS,
  buffers: BUFFERS,
  params: PARAMS,
  constants: { shared: ROWS_TILE },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ m, cols, batch }: Sizes, { gpu }) => ({
    threadgroups: gpu
      ? [ceil(cols, ROWS_TILE.tileCols), ceil(m, ROWS_TILE.tileM), batch]
      : [ceil(cols, 128), ceil(m, 16), batch],
    threadsPerThreadgroup: [128, 1, 1],
    threadgroupBytes: gpu ? ROWS_TILE_BYTES : 0,
  })),
});

/** x · W with few rows of x; GPUs only. On a CPU the kernel for many is as fast. */
export const quantizedMatvecRowsKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matvec_rows",
  variants: VARIANTS,
  buffers: BUFFERS,
  params: PARAMS,
  constants: { shared: { mostM: MATVEC_ROWS, tileCols: STRIP_COLUMNS, simdgroups: STRIP_SIMDGROUPS } },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ m, cols, batch }: Sizes) => ({
    threadgroups: [ceil(cols, STRIP_COLUMNS), 1, batch],
    threadsPerThreadgroup: [32 * STRIP_SIMDGROUPS, 1, 1],
    threadgroupBytes: 4 * m * STRIP_COLUMNS * STRIP_SIMDGROUPS,
  })),
});

interface Plan {
  m: number;
  rows: number;
  cols: number;
  axes: readonly Axis[];
  shape: readonly number[];
}

interface Seen {
  readonly op: string;
  readonly tensors: Readonly<Record<string, Tensor>>;
  readonly options: Readonly<Record<string, unknown>>;
  fail(argument: string, rule: string, value: unknown, remedy?: string): never;
}

function planOf(c: Seen): Plan | undefined {
  const dims = quantizedDims(c, OFFERED);
  if (!dims) return undefined;
  const { rows, cols, stack } = dims;
  const { shape } = c.tensors.x as Tensor;
  const transpose = c.options.transpose as boolean;
  const [inner, outer] = transpose ? [cols, rows] : [rows, cols];
  const last = shape[shape.length - 1];
  if (last !== inner)
    c.fail("x", `have a last dimension of ${inner} (${transpose ? "cols" : "rows, as transpose is false"})`, shape);
  const lead = shape.slice(0, -2);
  const axes = collapse(lead, stack);
  if (!axes) return c.fail("x", `have leading dimensions that broadcast with [${stack.join(", ")}]`, shape);
  const rank = Math.max(lead.length, stack.length);
  const broadcast = Array.from({ length: rank }, (_, i) =>
    Math.max(lead[i - rank + lead.length] ?? 1, stack[i - rank + stack.length] ?? 1),
  );
  if (shape.length === 1)
    return { m: 1, rows, cols, axes, shape: stack.length > 0 ? [...broadcast, 1, outer] : [outer] };
  const m = shape[shape.length - 2] as number;
  const plan = { m, rows, cols, axes, shape: [...broadcast, m, outer] };
  // Rows of x that meet the same matrix are one taller x.
  const inmost = axes[axes.length - 1];
  return inmost && inmost.q === 0 && inmost.x === 1
    ? { ...plan, m: m * inmost.size, axes: axes.slice(0, -1).map((axis) => ({ ...axis, x: axis.x / inmost.size })) }
    : plan;
}

/**
 * Product with a quantized matrix W [rows, cols]: `y = x · Wᵀ` (`transpose` true, the default) or `y = x · W`.
 *
 * - `x` [.., M, cols], or [.., M, rows] without `transpose`; f32, f16 or bf16. `q` a `Quantized` [.., rows, cols] with
 *   bits 4 or 8, any number of rows. Leading dimensions broadcast. `out` [.., M, rows] or [.., M, cols]; x may have one dimension.
 * - `bias` [rows] (f32, f16, bf16; [cols] without `transpose`), a linear bias added in f32 before the store.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 *
 * x is widened to f32 before any arithmetic (products of bf16 x and codes are exact), sums are f32, one rounding at the
 * store. Errors: `InvalidArgument` for shapes, dtypes, attributes and overlap, and for rows of more than a million
 * columns where one row of x does not fit the memory of a threadgroup; `UnsupportedDtype` for other widths and modes.
 * Source: MLX affine quantization, `mx.quantized_matmul`.
 */
export const quantizedMatmul: QuantizedMatmul = defineOp({
  name: "quantizedMatmul",
  summary: "x · Wᵀ or x · W, W = scale·q + bias",
  inputs: {
    x: {
      dtype: FLOATS,
      shape: { text: "..., M, cols", of: ({ tensors }) => tensors.x?.shape ?? [] },
      doc: "rows to multiply; leading dimensions broadcast against those of `q`",
    },
    q: QUANTIZED,
    bias: {
      dtype: FLOATS,
      shape: { text: "rows", of: (c) => (planOf(c) as Plan).shape.slice(-1) },
      optional: true,
      doc: "linear bias",
    },
  },
  outputs: {
    out: {
      dtype: ({ options, tensors }) => (options.outDtype ?? tensors.x?.dtype) as Dtype,
      shape: { text: "..., M, rows", of: (c) => (planOf(c) as Plan).shape },
      doc: "the product",
    },
  },
  params: {
    transpose: { kind: "boolean", default: true, doc: "x · Wᵀ; false: x · W" },
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of out; default that of x" },
  },
  relations(c) {
    planOf(c);
  },
  check(c) {
    if (!c.options.transpose) return;
    const { m, cols } = planOf(c) as Plan;
    const { device } = c.encoder;
    if (blockOf(m, cols, c.inputs.q.groupSize, device).rows > 0) return;
    const limit = device.limits.maxThreadgroupBytes;
    c.fail("weight", `have rows that fit the ${limit} bytes of a threadgroup`, `${cols} columns`);
  },
  encode(c) {
    const { encoder, op, inputs, outputs, options } = c;
    const { m, rows, cols, axes } = planOf(c) as Plan;
    const { q, bias } = inputs;
    const { groupSize } = q;
    const variant = `${inputs.x.dtype}_${q.scales.dtype}_${outputs.out.dtype}_b${q.bits}`;
    const biasDtype = bias ? FLOATS.indexOf(bias.dtype as "f32") + 1 : 0;
    const [inner, outer] = options.transpose ? [cols, rows] : [rows, cols];
    const one: Axis = { size: 1, x: 0, q: 0 };
    const block = blockOf(m, cols, groupSize, encoder.device);
    /** A matrix of x that is too large for the matvec kernel comes in slices of rows, which a batch would not pass over. */
    const sliced = options.transpose && !block.panels && block.rows < m;
    /** The outermost axes beyond those that a dispatch runs over are dispatches of their own. */
    const record = (rest: readonly Axis[], x: number, matrix: number, z: number): void => {
      if (rest.length > (sliced ? 0 : 3)) {
        const [axis, ...others] = rest as [Axis, ...Axis[]];
        const inside = others.reduce((n, { size }) => n * size, 1);
        for (let i = 0; i < axis.size; i++) record(others, x + i * axis.x, matrix + i * axis.q, z + i * inside);
        return;
      }
      const [a2 = one, a1 = one, a0 = one] = [...Array(3 - rest.length).fill(one), ...rest] as Axis[];
      const batch = a0.size * a1.size * a2.size;
      const from = (tensor: Tensor, index: number, step: number) =>
        index === 0 ? tensor : tensor.view(index * step, [tensor.size - index * step]);
      const common = {
        op,
        variant,
        buffers: {
          x: from(inputs.x, x, m * inner),
          weight: from(q.weight, matrix, (rows * cols * q.bits) / 32),
          scales: from(q.scales, matrix, (rows * cols) / groupSize),
          biases: from(q.biases, matrix, (rows * cols) / groupSize),
          bias,
          out: rest.length === axes.length ? outputs.out : outputs.out.view(z * m * outer, [batch * m * outer]),
        },
      };
      const params = {
        m,
        rows,
        cols,
        groupSize,
        biasDtype,
        batch0: a0.size,
        batch1: a1.size,
        xStride0: a0.x,
        xStride1: a1.x,
        xStride2: a2.x,
        qStride0: a0.q,
        qStride1: a1.q,
        qStride2: a2.q,
      };
      const sizes = { m, rows, cols, groupSize, batch };
      if (!options.transpose)
        encoder.dispatch(
          encoder.device.gpu && m <= MATVEC_ROWS ? quantizedMatvecRowsKernel : quantizedMatmulRowsKernel,
          { ...common, params, sizes },
        );
      else if (block.panels) {
        const mBlock = block.rows;
        encoder.dispatch(quantizedMatmulKernel, {
          ...common,
          params: { ...params, mBlock },
          sizes: { ...sizes, mBlock },
        });
      } else if (!sliced) encoder.dispatch(quantizedMatvecKernel, { ...common, params, sizes });
      else
        for (let row = 0; row < m; row += block.rows) {
          const count = Math.min(block.rows, m - row);
          const { x: from, out: to } = common.buffers;
          encoder.dispatch(quantizedMatvecKernel, {
            ...common,
            buffers: {
              ...common.buffers,
              x: from.view(row * inner, [count * inner]),
              out: to.view(row * outer, [count * outer]),
            },
            params: { ...params, m: count },
            sizes: { ...sizes, m: count },
          });
        }
    };
    record(axes, 0, 0, 0);
  },
});
