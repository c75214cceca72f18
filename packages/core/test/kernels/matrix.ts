// Kernels that show the matrix headers of core/native to tests: transposes, packed and strided products, dot products, sums.
import { defineKernel } from "../../src/index.ts";
import { probeLibrary } from "./probe.ts";

const launch = { cpu: (_: object) => ({ threadgroups: [1, 1, 1] as const }) };

/** to[c][r] = from[r][c] of matrices whose rows lie a stride apart. */
export const transposeMatrixKernel = defineKernel({
  library: probeLibrary,
  name: "transpose_matrix",
  variants: ["f32"],
  buffers: { from: "read", to: "readWrite" },
  params: { rows: "u32", columns: "u32", fromStride: "u32", toStride: "u32" },
  launch,
});

/** c = a · b, plus factors[r] times row r of c: b in panels, [k, n] or (`transposed`) [n, k]. The second dtype is that of
 * b; `bf16x2` is bf16 as the processor multiplies it. */
export const multiplyPanelsKernel = defineKernel({
  library: probeLibrary,
  name: "multiply_panels",
  variants: ["f32", "f16", "bf16", "bf16x2"],
  buffers: { a: "read", b: "read", factors: "read?", panels: "readWrite", c: "readWrite" },
  params: { m: "u32", n: "u32", k: "u32", cStride: "u32", transposed: "u32" },
  launch,
});

/** c = factors · a · b in strided tiles, where row r has the columns of `for_tiles`: all n, or those up to r. `written`
 * counts how often each element was stored. */
export const multiplyTilesKernel = defineKernel({
  library: probeLibrary,
  name: "multiply_tiles",
  variants: ["f32", "bf16x2"],
  buffers: { a: "read", b: "read", factors: "read", rounded: "readWrite", c: "readWrite", written: "readWrite" },
  params: { m: "u32", n: "u32", k: "u32", stride: "u32", triangle: "u32" },
  launch,
});

/** w · x over n elements, read in the order in which vectors of w are loaded; x in that order, and back in its own. */
export const dotInLoadOrderKernel = defineKernel({
  library: probeLibrary,
  name: "dot_in_load_order",
  variants: ["f32_f32", "f32_bf16", "f16_bf16", "bf16_f32", "bf16_f16", "bf16_bf16"],
  buffers: { w: "read", x: "read", ordered: "write", back: "readWrite", dot: "write" },
  params: { n: "u32" },
  launch,
});

/** Of x [16, 16]: the sums of its rows, as far as the vectors have lanes, by each function; the largest of each row;
 * the products of bytes, four to a lane. */
export const laneSumsKernel = defineKernel({
  library: probeLibrary,
  name: "lane_sums",
  variants: ["f32"],
  buffers: {
    x: "read",
    bytes: "read",
    lanes: "write",
    four: "write",
    all: "write",
    one: "write",
    most: "write",
    dots: "write",
  },
  params: {},
  launch,
});
