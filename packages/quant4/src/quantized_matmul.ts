import {
  type BatchAxis,
  broadcastAxes,
  broadcastShape,
  type CommandEncoder,
  constantsOf,
  type Device,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  QUANTIZED,
  quantizedDims,
  scratchFits,
  type Tensor,
  tileStride,
} from "@mlxts/core";
import { quant4Library } from "./library.ts";
import {
  APPROXIMATE,
  type Block,
  blockOf,
  CUDA_TILES,
  ceil,
  checkBlock,
  FEW,
  FEW_ON_CPU,
  FEW_ON_GPU,
  FEW_SCRATCH_ON_GPU,
  FEW_VARIANTS,
  fewOnGpus,
  MATVEC_PARAMS,
  MATVEC_SCRATCH,
  matvecOnCpu,
  oneRowOf,
  PANEL_SCRATCH,
  PANELS,
  PRODUCT_BITS,
  PRODUCT_VARIANTS,
  panelsOnCpu,
  type Seen,
  TILE_SCRATCH,
  TILES,
  tilesOnCuda,
  tilesOnGpu,
  WARPGROUP_VARIANTS,
  type WarpgroupTile,
  type Weights,
  warpgroupsOnCuda,
  warpgroupTileFor,
} from "./product_launch.ts";
import type { Quantized, QuantizedMatmul } from "./signatures.ts";

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
interface Sizes extends Weights {
  m: number;
  rows: number;
  batch: number;
}

/** x · Wᵀ with few rows of x. */
export const quantizedMatvecKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matvec",
  variants: FEW_VARIANTS,
  buffers: BUFFERS,
  early: ["weight", "scales", "biases"],
  params: PARAMS,
  launchParams: { cpu: MATVEC_PARAMS },
  constants: { shared: FEW, cpu: FEW_ON_CPU, gpu: FEW_ON_GPU },
  scratch: { cpu: MATVEC_SCRATCH, gpu: FEW_SCRATCH_ON_GPU },
  launch: {
    cpu: ({ m, rows, batch, ...weights }: Sizes, { constants: { blockRows } }) => ({
      threadgroups: [ceil(rows, blockRows), 1, batch],
      ...matvecOnCpu(m, weights),
    }),
    ...fewOnGpus(({ rows, batch }: Sizes, groupRows) => [ceil(rows, groupRows), 1, batch]),
  },
});

interface TiledSizes extends Sizes {
  mBlock: number;
  /** Where warpgroups multiply. */
  tile?: WarpgroupTile | undefined;
}

const tiled = ({ m, rows, batch }: Sizes, { threads, tileM, tileRows }: typeof TILES) => ({
  threadgroups: [ceil(rows, tileRows), ceil(m, tileM), batch] as const,
  threadsPerThreadgroup: [threads, 1, 1] as const,
});

/** x · Wᵀ with more rows of x; on a CPU, `mBlock` of them go against each panel of W. */
export const quantizedMatmulKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matmul",
  variants: [...PRODUCT_VARIANTS, ...WARPGROUP_VARIANTS],
  sm90a: WARPGROUP_VARIANTS,
  buffers: BUFFERS,
  params: PARAMS,
  launchParams: { cpu: { mBlock: "u32", groupStride: "u32", int8: "u32", blocks: "u32" } },
  constants: { cpu: PANELS, gpu: TILES, cuda: CUDA_TILES },
  scratch: { cpu: PANEL_SCRATCH, gpu: TILE_SCRATCH },
  launch: {
    cpu: ({ m, rows, batch, mBlock, ...weights }: TiledSizes, { constants: { blockRows } }) => ({
      threadgroups: [ceil(rows, blockRows), ceil(m, mBlock), batch],
      ...panelsOnCpu(mBlock, weights),
    }),
    gpu: (sizes, { constants }) => ({ ...tiled(sizes, constants), scratch: tilesOnGpu(constants) }),
    cuda: (sizes, { constants }) =>
      typeof sizes.tile === "object"
        ? warpgroupsOnCuda(sizes, sizes.tile)
        : { ...tiled(sizes, constants), scratch: tilesOnCuda(constants) },
  },
});

