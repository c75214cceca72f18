// How the kernels of x · Wᵀ are launched: what the ops that do so share.
import {
  type Device,
  type Dtype,
  FLOATS,
  type GatheredSizes,
  type Kernel,
  quantizedDims,
  scratchFits,
  type Tensor,
  tileStride,
} from "@mlxts/core";
import { quant4Library } from "./library.ts";
import { type Bits, combinations } from "./quantized.ts";

/** Dtypes of x, of scales and of the output, and bits. */
export const PRODUCT_VARIANTS = combinations(FLOATS, FLOATS, FLOATS, ["b4", "b8"]);
/** The bits of a code that matrix products support. */
export const PRODUCT_BITS: readonly Bits[] = [4, 8];

/** Up to `mostM` rows of x the weights are decoded in registers. */
export const FEW = { mostM: 8 } as const;
/**
 * Rows of W of a CPU's threadgroup, columns that are ordered together, units of the largest number of a group in bytes, and
 * the words of `prepared`.
 */
export const FEW_ON_CPU = { blockRows: 16, unit: 128, byteUnits: 127, preparedWords: 4 } as const;
/**
 * Rows of W of a GPU's simdgroup, or, on NVIDIA's GPUs, rows that the simdgroups of a threadgroup share, and the units of up
 * to 64 columns of them that a simdgroup takes at a time: a span. One row of x has at most mostSpans of them there, a
 * threadgroup for it at most rowThreads, and each simdgroup spansAhead spans on their way.
 */
export const FEW_ON_GPU = {
  simdgroupRows: 4,
  tileRows: 16,
  blockUnits: 4,
  mostSpans: 64,
  rowThreads: 384,
  spansAhead: 4,
} as const;
/** Simdgroups of a threadgroup on NVIDIA's GPUs: as many as have columns, within these bounds. */
const LEAST_SIMDGROUPS = 4;
const MOST_SIMDGROUPS = 8;
/** With one row of x, simdgroups that share tiles where there are fewer spans. */
const LEAST_ROW_SIMDGROUPS = 8;
const BLOCK_COLUMNS = 64 * FEW_ON_GPU.blockUnits;
/** Multiprocessors of an H100 or H200. */
const MULTIPROCESSORS = 132;
/**
 * With one row of x a tile of W has a threadgroup of its own where there is a multiprocessor for each. More tiles share
 * threadgroups, one for each multiprocessor unless its tiles are more than these. Such a threadgroup asks for so many bytes
 * that no two fit a multiprocessor: else the first ones that are free would take two, and others none.
 */
const MOST_TILES = 16;
const BYTES_ALONE = 116_000;
/**
 * Above, in panels: a CPU's threadgroup has blockRows rows of W, and a panel so many of their columns; limbGroupWords are what
 * a group of a row of x in limbs comes with, preparedWords what tells which rows of x are prepared. With room for paddedRows
 * rows of x, a CPU that has tiles takes them so, and up to blocksAtOnce blocks of rows of W at once.
 */
export const PANELS = {
  blockRows: 64,
  f32Depth: 256,
  codeDepth: 128,
  limbGroupWords: 5,
  preparedWords: 16,
  lanes: 16,
  paddedRows: 16,
  blocksAtOnce: 4,
} as const;
/**
 * Or in tiles: a GPU's threadgroup has tileM rows of x against tileRows of W, each of its simdgroups partM against
 * partRows, tileBytes of each at a time, with `tiles` of each in its memory.
 */
export const TILES = { threads: 128, tileM: 64, tileRows: 64, partM: 32, partRows: 32, tileBytes: 64, tiles: 2 };
/** NVIDIA's GPUs have larger parts, and more tiles on their way. */
export const CUDA_TILES = { tileRows: 128, partM: 64, tiles: 4 };
/**
 * Rows of W against rows of x of a threadgroup whose warpgroups multiply, for GPUs of compute capability 9.0: one warpgroup
 * for each 64 rows of W, and one that brings tiles of `columns`, of which `stages` are in its memory. `cost` compares how
 * long a multiprocessor takes for one.
 */
