import { type CommandEncoder, defineKernel, defineOp, FLOATS, type OpContext, type Tensor } from "@mlxts/core";
import { moeLibrary } from "./library.ts";
import type { MoeCombine } from "./signatures.ts";
import { rowThreads } from "./threads.ts";

/** Where each pair of a token and a slot lies in an order: the order's inverse. */
export const moePlacesKernel = defineKernel({
  library: moeLibrary,
  name: "moe_places",
  variants: ["i32"],
  buffers: { order: "read", places: "write" },
  params: { pairs: "u32" },
  faults: {
    order: ([pair, position], { pairs }) =>
      `\`order\` must be from 0 to ${pairs - 1}, got ${pair | 0} at position ${position}`,
  },
  constants: { cpu: { block: 1 << 14 }, gpu: { block: 256 } },
  launch: {
    cpu: ({ pairs }: { pairs: number }, { constants }) => ({
      threadgroups: [Math.ceil(pairs / constants.block), 1, 1],
    }),
    gpu: ({ pairs }, { constants }) => ({
      threadgroups: [Math.ceil(pairs / constants.block), 1, 1],
      threadsPerThreadgroup: [constants.block, 1, 1],
    }),
  },
});

/** What is added up, for kernels. */
export const COMBINED = {
  y: "read",
  weights: "read",
  order: "read?",
  places: "read?",
  shared: "read?",
  sharedGate: "read?",
  residual: "read?",
} as const;

export const COMBINE_FAULTS = {
  missing: ([pair]: readonly number[]) => `\`order\` must be a permutation, got one without ${pair}`,
};

export const moeCombineKernel = defineKernel({
  library: moeLibrary,
  name: "moe_combine",
  variants: FLOATS,
  buffers: { ...COMBINED, out: "write" },
  params: { tokens: "u32", topK: "u32", dim: "u32" },
  inPlace: [["out", "residual"]],
  faults: COMBINE_FAULTS,
  launch: {
    cpu: ({ tokens }: { tokens: number; dim: number }) => ({ threadgroups: [tokens, 1, 1] }),
    gpu: ({ tokens, dim }) => {
      const threads = rowThreads(dim);
      return {
        threadgroups: [tokens, Math.ceil(dim / (4 * threads)), 1],
        threadsPerThreadgroup: [threads, 1, 1],
      };
    },
  },
});

/** What is added up, for ops. */
export const COMBINE_INPUTS = {
  y: { dtype: FLOATS, shape: "N topK D", doc: "what the experts gave" },
  weights: { dtype: ["f32"], shape: "N topK", doc: "from `moeRoute`" },
  order: {
    dtype: ["i32"],
    shape: {
      text: "N·topK",
      of: ({ dims }: Pick<OpContext, "dims">) => [(dims.N as number) * (dims.topK as number)],
    },
    optional: true,
    doc: "from `moeOrder`, where rows of `y` lie in the order of experts",
  },
  shared: { dtype: ["=y"], shape: "N D", optional: true, doc: "what the shared expert gave" },
  sharedGate: { dtype: ["=y"], shape: "N 1", optional: true, doc: "its gate, before the sigmoid" },
  residual: { dtype: ["=y"], shape: "N D", optional: true, doc: "added at the end" },
} as const;

export function checkCombined({ dims, tensors, fail }: Pick<OpContext, "dims" | "tensors" | "fail">): void {
  if (tensors.sharedGate && !tensors.shared) fail("sharedGate", "be given with `shared`", "no `shared`");
  const pairs = (dims.N as number) * (dims.topK as number);
  if (pairs > 0x7fffffff) fail("weights", "have at most 2³¹ − 1 elements", pairs);
}

/** The inverse of an order, as a tensor of the encoder's. */
export function encodePlaces(encoder: CommandEncoder, op: string, order: Tensor | undefined): Tensor | undefined {
  if (!order) return undefined;
  const places = encoder.empty("i32", [order.size]);
  encoder.dispatch(moePlacesKernel, {
    op,
    variant: "i32",
    buffers: { order, places },
    params: { pairs: order.size },
    sizes: { pairs: order.size },
  });
  return places;
}

/**
 * Adds up what the experts of each token gave:
 * `out[n] = Σ_j weights[n, j] · y[n, j] + shared[n] · σ(sharedGate[n]) + residual[n]`.
 *
 * - `y` [N, topK, D] f32, f16 or bf16. With `order` [N · topK] i32, of `moeOrder`, the rows of y lie in that order: row i
 *   belongs to the pair `order[i]` = n · topK + j.
 * - `weights` [N, topK] f32. `shared`, `residual` [N, D] and `sharedGate` [N, 1], all optional, dtype of y; `sharedGate`
 *   only with `shared`.
 * - `out` [N, D], dtype of y; it may be exactly `residual`.
 *
 * Sums in f32: slots in ascending order, then the shared expert, then the residual; one rounding. Errors:
 * `InvalidArgument` for shapes, dtypes, options and overlap; an `order` that is no permutation fails the submission.
 */
export const moeCombine: MoeCombine = defineOp({
  name: "moeCombine",
  summary: "Σ_j weights[n, j] · y[n, j] + shared · σ(sharedGate) + residual",
  inputs: COMBINE_INPUTS,
  outputs: { out: { dtype: ["=y"], shape: "N D", inPlace: ["residual"], doc: "a row for each token" } },
  params: {},
  rules: checkCombined,
  encode({ encoder, op, inputs, outputs: { out }, dims }) {
    const { y, weights, order, shared, sharedGate, residual } = inputs;
    const { N, topK, D } = dims as Record<"N" | "topK" | "D", number>;
    encoder.dispatch(moeCombineKernel, {
      op,
      variant: y.dtype,
      buffers: { y, weights, order, places: encodePlaces(encoder, op, order), shared, sharedGate, residual, out },
      params: { tokens: N, topK, dim: D },
      sizes: { tokens: N, dim: D },
    });
  },
});