/** x · W. */
export const quantizedMatmulRowsKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matmul_rows",
  variants: PRODUCT_VARIANTS,
  buffers: BUFFERS,
  params: PARAMS,
  constants: {
    cpu: { tileM: 16, tileCols: 128 },
    // On a GPU tileM rows of x against tileCols columns, partM against partCols in a simdgroup, tileRows rows of W at
    // a time.
    gpu: { threads: 128, tileM: 64, tileCols: 64, partM: 32, partCols: 32, tileRows: 16 },
  },
  scratch: { gpu: { xTiles: "f32", wTiles: "f32" } },
  launch: {
    cpu: ({ m, cols, batch }: Sizes, { constants: { tileM, tileCols } }) => ({
      threadgroups: [ceil(cols, tileCols), ceil(m, tileM), batch],
    }),
    gpu: ({ m, cols, batch }: Sizes, { constants: { threads, tileM, tileCols, tileRows } }) => ({
      threadgroups: [ceil(cols, tileCols), ceil(m, tileM), batch],
      threadsPerThreadgroup: [threads, 1, 1],
      scratch: {
        xTiles: [2, tileM, tileStride("f32", tileRows)],
        wTiles: [2, tileRows, tileStride("f32", tileCols)],
      },
    }),
  },
});

/** x · W with few rows of x. On a CPU the kernel for many is as fast. */
export const quantizedMatvecRowsKernel = defineKernel({
  library: quant4Library,
  name: "quantized_matvec_rows",
  variants: PRODUCT_VARIANTS,
  buffers: BUFFERS,
  params: PARAMS,
  // The simdgroups of a threadgroup share the rows of W for tileCols columns.
  constants: { gpu: { mostM: FEW.mostM, tileCols: 64, simdgroups: 8 } },
  scratch: { gpu: { sums: "f32" } },
  launch: {
    gpu: ({ m, cols, batch }: Sizes, { constants: { tileCols, simdgroups } }) => ({
      threadgroups: [ceil(cols, tileCols), 1, batch],
      threadsPerThreadgroup: [32 * simdgroups, 1, 1],
      scratch: { sums: [m, simdgroups, tileCols] },
    }),
  },
});

/** Refuses to approximate on a device whose kernels are exact. */
export function checkApproximate({ options, device, fail }: Seen & { device: Device }): void {
  if (options.approximate !== undefined && !("byteUnits" in constantsOf(quantizedMatvecKernel, device)))
    fail(
      "approximate",
      "be left out on this device",
      options.approximate,
      "its products are exact, only those of a CPU may be others",
    );
}

/** What `blockFor` has found for a device; the layers of a model ask for the same again and again. */
const blocksOf = new WeakMap<Device, Map<string, Block>>();
const MOST_BLOCKS = 256;

/** Rows of x that a threadgroup of x · Wᵀ takes, and whether against panels. */
export function blockFor(
  { m, rows, cols }: Pick<Plan, "m" | "rows" | "cols">,
  groupSize: number,
  device: Device,
): Block {
  const blocks = blocksOf.get(device) ?? new Map<string, Block>();
  const key = `${m} ${cols} ${groupSize} ${device.limits.maxThreadgroupBytes}`;
  const known = blocks.get(key);
  if (known) return known;
  const sizes = { rows, cols, groupSize, batch: 1 };
  const block = blockOf(m, cols, {
    panels: (mBlock) => scratchFits(quantizedMatmulKernel, { ...sizes, m, mBlock }, device),
    few: (m) => scratchFits(quantizedMatvecKernel, { ...sizes, m }, device),
  });
  if (blocks.size === MOST_BLOCKS) blocks.clear();
  blocksOf.set(device, blocks.set(key, block));
  return block;
}

/** What the kernels of x · Wᵀ are dispatched with. */
interface Transposed {
  op: string;
  variant: string;
  buffers: Record<"x" | "weight" | "scales" | "biases" | "out", Tensor> & { bias: Tensor | undefined };
  params: Record<keyof typeof PARAMS, number>;
  sizes: Sizes;
}

/** x · Wᵀ by the kernel for so many rows of x; a matrix of x that is too large for that for few comes in slices of rows. */
function encodeTransposed(encoder: CommandEncoder, given: Transposed, block: Block): void {
  const { buffers, params, sizes } = given;
  const { m, rows, cols } = sizes;
  if (block.panels) {
    const library = encoder.device.library(quant4Library);
    const has = (wanted: string) => library.has(quantizedMatmulKernel.name, wanted);
    const { variant = given.variant, tile } = warpgroupTileFor(given.variant, sizes, buffers, has) ?? {};
    encoder.dispatch(quantizedMatmulKernel, { ...given, variant, sizes: { ...sizes, mBlock: block.rows, tile } });
  } else if (block.rows >= m) {
    const { device } = encoder;
    const { variant, oneRow } = oneRowOf(quantizedMatvecKernel, given.variant, sizes, buffers.x, [buffers], device);
    encoder.dispatch(quantizedMatvecKernel, { ...given, variant, sizes: { ...sizes, oneRow } });
  } else
    for (let row = 0; row < m; row += block.rows) {
      const count = Math.min(block.rows, m - row);
      encoder.dispatch(quantizedMatvecKernel, {
        ...given,
        buffers: {
          ...buffers,
          x: buffers.x.view(row * cols, [count * cols]),
          out: buffers.out.view(row * rows, [count * rows]),
        },
        params: { ...params, m: count },
        sizes: { ...sizes, m: count },
      });
    }
}