export const WARPGROUP_TILES = [
  { rows: 128, m: 128, cost: 37 },
  { rows: 128, m: 96, cost: 33 },
  { rows: 128, m: 64, cost: 26 },
  { rows: 64, m: 64, cost: 17 },
] as const;
export interface WarpgroupTile {
  readonly rows: number;
  readonly m: number;
  /** Threads that bring tiles; default: a warpgroup. */
  readonly bringers?: number;
}
const WARPGROUPS = { threads: 128, rows: 64, columns: 64, stages: 8, together: 4 } as const;
/**
 * The same of gathered products, where a matrix has up to `upTo` rows of x on average, as measured: some have many more, and
 * a slot with few rows takes about as long as a full one. One warp of `bringers` brings small tiles.
 */
export const GATHERED_TILES = [
  { rows: 64, m: 16, upTo: 10, bringers: 32 },
  { rows: 64, m: 32, upTo: 40, bringers: 32 },
  { rows: 128, m: 64, upTo: 100, bringers: 128 },
  { rows: 128, m: 128, upTo: Number.POSITIVE_INFINITY, bringers: 128 },
] as const;
/** Up to so many rows of x the other tiles are as fast. */
const WARPGROUPS_FROM = 33;
const warpgroupVariant = ({ rows, m }: WarpgroupTile) => `bf16_bf16_bf16_b4_${rows}x${m}`;
export const WARPGROUP_VARIANTS = WARPGROUP_TILES.map(warpgroupVariant);
export const GATHERED_VARIANTS = GATHERED_TILES.map(warpgroupVariant);

/** Bytes of x that a CPU's threadgroup multiplies with one panel: what stays in the second cache. */
const BLOCK_BYTES = 1 << 23;
/** Columns of W up to which a CPU's thread takes blocks at once. */
const MOST_AT_ONCE = 1 << 14;

/** How one row of x is multiplied where NVIDIA's GPUs have a way of their own for it. */
interface OneRow {
  scaleBytes: number;
  /** Bytes of a threadgroup at most. */
  mostBytes: number;
}

export interface Weights {
  cols: number;
  groupSize: number;
  /** Whether a CPU takes x in whole numbers of a byte. */
  int8?: boolean;
  /** What `oneRowOf` says. */
  oneRow?: OneRow | undefined;
}

export const ceil = (n: number, unit: number) => Math.ceil(n / unit);
const roundUp = (n: number, unit: number) => ceil(n, unit) * unit;
/** Groups of a row, padded to a whole vector of the widest instruction set. */
const groupStrideOf = ({ cols, groupSize }: Weights) => roundUp(cols / groupSize, 16);

/** The option of all products that allows other numbers for more speed. */
export const APPROXIMATE = {
  kind: "choice",
  values: ["int8-activations"],
  optional: true,
  doc: "`int8-activations`: a CPU rounds x to whole numbers of a byte, in units of its group's largest / 127; default exact",
} as const;
/** What a CPU's kernels of few rows of x are told. */
export const MATVEC_PARAMS = { columnStride: "u32", groupStride: "u32", int8: "u32" } as const;
/**
 * Scratch of a CPU: `ordered`, x in the order in which codes leave the words, f32 or in limbs of a byte; `prepared`, which
 * rows of x these are.
 */
export const MATVEC_SCRATCH = { ordered: "u16", sums: "f32", prepared: "u32" } as const;

/** Scratch of an NVIDIA GPU: what the simdgroups of a threadgroup add up. */
export const FEW_SCRATCH_ON_GPU = { sums: "f32" } as const;

type Axes = readonly [number, number, number];

const rowVariant = (variant: string) => `${variant}_row`;
/** Variants for one row of x. */
export const ROW_VARIANTS = PRODUCT_VARIANTS.filter((each) => /^bf16_.*_b4$/.test(each)).map(rowVariant);
export const FEW_VARIANTS = [...PRODUCT_VARIANTS, ...ROW_VARIANTS];

