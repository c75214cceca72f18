import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Rope } from "./signatures.ts";
import { MOST_THREADS, rowsTogether, SIMD } from "./threads.ts";

interface Sizes {
  tokens: number;
  heads: number;
  pairs: number;
}

export const ropeKernel = defineKernel({
  library: nnLibrary,
  name: "rope",
  variants: FLOATS,
  buffers: { x: "read", positions: "read", inverseFrequencies: "read", out: "write" },
  early: ["positions", "inverseFrequencies"],
  params: { heads: "u32", dim: "u32", pairs: "u32", interleaved: "u32" },
  inPlace: [["out", "x"]],
  // Of the rotated elements of a head, in the order in which they are multiplied.
  scratch: { cpu: { cosines: "f32", sines: "f32" } },
  launch: {
    cpu: ({ tokens, pairs }: Sizes) => ({
      threadgroups: [tokens, 1, 1],
      scratch: { cosines: [2 * pairs], sines: [2 * pairs] },
    }),
    // A thread makes the angle of a pair and rotates it in some heads: in one when there are few tokens.
    gpu: ({ tokens, heads, pairs }) => {
      const threads = Math.min(MOST_THREADS, SIMD * Math.ceil(pairs / SIMD));
      const together = rowsTogether(heads, threads);
      const headsPerThread = tokens < 64 ? 1 : 4;
      return {
        threadgroups: [tokens, Math.ceil(heads / (together * headsPerThread)), 1],
        threadsPerThreadgroup: [threads, together, 1],
      };
    },
  },
});

/**
 * Rotary position embedding of the first R = 2·P elements of each head; the other D − R are copied.
 * With θ = positions[b, t] · inverseFrequencies[i], the pair (a, c) becomes (a·cos θ − c·sin θ, c·cos θ + a·sin θ).
 *
 * - `x`, `out` [B, T, H, D] f32, f16 or bf16; `positions` [B, T] i32, negative ones too; `inverseFrequencies` [P] f32,
 *   2·P ≤ D. `out` may be exactly `x`.
 * - `pairing` `half` (default): elements (i, i + P), as GPT-NeoX, Llama and Qwen; `interleaved`: (2i, 2i + 1), as
 *   the original paper and DeepSeek.
 *
 * Angles are evaluated in f64 on the CPU (64-bit integers on a GPU), so that cosines and sines are right to f32 at any
 * position; the rotation is f32, rounded once. Errors: `InvalidArgument` for shapes, dtypes, options and partial overlap.
 * Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021.
 */
export const rope: Rope = defineOp({
  name: "rope",
  summary: "pairs of x rotated by positions · inverseFrequencies",
  inputs: {
    x: { dtype: FLOATS, shape: "B T H D", doc: "queries or keys of each head" },
    positions: { dtype: ["i32"], shape: "B T", doc: "position of each token" },
    inverseFrequencies: {
      dtype: ["f32"],
      shape: "P",
      doc: "angle of each pair for one position, in radians; the first 2·P columns are rotated",
    },
  },
  outputs: { out: { dtype: ["=x"], shape: "B T H D", inPlace: ["x"], doc: "the rotated vectors" } },
  params: {
    pairing: {
      kind: "choice",
      values: ["half", "interleaved"],
      default: "half",
      doc: "which elements form a pair: (i, i + P) or (2i, 2i + 1)",
    },
  },
  relations({ dims: { P, D }, fail }) {
    if (P !== undefined && D !== undefined && 2 * P > D)
      fail("inverseFrequencies", `have at most D / 2 = ${D / 2} elements`, P);
  },
  encode({ encoder, op, inputs: { x, positions, inverseFrequencies }, outputs: { out }, options, dims }) {
    const pairs = dims.P as number;
    encoder.dispatch(ropeKernel, {
      op,
      variant: x.dtype,
      buffers: { x, positions, inverseFrequencies, out },
      params: {
        heads: dims.H as number,
        dim: dims.D as number,
        pairs,
        interleaved: options.pairing === "interleaved" ? 1 : 0,
      },
      sizes: { tokens: positions.size, heads: dims.H as number, pairs },
    });
  },
});
