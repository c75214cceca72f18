import {
  type CommandEncoder,
  constantsOf,
  type Device,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  type FloatDtype,
  type OpContext,
  type Tensor,
} from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import {
  AMX_CONSTANTS,
  columnsOnCpu,
  columnsOnGpu,
  FEW_ROWS,
  fewRows,
  fewRowsOnGpu,
  mostTileRows,
  PANEL,
  PRODUCT_VARIANTS,
  packedRowBytes,
  paddedRow,
  panelScratch,
  TILE,
  tileElementBytes,
  tileScratch,
  tilesOnCpu,
  WARPGROUP_TILES,
  WARPGROUPS,
  type WarpgroupTokens,
  warpgroupsOnCuda,
  warpgroupTokens,
  warpgroupVariant,
} from "./product_launch.ts";
import type { Matmul } from "./signatures.ts";

const buffers = { x: "read", weight: "read", bias: "read?", out: "write" } as const;

interface TiledSizes {
  m: number;
  n: number;
  transpose: boolean;
  elementBytes: number;
  /** Of a row of x that is packed for tiles; 0 where there are none. */
  rowBytes: number;
  /** Rows of x of a threadgroup where warpgroups multiply. */
  tokens?: WarpgroupTokens | undefined;
}

const WARPGROUP_VARIANTS = WARPGROUP_TILES.map(({ tokens }) => warpgroupVariant(tokens));

/** Rows of a CPU's threadgroup: as many as fit the scratch, fewer when that leaves too few threadgroups for many threads. */
function rowsOnCpu({ m, n, rowBytes }: TiledSizes): number {
  const columns = Math.ceil(n / PANEL.groupColumns);
  const [most, least, unit] = rowBytes > 0 ? [mostTileRows(rowBytes), 64, 16] : [504, 48, PANEL.panelRows];
  const blocks = Math.max(Math.ceil(m / most), Math.min(Math.ceil(m / least), Math.ceil(64 / columns)));
  return Math.ceil(Math.ceil(m / blocks) / unit) * unit;
}

const tilesOnGpu = ({ m, n, transpose, elementBytes }: TiledSizes) => ({
  threadgroups: [Math.ceil(n / TILE.columns), Math.ceil(m / TILE.rows), 1] as const,
  threadsPerThreadgroup: [TILE.threads, 1, 1] as const,
  scratch: tileScratch(transpose, elementBytes),
});

/** Products by register tiles; a threadgroup has some rows of the output and 64 columns. */
export const matmulKernel = defineKernel({
  library: nnLibrary,
  name: "matmul",
  variants: [...PRODUCT_VARIANTS, ...WARPGROUP_VARIANTS],
  sm90a: WARPGROUP_VARIANTS,
  buffers,
  params: { m: "u32", n: "u32", k: "u32", transpose: "u32", biasF32: "u32" },
  launchParams: { cpu: { groupRows: "u32", tileColumns: "u32" } },
  constants: { cpu: { ...PANEL, ...AMX_CONSTANTS }, gpu: { ...TILE, ...WARPGROUPS } },
  scratch: {
    // tiles, left: of x and of the weight, where the processor multiplies tiles; packed: which rows of x those are.
    cpu: { panels: "f32", converted: "f32", sums: "f32", tiles: "u8", left: "u8", packed: "u32" },
    // Of the dtype of x and the weight, or f32 where theirs differ.
    gpu: { x: "u8", weight: "u8" },
  },
  launch: {
    cpu: (sizes: TiledSizes) => {
      const groupRows = rowsOnCpu(sizes);
      const { tileColumns, scratch } = tilesOnCpu(groupRows, sizes.rowBytes);
      return {
        threadgroups: [Math.ceil(sizes.n / PANEL.groupColumns), Math.ceil(sizes.m / groupRows), 1],
        params: { groupRows, tileColumns },
        scratch: { ...panelScratch(groupRows), ...scratch, packed: [AMX_CONSTANTS.packedWords] },
      };
    },
    gpu: tilesOnGpu,
    cuda: (sizes) => (typeof sizes.tokens === "number" ? warpgroupsOnCuda(sizes, sizes.tokens) : tilesOnGpu(sizes)),
  },
});

interface MatvecSizes {
  m: number;
  n: number;
  k: number;
}