/** The params of products with one matrix. */
const ONE_MATRIX = {
  biasDtype: 0,
  batch0: 1,
  batch1: 1,
  xStride0: 0,
  xStride1: 0,
  xStride2: 0,
  qStride0: 0,
  qStride1: 0,
  qStride2: 0,
} as const;

/** x · Wᵀ of one matrix, as quantizedMatmul does it. */
export function encodeProduct(
  encoder: CommandEncoder,
  op: string,
  { x, q, out, int8 }: Record<"x" | "out", Tensor> & { q: Quantized; int8: boolean },
): void {
  const { weight, scales, biases, groupSize, bits } = q;
  const [rows, cols] = [out.lastDim, x.lastDim];
  const sizes = { m: x.size / cols, rows, cols, groupSize };
  const given = {
    op,
    variant: `${x.dtype}_${scales.dtype}_${out.dtype}_b${bits}`,
    buffers: { x, weight, scales, biases, bias: undefined, out },
    params: { ...ONE_MATRIX, ...sizes },
    sizes: { ...sizes, batch: 1, int8 },
  };
  encodeTransposed(encoder, given, blockFor(sizes, groupSize, encoder.device));
}

interface Plan {
  m: number;
  rows: number;
  cols: number;
  axes: readonly BatchAxis[];
  shape: readonly number[];
}

function planOf(c: Seen): Plan | undefined {
  const dims = quantizedDims(c, PRODUCT_BITS);
  if (!dims) return undefined;
  const { rows, cols, stack } = dims;
  const { shape } = c.tensors.x as Tensor;
  const transpose = c.options.transpose as boolean;
  const [inner, outer] = transpose ? [cols, rows] : [rows, cols];
  const last = shape[shape.length - 1];
  if (last !== inner)
    c.fail("x", `have a last dimension of ${inner} (${transpose ? "cols" : "rows, as transpose is false"})`, shape);
  if (shape.length === 2 && stack.length === 0) {
    const m = shape[0] as number;
    return { m, rows, cols, axes: [], shape: [m, outer] };
  }
  const lead = shape.slice(0, -2);
  const axes = broadcastAxes(lead, stack);
  if (!axes) return c.fail("x", `have leading dimensions that broadcast with [${stack.join(", ")}]`, shape);
  const broadcast = broadcastShape(lead, stack);
  if (shape.length === 1)
    return { m: 1, rows, cols, axes, shape: stack.length > 0 ? [...broadcast, 1, outer] : [outer] };
  const m = shape[shape.length - 2] as number;
  const plan = { m, rows, cols, axes, shape: [...broadcast, m, outer] };
  // Matrices of x that are multiplied by the same matrix W are one matrix with more rows.
  const inmost = axes[axes.length - 1];
  return inmost && inmost.right === 0 && inmost.left === 1
    ? {
        ...plan,
        m: m * inmost.size,
        axes: axes.slice(0, -1).map((axis) => ({ ...axis, left: axis.left / inmost.size })),
      }
    : plan;
}

