// How products with dense weights are cut into threadgroups: matmul's and gatherMatmul's kernels share their insides.
import { type Device, DTYPES, type Dtype, FLOATS, type FloatDtype, tileStride } from "@mlxts/core";
import { SIMD } from "./threads.ts";

/** Of x, weight and out. */
export const PRODUCT_VARIANTS = FLOATS.flatMap((x) =>
  FLOATS.flatMap((weight) => FLOATS.map((out) => `${x}_${weight}_${out}`)),
);

/**
 * On a CPU `depth` of the contracted dimension of `groupColumns` columns are packed into panels at a time, and `panelRows`
 * rows of x are multiplied by a panel at a time.
 */
export const PANEL = { panelRows: 6, groupColumns: 64, depth: 128 };
/**
 * On a GPU a threadgroup has `rows` × `columns` outputs, each of its simdgroups `partRows` × `partColumns`; it takes
 * `depthBytes` of each row of x at a time.
 */
export const TILE = { threads: 128, rows: 64, columns: 64, partRows: 32, partColumns: 32, depthBytes: 64 };

/**
 * Where warpgroups multiply bf16, for GPUs of compute capability 9.0, a threadgroup has so many rows of the weight, and goes
 * through so many columns at a time; tiles of both take up its memory.
 */
export const WARPGROUPS = {
  warpgroupThreads: 384,
  warpgroupRows: 128,
  warpgroupColumns: 64,
  warpgroupBytes: 196608,
};
/** Rows of x of such a threadgroup; `cost` compares how long a multiprocessor takes for them, as measured. */
export const WARPGROUP_TILES = [
  { tokens: 64, cost: 19 },
  { tokens: 128, cost: 32 },
  { tokens: 256, cost: 55 },
] as const;
export type WarpgroupTokens = (typeof WARPGROUP_TILES)[number]["tokens"];
export const warpgroupVariant = (tokens: WarpgroupTokens) => `bf16_bf16_bf16_x${tokens}`;

/** The scratch of a CPU's threadgroup with so many rows. */
export const panelScratch = (groupRows: number) => ({
  panels: [PANEL.groupColumns, PANEL.depth],
  converted: [PANEL.panelRows, PANEL.depth],
  sums: [groupRows, PANEL.groupColumns],
});

/**
 * Processors with AMX multiply tiles. A thread packs up to `mostRows` rows of x for them, of at most `mostBytes`, and
 * multiplies them by up to `columns` columns of the weight at a time.
 */
const AMX = { level: "amx", mostRows: 512, mostBytes: 1 << 23, columns: 256 };
/** Of its kernels: what they pack of a weight at a time, and the numbers that say which rows of x a thread has packed. */
export const AMX_CONSTANTS = { leftBytes: 32768, packedWords: 2 };
/** How many bf16 hold a number. */
const BF16_PARTS = { f32: 3, f16: 2, bf16: 1 };

/** Whether a device multiplies tiles of bf16. */
export const hasTiles = (device: Device) => device.level === AMX.level;

/** Bytes of a packed row of x where a CPU multiplies k elements of it by tiles; 0 where it does not. */
export const packedRowBytes = (device: Device, x: Dtype, k: number, transpose: boolean) =>
  hasTiles(device) && transpose ? paddedRow(k) * 2 * BF16_PARTS[x as FloatDtype] : 0;

/** The most rows of x in a thread's tiles. */
export const mostTileRows = (rowBytes: number) =>
  Math.max(32, Math.min(AMX.mostRows, Math.floor(AMX.mostBytes / rowBytes / 32) * 32));

/** Columns that such rows are multiplied by at a time, and what is kept of them. */
export function tilesOnCpu(rows: number, rowBytes: number) {
  const bytes = Math.ceil(rows / 16) * 16 * rowBytes;
  const tileColumns = bytes && AMX.columns;
  return {
    tileColumns,
    scratch: {
      sums: [Math.ceil(rows / 16) * 16, Math.max(tileColumns, PANEL.groupColumns)],
      tiles: [bytes],
      left: [bytes && AMX_CONSTANTS.leftBytes],
    },
  };
}

/** Bytes of an element of x and of the weight in a GPU's threadgroup memory: f32 holds both where their dtypes differ. */
export const tileElementBytes = (x: FloatDtype, weight: FloatDtype) => (x === weight ? DTYPES[x].bytesPerElement : 4);