/** Products for few rows: each row of the weight is read once for all of x; a threadgroup is `groupColumns` outputs. */
export const matvecKernel = defineKernel({
  library: nnLibrary,
  name: "matvec",
  variants: PRODUCT_VARIANTS,
  buffers,
  params: { m: "u32", n: "u32", k: "u32", biasF32: "u32" },
  launchParams: { cpu: { groupColumns: "u32", width: "u32" }, gpu: { groupColumns: "u32" } },
  constants: FEW_ROWS,
  scratch: { cpu: { x: "f32" }, gpu: { partial: "f32" } },
  launch: {
    cpu: ({ m, n, k }: MatvecSizes) => {
      const groupColumns = columnsOnCpu(k);
      const width = paddedRow(k);
      return {
        threadgroups: [Math.ceil(n / groupColumns), 1, 1],
        params: { groupColumns, width },
        scratch: { x: [m, width] },
      };
    },
    gpu: ({ n, k }, { constants }) => {
      const groupColumns = columnsOnGpu(n, k, constants);
      return {
        threadgroups: [Math.ceil(n / groupColumns), 1, 1],
        params: { groupColumns },
        ...fewRowsOnGpu(constants),
      };
    },
  },
});

/** What a product is made of: x [.., k], the weight, the bias, and out [.., n]. */
interface Product {
  x: Tensor;
  weight: Tensor;
  bias?: Tensor | undefined;
  out: Tensor;
}

/** Whether so many rows of x are multiplied by the kernel for few rows. */
export const hasFewRows = (m: number, k: number, device: Device): boolean =>
  m <= fewRows(k, constantsOf(matvecKernel, device));

/** Rows of x of a threadgroup where the device has warpgroups to multiply, and all begins at whole pieces. */
function tokensFor(encoder: CommandEncoder, { x, weight, out }: Product, m: number, transpose: boolean) {
  const fits =
    [x, weight, out].every(({ dtype }) => dtype === "bf16") &&
    transpose &&
    x.lastDim % WARPGROUPS.warpgroupColumns === 0 &&
    [x, weight].every(({ byteOffset }) => byteOffset % 16 === 0);
  if (!fits) return undefined;
  const tokens = warpgroupTokens(m, out.lastDim, encoder.device.limits.maxThreadgroupsPerAxis);
  const has = (variant: string) => encoder.device.library(nnLibrary).has(matmulKernel.name, variant);
  return tokens !== undefined && has(warpgroupVariant(tokens)) ? tokens : undefined;
}

/** Records a product; without `transpose` the rows of the weight are contracted. */
export function encodeProduct(encoder: CommandEncoder, op: string, given: Product, transpose: boolean): void {
  const { x, weight, bias, out } = given;
  const k = x.lastDim;
  const m = x.size / k;
  const n = out.lastDim;
  const buffers = { x, weight, bias, out };
  const variant = `${x.dtype}_${weight.dtype}_${out.dtype}`;
  const biasF32 = bias?.dtype === "f32" ? 1 : 0;
  if (transpose && hasFewRows(m, k, encoder.device)) {
    encoder.dispatch(matvecKernel, { op, variant, buffers, params: { m, n, k, biasF32 }, sizes: { m, n, k } });
    return;
  }
  const elementBytes = tileElementBytes(x.dtype as FloatDtype, weight.dtype as FloatDtype);
  const tokens = tokensFor(encoder, given, m, transpose);
  encoder.dispatch(matmulKernel, {
    op,
    variant: tokens === undefined ? variant : warpgroupVariant(tokens),
    buffers,
    params: { m, n, k, transpose: transpose ? 1 : 0, biasF32 },
    sizes: { m, n, transpose, elementBytes, rowBytes: packedRowBytes(encoder.device, x.dtype, k, transpose), tokens },
  });
}

const inner = (c: OpContext) => {
  const [rows = 0, cols = 0] = c.tensors.weight?.shape ?? [];
  return c.options.transpose ? { from: cols, to: rows } : { from: rows, to: cols };
};

/**
 * Matrix product with a dense weight: `y = x · Wᵀ + bias` (`transpose: true`, the default) or `y = x · W + bias`.
 *
 * - `x` [.., cols] f32, f16 or bf16 ([.., rows] without `transpose`); `weight` [rows, cols] f32, f16 or bf16,
 *   whatever x has. `out` [.., rows] ([.., cols] without `transpose`).
 * - `bias` optional, one entry per output column, f32 or the dtype of x, added in f32.
 * - `outDtype` f32, f16 or bf16; default the dtype of x.
 *
 * Products and sums in f32, one rounding at the store. Where the processor has bf16 products and both x and weight are
 * bf16, products are exact and subnormal bf16 numbers (below 1.2e-38) count as 0; on GPUs all numbers below that may. With
 * `transpose` one row, up to 8 and more are summed in different orders, so the last bits of a row depend on which it is.
 * Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 */
export const matmul: Matmul = defineOp({
  name: "matmul",
  summary: "x · weightᵀ + bias",
  inputs: {
    x: {
      dtype: FLOATS,
      shape: {
        text: "..., cols",
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
      shape: { text: "..., rows", of: (c) => [...(c.tensors.x as Tensor).shape.slice(0, -1), inner(c).to] },
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
    encodeProduct(encoder, op, { x, weight, bias, out }, options.transpose);
  },
});