/**
 * Product with a quantized matrix W [rows, cols]: `y = x · Wᵀ` (`transpose` true, the default) or `y = x · W`.
 *
 * - `x` [.., M, cols], or [.., M, rows] without `transpose`; f32, f16 or bf16. `q` a `Quantized` [.., rows, cols] with
 *   bits 4 or 8, any number of rows. Leading dimensions broadcast. `out` [.., M, rows] or [.., M, cols]; x may have one dimension.
 * - `bias` [rows] (f32, f16, bf16; [cols] without `transpose`), a linear bias added in f32 before the store.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 * - `approximate` `"int8-activations"`, for x · Wᵀ on a CPU; default: exact. See below.
 *
 * x is widened to f32 before any arithmetic, sums are f32, one rounding at the store. Products of bf16 x and codes are exact,
 * but a CPU with products of bytes takes x of other dtypes, and one with tiles (AMX) up to 8 rows of any dtype, as whole
 * numbers of 24 bits, which err by at most 2^-23 of the largest x of a group (up to 8 rows, with tiles 2: of 8 neighbors, 4
 * with bits 8; with AVX2 23 bits and 2^-22 of the largest of 64 neighbors). For bf16 results tiles have 4-bit weights in groups
 * of 64 and 128 as two bf16 that err by less than 2^-15 of the weight, for more than 32 rows of bf16 x. NVIDIA's GPUs take one
 * row of bf16 x, against 4 bits in groups of 64 and 128, as whole numbers of 23 bits that err by at most 2^-22 of the largest
 * of 64 neighbors. Up to 8 rows of x and more are summed in different orders, with tiles also up to 2, up to 5 and up to 32, on
 * NVIDIA's GPUs up to 1, up to 2, up to 4 and up to 32, so the last bits of a row depend on which it is.
 *
 * With `"int8-activations"` each group of `groupSize` numbers of a row of x is first rounded to whole numbers of a unit, its
 * largest / 127, ties to even (both in f32); all else is as exact as before. A result errs by at most Σ unit/2·|w|, for
 * normally distributed x by an rms of 0.6 %. Groups with numbers that are not finite, below 2^-100 or from 2^118 on stay as they
 * are. Processors without products of bytes (no AVX-512 VNNI) give the same numbers, no sooner. Errors: `InvalidArgument` for shapes, dtypes, attributes and
 * overlap, and for rows of more than a million columns where one row of x does not fit the memory of a threadgroup;
 * `UnsupportedDtype` for other widths and modes.
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
    approximate: APPROXIMATE,
  },
  relations(c) {
    planOf(c);
  },
  rules({ options: { approximate, transpose }, fail }) {
    if (approximate !== undefined && !transpose)
      fail(
        "approximate",
        "be left out where transpose is false",
        approximate,
        "groups lie along the columns of W only",
      );
  },
  check(c) {
    checkApproximate(c);
    if (!c.options.transpose) return;
    const { device } = c.encoder;
    const plan = planOf(c) as Plan;
    checkBlock(c, blockFor(plan, c.inputs.q.groupSize, device), plan.cols, device);
  },
  encode(c) {
    const { encoder, op, inputs, outputs, options } = c;
    const plan = planOf(c) as Plan;
    const { m, rows, cols, axes } = plan;
    const { q, bias } = inputs;
    const { groupSize } = q;
    const variant = `${inputs.x.dtype}_${q.scales.dtype}_${outputs.out.dtype}_b${q.bits}`;
    const biasDtype = bias ? FLOATS.indexOf(bias.dtype as "f32") + 1 : 0;
    const [inner, outer] = options.transpose ? [cols, rows] : [rows, cols];
    const one: BatchAxis = { size: 1, left: 0, right: 0 };
    const block = blockFor(plan, groupSize, encoder.device);
    /** A matrix of x that is too large for the matvec kernel comes in slices of rows, which a batch would not pass over. */
    const sliced = options.transpose && !block.panels && block.rows < m;
    /** The outermost axes beyond those that a dispatch runs over are dispatches of their own. */
    const record = (rest: readonly BatchAxis[], x: number, matrix: number, z: number): void => {
      if (rest.length > (sliced ? 0 : 3)) {
        const [axis, ...others] = rest as [BatchAxis, ...BatchAxis[]];
        const inside = others.reduce((n, { size }) => n * size, 1);
        for (let i = 0; i < axis.size; i++) record(others, x + i * axis.left, matrix + i * axis.right, z + i * inside);
        return;
      }
      const [a2 = one, a1 = one, a0 = one] = [...Array(3 - rest.length).fill(one), ...rest] as BatchAxis[];
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
        xStride0: a0.left,
        xStride1: a1.left,
        xStride2: a2.left,
        qStride0: a0.right,
        qStride1: a1.right,
        qStride2: a2.right,
      };
      const sizes = { m, rows, cols, groupSize, batch, int8: options.approximate !== undefined };
      if (options.transpose) encodeTransposed(encoder, { ...common, params, sizes }, block);
      else
        encoder.dispatch(
          m <= FEW.mostM && encoder.device.library(quant4Library).has(quantizedMatvecRowsKernel.name, variant)
            ? quantizedMatvecRowsKernel
            : quantizedMatmulRowsKernel,
          { ...common, params, sizes },
        );
    };
    record(axes, 0, 0, 0);
  },
});
