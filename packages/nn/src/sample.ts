import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { encodeArgmax } from "./argmax.ts";
import { nnLibrary } from "./library.ts";
import type { Sample } from "./signatures.ts";
import { CUDA_SEARCH_THREADS, rowThreads, SEARCH_THREADS, SIMD } from "./threads.ts";

/** Sums of a table: one for each value of the eight bits that are searched at a time. */
const BINS = 256;

/** One threadgroup to a row. */
const sampleOnGpu =
  (most: number) =>
  ({ rows, dim }: { rows: number; dim: number }) => {
    const threads = rowThreads(dim, most);
    return {
      threadgroups: [rows, 1, 1] as const,
      threadsPerThreadgroup: [threads, 1, 1] as const,
      scratch: {
        sumsLow: [2, BINS],
        sumsHigh: [2, BINS],
        foundKey: [1],
        foundRest: [1],
        foundWeight: [1],
        largestOfSimdgroups: [threads / SIMD, 2],
        largestOfThreads: [threads],
      },
    };
  };

export const sampleKernel = defineKernel({
  library: nnLibrary,
  name: "sample",
  variants: FLOATS,
  buffers: { logits: "read", step: "read", weights: "write", ids: "write" },
  // `topP` in units of 2⁻³², 0: off.
  params: { dim: "u32", topK: "u32", topP: "u32", inverseTemperature: "f32", seed: "u32" },
  constants: {
    // The weight of the largest logit.
    shared: { largestWeight: 2 ** 30 },
    // Logits of a block, which is skipped as a whole where it has nothing to find.
    cpu: { block: 256 },
    gpu: { bins: BINS },
  },
  scratch: {
    // Of each block the sum of its weights, its largest logit and its largest weight.
    cpu: { mass: "i64", largest: "f32", heaviest: "u32" },
    // Two tables of sums of 64 bits, used in turn; what a search has found; the largest logits.
    gpu: {
      sumsLow: "u32",
      sumsHigh: "u32",
      foundKey: "u32",
      foundRest: "i64",
      foundWeight: "i64",
      largestOfSimdgroups: "u32",
      largestOfThreads: "u32",
    },
  },
  launch: {
    cpu: ({ rows, dim }: { rows: number; dim: number }, { constants }) => {
      const blocks = [Math.ceil(dim / constants.block)];
      return { threadgroups: [rows, 1, 1], scratch: { mass: blocks, largest: blocks, heaviest: blocks } };
    },
    gpu: sampleOnGpu(SEARCH_THREADS),
    cuda: sampleOnGpu(CUDA_SEARCH_THREADS),
  },
});

/**
 * Draws one id from each row: softmax(logits / temperature), kept to the `topK` likeliest, of these to the smallest set
 * of the likeliest whose share reaches `topP` (at least one), and drawn in proportion. Of equal logits lower ids come first.
 *
 * - `logits` [B, V] f32, f16 or bf16; `step` [1] u32, the position in the random stream; `ids` [B] u32.
 * - `temperature` ≥ 0; 0 takes the largest logit (`argmax`). `topK` an integer ≥ 0, 0 (default): all. `topP` in (0, 1],
 *   1 (default): all. `seed` a u32.
 * - NaN and −∞ are never drawn; a row of nothing else gives what `argmax` gives. If there is +∞, only +∞ is drawn.
 *
 * The draw: r = o₁·2³² + o₀ with (o₀, o₁, ..) = Philox4x32-10 of counter (step, row, 0, 0) and key (seed, 0). Weights
 * wᵢ = exp((logitᵢ − max) / temperature) are held in units of 2⁻³⁰ of the largest, so their sums are exact in any
 * order; what rounds to 0 is never drawn. The id is the first whose running sum, in the order of ids, exceeds
 * ⌊r·Σw / 2⁶⁴⌋. No sort: thresholds are found by bisection.
 *
 * `step` is a tensor, so that a recorded decode step can be replayed. Errors: `InvalidArgument` for shapes, dtypes,
 * options and overlap. Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011; Holtzman et al., "The Curious
 * Case of Neural Text Degeneration", 2019.
 */
export const sample: Sample = defineOp({
  name: "sample",
  summary: "one id per row, drawn from softmax(logits / temperature)",
  inputs: {
    logits: { dtype: FLOATS, shape: "B V", doc: "a row for each sequence" },
    step: {
      dtype: ["u32"],
      shape: "1",
      doc: "number of this draw: each step draws from its own part of the random stream",
    },
  },
  outputs: { ids: { dtype: ["u32"], shape: "B", doc: "the column drawn from each row" } },
  params: {
    temperature: { kind: "number", min: 0, f64: true, doc: "0: the largest logit" },
    topK: { kind: "number", integer: true, min: 0, default: 0, doc: "how many of the likeliest; 0: all" },
    topP: { kind: "number", above: 0, max: 1, f64: true, default: 1, doc: "share of the likeliest" },
    seed: { kind: "number", integer: true, min: 0, max: 0xffffffff, doc: "key of the random stream" },
  },
  encode({ encoder, op, inputs: { logits, step }, outputs: { ids }, options, dims }) {
    const { temperature, topK, topP, seed } = options;
    const rows = dims.B as number;
    const dim = dims.V as number;
    if (temperature === 0) {
      encodeArgmax(encoder, op, logits, ids, { rows, dim });
      return;
    }
    encoder.dispatch(sampleKernel, {
      op,
      variant: logits.dtype,
      buffers: { logits, step, weights: encoder.empty("u32", [rows, dim]), ids },
      params: {
        dim,
        topK: Math.min(topK, dim) % dim,
        topP: topP === 1 ? 0 : Math.max(Math.floor(topP * 2 ** 32), 1),
        // Kept finite and above 0 in f32: the product with an infinite difference must not be NaN.
        inverseTemperature: Math.min(Math.max(1 / temperature, 2 ** -126), 2 ** 127),
        seed,
      },
      sizes: { rows, dim },
    });
  },
});
