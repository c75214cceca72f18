import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";

/** Rows of one threadgroup of a CPU. */
const ROWS = 32;
/** Threads of one threadgroup of a GPU, each with one element. */
const THREADS = 256;

export const deltaGatesKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "delta_gates",
  variants: FLOATS,
  buffers: { a: "read", b: "read", aLog: "read", dtBias: "read", g: "write", beta: "write" },
  params: { rows: "u32", heads: "u32", rowsPerThreadgroup: "u32", betaScale: "f32", lowerBound: "f32" },
  launch: ({ rows, heads }: { rows: number; heads: number }, { gpu }) => ({
    threadgroups: [Math.ceil(gpu ? (rows * heads) / THREADS : rows / ROWS), 1, 1],
    threadsPerThreadgroup: [THREADS, 1, 1],
  }),
});

/**
 * The gates of the delta rule from the projections of a layer: `g = −exp(aLog) · softplus(a + dtBias)` and
 * `beta = sigmoid(b) · betaScale`. With `lowerBound` lb < 0: `g = lb · sigmoid(exp(aLog) · (a + dtBias))`.
 *
 * - `a`, `b` [.., H] f32, f16 or bf16, one dtype; `aLog`, `dtBias` [H] f32; `g`, `beta` [.., H] f32. g is a natural
 *   logarithm per token, not cumulated.
 * - `betaScale` > 0 (default 1): 2 allows negative eigenvalues of the update.
 * - softplus(x) is x above 20, else log(1 + exp x).
 *
 * All arithmetic in f32. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024.
 */
export const deltaGates = defineOp({
  name: "deltaGates",
  summary: "g = -exp(aLog) · softplus(a + dtBias), beta = sigmoid(b) · betaScale",
  inputs: {
    a: { dtype: FLOATS, shape: "... H" },
    b: { dtype: ["=a"], shape: "... H" },
    aLog: { dtype: ["f32"], shape: "H" },
    dtBias: { dtype: ["f32"], shape: "H" },
  },
  outputs: {
    g: { dtype: ["f32"], shape: "... H" },
    beta: { dtype: ["f32"], shape: "... H" },
  },
  params: {
    betaScale: { kind: "number", default: 1, above: 0, doc: "factor of beta" },
    lowerBound: { kind: "number", optional: true, doc: "bounded gate: g stays above this negative number" },
  },
  check({ options: { lowerBound }, fail }) {
    if (lowerBound !== undefined && lowerBound >= 0) fail("lowerBound", "be < 0", lowerBound);
  },
  encode({ encoder, op, inputs: { a, b, aLog, dtBias }, outputs: { g, beta }, options, rows, dims }) {
    encoder.dispatch(deltaGatesKernel, {
      op,
      variant: a.dtype,
      buffers: { a, b, aLog, dtBias, g, beta },
      params: {
        rows,
        heads: dims.H as number,
        rowsPerThreadgroup: ROWS,
        betaScale: options.betaScale,
        lowerBound: options.lowerBound ?? 0,
      },
      sizes: { rows, heads: dims.H as number },
    });
  },
});