/** Simdgroups that have up to `own` of so many spans each, and bytes of a threadgroup of them without sums. */
function rowSimdgroups(spans: number, own: number, scaleBytes: number) {
  const { tileRows, spansAhead } = FEW_ON_GPU;
  const few = ceil(spans, own);
  const simdgroups = few * Math.max(1, Math.floor(LEAST_ROW_SIMDGROUPS / few));
  // Spans that are on their way and one of zeros, limbs and factors of x.
  const span = tileRows * (BLOCK_COLUMNS / 2 + 8 * scaleBytes);
  return { simdgroups, bytes: (simdgroups * spansAhead + 1) * span + simdgroups * own * (3 * BLOCK_COLUMNS + 64) };
}

/** The launch of such a variant, with all tiles of W. */
function rowOnCuda({ cols }: Weights, { scaleBytes, mostBytes }: OneRow, [x, y, z]: Axes) {
  const { tileRows, rowThreads, mostSpans } = FEW_ON_GPU;
  const spans = ceil(cols, BLOCK_COLUMNS);
  const all = x * y * z;
  const alone = all <= MULTIPROCESSORS;
  const threadgroups = alone ? x : ceil(x, Math.min(ceil(all, MULTIPROCESSORS), MOST_TILES));
  const sums = ceil(x, threadgroups) * spans * tileRows * 4;
  // As few spans for each simdgroup as there are threads and memory for.
  const mostOwn = ceil(32 * mostSpans, rowThreads);
  let own = ceil(32 * spans, rowThreads);
  while (own < mostOwn && rowSimdgroups(spans, own, scaleBytes).bytes + sums > mostBytes) own++;
  const { simdgroups, bytes } = rowSimdgroups(spans, own, scaleBytes);
  const least = alone ? 0 : Math.min(BYTES_ALONE, mostBytes);
  return {
    threadgroups: [threadgroups, y, z] as const,
    threadsPerThreadgroup: [32 * simdgroups, 1, 1] as const,
    scratch: { sums: [ceil(Math.max(bytes + sums, least), 4)] },
  };
}

/**
 * The launch rules of GPUs with few rows of x: `threadgroups` are told the rows of W of one. NVIDIA's GPUs take the same
 * rows of `matrices` at once, and get room for the sums of x in f32, which is three parts there.
 */
export function fewOnGpus<Sizes extends Weights & { m: number }>(
  threadgroups: (sizes: Sizes, rows: number) => Axes,
  matrices = 1,
) {
  const { simdgroupRows, tileRows } = FEW_ON_GPU;
  return {
    gpu: (sizes: Sizes) => ({
      threadgroups: threadgroups(sizes, 2 * simdgroupRows),
      threadsPerThreadgroup: [64, 1, 1] as const,
      scratch: { sums: [0] },
    }),
    cuda: (sizes: Sizes) => {
      if (typeof sizes.oneRow === "object")
        return rowOnCuda(sizes, sizes.oneRow, threadgroups(sizes, tileRows / matrices));
      const spans = ceil(sizes.cols, BLOCK_COLUMNS);
      const simdgroups = Math.min(Math.max(spans, LEAST_SIMDGROUPS), MOST_SIMDGROUPS);
      return {
        threadgroups: threadgroups(sizes, tileRows),
        threadsPerThreadgroup: [32 * simdgroups, 1, 1] as const,
        scratch: { sums: [simdgroups * 3 * FEW.mostM * matrices * tileRows] },
      };
    },
  };
}

/** Scratch and params of a CPU's threadgroup with m rows of x. */
export function matvecOnCpu(m: number, weights: Weights) {
  const columnStride = roundUp(weights.cols, FEW_ON_CPU.unit);
  const groupStride = groupStrideOf(weights);
  return {
    params: { columnStride, groupStride, int8: Number(weights.int8 ?? false) },
    scratch: {
      // Three limbs of 8 bits take 7 bytes for a column; tiles of two rows take more than two.
      ordered: [4, m === 2 ? 3 : m, columnStride],
      sums: [PANELS.limbGroupWords, m, groupStride],
      prepared: [FEW_ON_CPU.preparedWords],
    },
  };
}

