// Kernels for the tests of core: they spin, fail, count, and report their launches.
import { defineKernel, defineLibrary, defineOp } from "../../src/index.ts";

type Axes = readonly [number, number, number];
const oneThread = (_: object) => ({ threadgroups: [1, 1, 1] as const });
const oneThreadEach = ({ groups }: { groups: number }) => ({ threadgroups: [groups, 1, 1] as const });
const withScratch = ({ groups, scratch }: { groups: Axes; scratch: number }) => ({
  threadgroups: groups,
  scratch: { bytes: [scratch] },
  params: { scratchBytes: scratch },
});

export const probeLibrary = defineLibrary("probe", import.meta.url);

/** out[i] = x[i] + 1, after `microseconds` of work in each threadgroup. */
export const incrementKernel = defineKernel({
  library: probeLibrary,
  name: "increment",
  variants: ["u32"],
  buffers: { x: "read", out: "write" },
  params: { perGroup: "u32", microseconds: "u32" },
  inPlace: [["out", "x"]],
  launch: { cpu: oneThreadEach, gpu: oneThreadEach },
});

/** total[0] += x[0] + y[0] (y may be absent): reads and writes one place. */
export const accumulateKernel = defineKernel({
  library: probeLibrary,
  name: "accumulate",
  variants: ["u32"],
  buffers: { x: "read", y: "read?", total: "readWrite" },
  early: ["x", "y"],
  params: {},
  launch: { cpu: oneThread, gpu: oneThread },
});

/** Fails at the first threadgroup whose element is at least `limit`. */
export const limitKernel = defineKernel({
  library: probeLibrary,
  name: "limit",
  variants: ["u32"],
  buffers: { x: "read", out: "write" },
  params: { limit: "u32" },
  faults: { tooLarge: ([x], { limit }) => `\`x\` must be < ${limit}, got ${x}` },
  launch: { cpu: oneThreadEach, gpu: oneThreadEach },
});

/** Writes the launch that each threadgroup got. */
export const launchKernel = defineKernel({
  library: probeLibrary,
  name: "launch",
  variants: ["u32"],
  buffers: { absent: "read?", out: "write" },
  params: { u: "u32", i: "i32", f: "f32" },
  launchParams: { cpu: { scratchBytes: "u32" }, gpu: { scratchBytes: "u32" } },
  scratch: { cpu: { bytes: "u8" }, gpu: { bytes: "u8" } },
  launch: { cpu: withScratch, gpu: withScratch },
});

/** Fills three scratch arrays, of which one has no elements, and writes `extra` bytes behind the array number `array`. */
export const overrunKernel = defineKernel({
  library: probeLibrary,
  name: "overrun",
  variants: ["u32"],
  buffers: { out: "write" },
  params: { array: "u32", extra: "u32" },
  constants: { shared: { heads: 3 }, cpu: { rows: 5 }, gpu: { rows: 7 } },
  launchParams: { cpu: { columns: "u32" } },
  scratch: { cpu: { state: "f32", nothing: "u8", codes: "u16" } },
  launch: {
    cpu: ({ groups, columns }: { groups: number; columns: number }, { constants: { heads, rows } }) => ({
      threadgroups: [groups, 1, 1],
      scratch: { state: [heads, rows], nothing: [0], codes: [rows, columns] },
      params: { columns },
    }),
  },
});

/**
 * Of each threadgroup whether it found the scratch fresh (0), as a call for this dispatch left it (1) or something else (2),
 * or as an earlier threadgroup of its call left it (3).
 */
export const keptKernel = defineKernel({
  library: probeLibrary,
  name: "kept",
  variants: ["u32"],
  buffers: { out: "write" },
  params: { tag: "u32" },
  scratch: { cpu: { left: "u32" } },
  launch: { cpu: ({ groups }: { groups: number }) => ({ threadgroups: [groups, 1, 1], scratch: { left: [1] } }) },
});

/** Every element through simd.h: loaded, widened, rounded and stored by vectors, with a partial one at the end. */
export const convertKernel = defineKernel({
  library: probeLibrary,
  name: "convert",
  variants: ["f32_bf16", "f32_f16", "bf16_f32", "f16_f32", "bf16_bf16", "f16_f16"],
  buffers: { x: "read", out: "write", scalar: "write" },
  params: { count: "u32" },
  launch: { cpu: oneThread, gpu: oneThread },
});

/** exp, log, sigmoid and silu of simd.h, and silu for a result that is rounded to bf16. */
export const functionsKernel = defineKernel({
  library: probeLibrary,
  name: "functions",
  variants: ["f32"],
  buffers: { x: "read", exp: "write", log: "write", sigmoid: "write", silu: "write", siluForBf16: "write" },
  params: { count: "u32" },
  launch: { cpu: oneThread, gpu: oneThread },
});

/** x + 1, with work that takes time. */
export const increment = defineOp({
  name: "increment",
  summary: "x + 1",
  inputs: { x: { dtype: ["u32"], shape: "N" } },
  outputs: { out: { dtype: ["=x"], shape: "N", inPlace: ["x"] } },
  params: {
    groups: { kind: "number", default: 1, integer: true, min: 1 },
    microseconds: { kind: "number", default: 0, integer: true, min: 0 },
  },
  check: ({ options, dims, fail }) => {
    if ((dims.N as number) % options.groups !== 0) fail("groups", `divide N = ${dims.N}`, options.groups);
  },
  encode({ encoder, op, inputs: { x }, outputs: { out }, options: { groups, microseconds } }) {
    encoder.dispatch(incrementKernel, {
      op,
      variant: "u32",
      buffers: { x, out },
      params: { perGroup: x.size / groups, microseconds },
      sizes: { groups },
    });
  },
});

/** A copy of x whose elements must stay below `limit`. */
export const limit = defineOp({
  name: "limit",
  summary: "x where x < limit, else a failure",
  inputs: { x: { dtype: ["u32"], shape: "N" } },
  outputs: { out: { dtype: ["=x"], shape: "N" } },
  params: { limit: { kind: "number", integer: true, min: 0, max: 0xffffffff } },
  encode({ encoder, op, inputs: { x }, outputs: { out }, options }) {
    encoder.dispatch(limitKernel, {
      op,
      variant: "u32",
      buffers: { x, out },
      params: { limit: options.limit },
      sizes: { groups: x.size },
    });
  },
});