/** A GPU's tiles of x and of the weight, two of each; the weight's are stored as it is. */
export function tileScratch(transpose: boolean, elementBytes: number) {
  const depth = TILE.depthBytes / elementBytes;
  const rowBytes = tileStride("u8", TILE.depthBytes);
  return {
    x: [2, TILE.rows, rowBytes],
    weight: transpose ? [2, TILE.columns, rowBytes] : [2, depth, tileStride("u8", TILE.columns * elementBytes)],
  };
}

/** Multiprocessors of such a GPU, each of which has one threadgroup. */
const MULTIPROCESSORS = 132;

/** Threadgroups of a product of m rows with n outputs each. */
const warpgroupGrid = ({ m, n }: { m: number; n: number }, tokens: WarpgroupTokens) =>
  // Those with the same rows of the weight, which is the larger one, run at the same time.
  [Math.ceil(m / tokens), Math.ceil(n / WARPGROUPS.warpgroupRows), 1] as const;

/** Rows of x for each of them, of which a device has at most so many on each axis. */
export function warpgroupTokens(m: number, n: number, most: readonly number[]): WarpgroupTokens | undefined {
  const cost = ({ tokens, cost }: (typeof WARPGROUP_TILES)[number]) => {
    const grid = warpgroupGrid({ m, n }, tokens);
    if (grid.some((threadgroups, axis) => threadgroups > (most[axis] as number))) return Number.POSITIVE_INFINITY;
    return Math.ceil((grid[0] * grid[1]) / MULTIPROCESSORS) * cost;
  };
  const best = WARPGROUP_TILES.reduce((best, each) => (cost(each) < cost(best) ? each : best));
  return cost(best) < Number.POSITIVE_INFINITY ? best.tokens : undefined;
}

/** The launch of such a product. */
export function warpgroupsOnCuda(sizes: { m: number; n: number }, tokens: WarpgroupTokens) {
  const { warpgroupThreads, warpgroupRows, warpgroupColumns, warpgroupBytes } = WARPGROUPS;
  const rowBytes = warpgroupColumns * 2;
  const stages = Math.floor(warpgroupBytes / ((tokens + warpgroupRows) * rowBytes));
  return {
    threadgroups: warpgroupGrid(sizes, tokens),
    threadsPerThreadgroup: [warpgroupThreads, 1, 1] as const,
    scratch: { x: [stages, tokens, rowBytes], weight: [stages, warpgroupRows, rowBytes] },
  };
}

/** The constants of kernels for few rows of x, which each row of the weight meets once. */
export const FEW_ROWS = {
  // The most rows of x.
  shared: { rows: 8 },
  // The most elements of x, which a CPU is to keep in cache. A GPU's simdgroups, and the outputs of each.
  cpu: { mostElements: 1 << 18 },
  gpu: { mostElements: 0x7fffffff, simdgroups: 4, simdgroupColumns: 4 },
} as const;

/** Elements of a row of x in a CPU's scratch: whole vectors, two by two, of the widest. */
export const paddedRow = (k: number) => Math.ceil(k / 32) * 32;

/** How many such rows a kernel for few rows takes; 0 where not one fits. */
export const fewRows = (k: number, { rows, mostElements }: { rows: number; mostElements: number }) =>
  Math.min(rows, Math.floor(mostElements / paddedRow(k)));

/** Outputs of a CPU's threadgroup: at least 32 Ki weights, so that waking a thread pays. */
export const columnsOnCpu = (k: number) => Math.max(8, Math.ceil(32768 / k / 8) * 8);

/**
 * The same on a GPU, for n outputs in all. Each simdgroup has columns of its own, unless that occupies too
 * few: then they share, and split long rows.
 */
export const columnsOnGpu = (n: number, k: number, { simdgroups, simdgroupColumns }: (typeof FEW_ROWS)["gpu"]) =>
  n < 1024 && k >= 512 ? simdgroupColumns : simdgroups * simdgroupColumns;

/** Threads of a GPU's threadgroup, and what they share. */
export const fewRowsOnGpu = ({ simdgroups }: (typeof FEW_ROWS)["gpu"]) => ({
  threadsPerThreadgroup: [SIMD * simdgroups, 1, 1] as const,
  scratch: { partial: [simdgroups, SIMD] },
});