/**
 * Scratch of a CPU: `activations`, rows of x in f32, or bf16 or limbs of a byte in the order of the codes; `sums`, of each
 * group of a row; `prepared`, which rows of x these are.
 */
export const PANEL_SCRATCH = {
  activations: "f32",
  sums: "f32",
  products: "f32",
  scales: "f32",
  biases: "f32",
  rowScales: "f32",
  rowBiases: "f32",
  panel: "f32",
  prepared: "u32",
} as const;

/** The same where up to `mBlock` rows of x go against each panel. */
export function panelsOnCpu(mBlock: number, weights: Weights) {
  const { blockRows, f32Depth, codeDepth, limbGroupWords, lanes, paddedRows, blocksAtOnce } = PANELS;
  const groupStride = groupStrideOf(weights);
  const groups = weights.cols / weights.groupSize;
  const blocks = weights.cols <= MOST_AT_ONCE ? blocksAtOnce : 1;
  const padded = roundUp(mBlock, paddedRows);
  return {
    params: { mBlock, groupStride, int8: Number(weights.int8 ?? false), blocks },
    scratch: {
      // An f32 is three bf16 in tiles.
      activations: [mBlock < paddedRows ? mBlock : 1.5 * padded, weights.cols],
      sums: [limbGroupWords, mBlock, groupStride],
      products: [blocks, padded, blockRows],
      scales: [blocks, groups, blockRows],
      biases: [blocks, groups, blockRows],
      rowScales: [lanes, groupStride],
      rowBiases: [lanes, groupStride],
      panel: [Math.max(f32Depth, codeDepth / 2), blockRows],
      prepared: [PANELS.preparedWords],
    },
  };
}

/** Scratch of a GPU: two tiles each, of elements of the dtype of x; scale and bias of 32 centered codes of a row of W. */
export const TILE_SCRATCH = { xTiles: "u8", wTiles: "u8", scales: "f32" } as const;

type TileConstants = Readonly<typeof TILES>;

export function tilesOnGpu({ tileM, tileRows, tileBytes, tiles }: TileConstants) {
  return {
    xTiles: [tiles, tileM, tileStride("u8", tileBytes)],
    wTiles: [tiles, tileRows, tileStride("u8", tileBytes)],
    // Room for elements of two bytes, of which a tile has most.
    scales: [tiles, ceil(tileBytes, 64), tileRows, 2],
  };
}

/**
 * The same of NVIDIA's GPUs, with room for x of 16 bits and words of 8: of 64 columns each, and for each half of two of
 * them scales and offsets, and sums of the rows of x.
 */
export function tilesOnCuda({ tileM, tileRows, tiles }: TileConstants) {
  return {
    xTiles: [tiles, tileM, tileStride("u8", 128)],
    wTiles: [tiles, tileRows, 64],
    scales: [2, 2, 2 * tileRows + tileM],
  };
}

/** The launch of such a tile. */
export function warpgroupsOnCuda({ m, rows, batch }: { m: number; rows: number; batch: number }, tile: WarpgroupTile) {
  const { threads, columns, stages } = WARPGROUPS;
  const [xBytes, wBytes] = [tile.m * columns * 2, (tile.rows * columns) / 2];
  return {
    threadgroups: [ceil(rows, tile.rows), ceil(m, tile.m), batch] as const,
    threadsPerThreadgroup: [threads * (tile.rows / WARPGROUPS.rows) + (tile.bringers ?? threads), 1, 1] as const,
    // The last tile of x is sums of its rows, that of W ones.
    scratch: { xTiles: [stages + 1, xBytes], wTiles: [stages + 1, wBytes], scales: [0] },
  };
}

type ProductTensors = Record<"x" | "weight" | "scales" | "biases", Tensor>;

