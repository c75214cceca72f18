// Kernels on the tiles of native/metal_tile.h: the example of the README, and two that show each role to a test.
import { defineKernel, FLOATS, tileStride } from "../../src/index.ts";
import { probeLibrary } from "./probe.ts";

const TILE = { threads: 128, rows: 64, columns: 64, depth: 16 };

/** out [m, n] = a [m, k] · b [k, n], sums in f32. */
export const productKernel = defineKernel({
  library: probeLibrary,
  name: "product",
  variants: FLOATS,
  buffers: { a: "read", b: "read", out: "write" },
  params: { m: "u32", n: "u32", k: "u32" },
  constants: { gpu: TILE },
  scratch: { gpu: { a: "f32", b: "f32" } },
  launch: {
    gpu: ({ m, n }: { m: number; n: number }) => ({
      threadgroups: [Math.ceil(n / TILE.columns), Math.ceil(m / TILE.rows), 1],
      threadsPerThreadgroup: [TILE.threads, 1, 1],
      // Room for elements of f32, the widest.
      scratch: { a: [TILE.rows, tileStride("f32", TILE.depth)], b: [TILE.depth, tileStride("f32", TILE.columns)] },
    }),
  },
});

/** Sizes of the one tile of each kind in `tile_roles`. */
export const ROLES = { m: 32, n: 64, k: 32, last: 16 };

/**
 * One simdgroup. sums [m, n] = factors · (a · b), where a and b are stored transposed in the variants of those names;
 * rows [4, m] are the largest element and the sum of each row of sums, and two sums of each row of a; out [m, last] =
 * factors · round(sums) · c [n, last], where every other piece of four elements of c is doubled.
 */
export const tileRolesKernel = defineKernel({
  library: probeLibrary,
  name: "tile_roles",
  variants: FLOATS.flatMap((dtype) => [dtype, `${dtype}_transposed`]),
  buffers: { a: "read", b: "read", c: "read", factors: "read", sums: "write", rows: "write", out: "write" },
  params: {},
  constants: { gpu: ROLES },
  scratch: { gpu: { a: "f32", b: "f32", c: "f32" } },
  launch: {
    gpu: (_: object) => ({
      threadgroups: [1, 1, 1],
      threadsPerThreadgroup: [32, 1, 1],
      scratch: {
        a: [ROLES.m, tileStride("f32", ROLES.k)],
        b: [ROLES.n, tileStride("f32", ROLES.n)],
        c: [ROLES.n, tileStride("f32", ROLES.last)],
      },
    }),
  },
});

/** Sizes of the product of two dtypes. */
export const MIXED = { m: 16, n: 32, k: 32 };

/** One simdgroup: out [m, n] = a · b in dtypes of which one is f32; with `transposed` both are stored transposed. */
export const mixedProductKernel = defineKernel({
  library: probeLibrary,
  name: "mixed_product",
  variants: ["f16_f32", "f32_f16", "bf16_f32", "f32_bf16"],
  buffers: { a: "read", b: "read", out: "write" },
  params: { transposed: "u32" },
  constants: { gpu: MIXED },
  scratch: { gpu: { a: "f32", b: "f32" } },
  launch: {
    gpu: (_: object) => ({
      threadgroups: [1, 1, 1],
      threadsPerThreadgroup: [32, 1, 1],
      scratch: { a: [MIXED.k, tileStride("f32", MIXED.k)], b: [MIXED.n, tileStride("f32", MIXED.k)] },
    }),
  },
});