/** Whether warpgroups have a kernel for this variant, and all begins at whole pieces. */
function tilesCanBeBrought(
  variant: string,
  { cols, groupSize }: Weights,
  { x, weight, scales, biases }: ProductTensors,
): boolean {
  const { columns, together } = WARPGROUPS;
  return (
    variant === "bf16_bf16_bf16_b4" &&
    groupSize >= columns &&
    cols % (columns * together) === 0 &&
    [x, weight].every(({ byteOffset }) => byteOffset % 16 === 0) &&
    [scales, biases].every(({ byteOffset }) => byteOffset % 8 === 0)
  );
}

/** The tile for products with many rows of bf16 x, where the device has its kernel. */
export function warpgroupTileFor(
  variant: string,
  { m, rows, cols, groupSize, batch }: Weights & { m: number; rows: number; batch: number },
  tensors: ProductTensors,
  has: (variant: string) => boolean,
): { tile: WarpgroupTile; variant: string } | undefined {
  if (m < WARPGROUPS_FROM || !tilesCanBeBrought(variant, { cols, groupSize }, tensors)) return undefined;
  const cost = (tile: (typeof WARPGROUP_TILES)[number]) =>
    ceil(ceil(rows, tile.rows) * ceil(m, tile.m) * batch, MULTIPROCESSORS) * tile.cost;
  const tile = WARPGROUP_TILES.reduce((best, each) => (cost(each) < cost(best) ? each : best));
  return has(warpgroupVariant(tile)) ? { tile, variant: warpgroupVariant(tile) } : undefined;
}

/** The same for slots of gathered products: pairs in the order of the matrices, or pairs of m rows of x each. */
export function gatheredTileFor(
  variant: string,
  { pairs, m, matrices, ordered, ...weights }: Weights & GatheredSizes,
  tensors: ProductTensors,
  has: (variant: string) => boolean,
): { tile: WarpgroupTile; variant: string } | undefined {
  // The kernel counts bytes of x in 32 bits.
  if (!tilesCanBeBrought(variant, weights, tensors) || tensors.x.byteLength > 2 ** 32) return undefined;
  const each = ordered ? pairs / matrices : m;
  const tile = GATHERED_TILES.find(({ upTo }) => each <= upTo) as WarpgroupTile;
  return has(warpgroupVariant(tile)) ? { tile, variant: warpgroupVariant(tile) } : undefined;
}

/** Whether the scratch of so many rows of x fits a device. */
type Fits = (rows: number) => boolean;

/** Rows of x that a threadgroup takes, and whether against panels; 0 rows where not one fits its memory. */
export interface Block {
  panels: boolean;
  rows: number;
}

/** The most rows of x, up to `most`, that fit; 0 if not one does. More rows never take less scratch. */
function fittingRows(most: number, fits: Fits): number {
  if (fits(most)) return most;
  let [fitting, tooMany] = [0, most];
  while (tooMany - fitting > 1) {
    const middle = (fitting + tooMany) >> 1;
    if (fits(middle)) fitting = middle;
    else tooMany = middle;
  }
  return fitting;
}

/** Panels, for m rows of x in all. */
export function panelBlock(m: number, cols: number, fits: Fits): Block {
  const most = Math.max(PANELS.paddedRows, Math.min(m, 512, Math.max(48, Math.floor(BLOCK_BYTES / (4 * cols)))));
  return { panels: true, rows: fittingRows(most, fits) };
}

/** Panels or decoding in registers, whichever is for m rows of x. */
export function blockOf(m: number, cols: number, fits: { panels: Fits; few: Fits }): Block {
  if (m > FEW.mostM) {
    const block = panelBlock(m, cols, fits.panels);
    // A panel decoded for so few rows costs more than decoding in registers.
    if (block.rows > FEW.mostM) return block;
  }
  return { panels: false, rows: fittingRows(Math.min(m, FEW.mostM), fits.few) };
}

/** The numbers of a quantized matrix or stack. */
type Numbers = Record<"weight" | "scales" | "biases", Tensor>;

/**
 * The variant of a kernel for x and these matrices, of the group size: one for one row of x where the device has it, x is in
 * bf16, and spans of codes and scales are whole pieces.
 */
export function oneRowOf<Sizes extends Weights & { m: number }>(
  kernel: Parameters<typeof scratchFits<Sizes>>[0] & Pick<Kernel, "name">,
  variant: string,
  sizes: Sizes,
  x: Tensor,
  matrices: readonly Numbers[],
  device: Device,
): { variant: string; oneRow?: OneRow } {
  const { m, cols, groupSize } = sizes;
  const row = rowVariant(variant);
  if (m !== 1 || groupSize < 64 || cols % BLOCK_COLUMNS !== 0 || cols > FEW_ON_GPU.mostSpans * BLOCK_COLUMNS)
    return { variant };
  if (!ROW_VARIANTS.includes(row) || !device.library(quant4Library).has(kernel.name, row)) return { variant };
  const scaleBytes = (matrices[0] as Numbers).scales.dtype === "f32" ? 4 : 2;
  const piece = Math.min(16, (BLOCK_COLUMNS / groupSize) * scaleBytes);
  const aligned = [x, ...matrices.map(({ weight }) => weight)].every(({ byteOffset }) => byteOffset % 16 === 0);
  if (!aligned || matrices.some((q) => q.scales.byteOffset % piece !== 0 || q.biases.byteOffset % piece !== 0))
    return { variant };
  const oneRow = { scaleBytes, mostBytes: device.limits.maxThreadgroupBytes };
  return scratchFits(kernel, { ...sizes, oneRow }, device) ? { variant: row, oneRow } : { variant };
}

/** What a check sees of a call. */
export type Seen = Parameters<typeof quantizedDims>[0];

/** The dimensions of the matrices, or of stacks, of these inputs, all with as many columns as x. */
export function jointDims(c: Seen, names: readonly string[], stacked = false) {
  const all: NonNullable<ReturnType<typeof quantizedDims>>[] = [];
  for (const name of names) {
    const dims = quantizedDims(c, PRODUCT_BITS, name);
    if (!dims) return undefined;
    const first = all[0] ?? dims;
    const weight = c.tensors[`${name}.weight`] as Tensor;
    if (dims.stack.length !== (stacked ? 1 : 0))
      c.fail(`${name}.weight`, stacked ? "have 3 dimensions [E, rows, words]" : "have 2 dimensions", weight.shape);
    for (const key of ["bits", "groupSize"] as const)
      if (dims[key] !== first[key]) c.fail(`${name}.${key}`, `be ${first[key]}, as \`${names[0]}\` has`, dims[key]);
    if (dims.cols !== first.cols)
      c.fail(`${name}.weight`, `have ${first.cols} columns, as \`${names[0]}\` has`, dims.cols);
    all.push(dims);
  }
  const { shape } = c.tensors.x as Tensor;
  const cols = all[0]?.cols;
  if (shape[shape.length - 1] !== cols) c.fail("x", `have a last dimension of ${cols} (cols)`, shape);
  return all;
}

/** Refuses matrices of these inputs whose scales have several dtypes. */
export function checkJointScales({ tensors, fail }: Seen, names: readonly string[]): void {
  const [first, ...others] = names.map((name) => [`${name}.scales`, (tensors[`${name}.scales`] as Tensor).dtype]) as [
    string,
    Dtype,
  ][];
  for (const [name, dtype] of others)
    if (dtype !== first?.[1]) fail(name, `have dtype ${first?.[1]}, as \`${first?.[0]}\` has`, dtype);
}

/** Refuses rows so long that not one of x fits the memory of a threadgroup. */
export function checkBlock({ fail }: Seen, { rows }: Block, cols: number, { limits }: Device): void {
  if (rows === 0)
    fail("weight", `have rows that fit the ${limits.maxThreadgroupBytes} bytes of a threadgroup`, `${cols} columns`);
}
