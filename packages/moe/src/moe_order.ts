import { defineKernel, defineOp } from "@mlxts/core";
import { moeLibrary } from "./library.ts";
import type { MoeOrder } from "./signatures.ts";
import { SIMD } from "./threads.ts";

export const moeOrderKernel = defineKernel({
  library: moeLibrary,
  name: "moe_order",
  variants: ["u32"],
  buffers: { indices: "read", order: "write", offsets: "write" },
  params: { pairs: "u32", experts: "u32" },
  faults: {
    index: ([index, position], { experts }) =>
      `\`indices\` must be from 0 to ${experts - 1}, got ${index} at position ${position}`,
  },
  // Experts of a GPU's threadgroup, each a simdgroup.
  constants: { gpu: { expertsTogether: 8 } },
  // next: where the next pair of each expert goes.
  scratch: { cpu: { next: "u32" } },
  launch: {
    cpu: ({ experts }: { experts: number }) => ({ threadgroups: [1, 1, 1], scratch: { next: [experts + 1] } }),
    gpu: ({ experts }, { constants: { expertsTogether } }) => ({
      threadgroups: [Math.ceil(experts / expertsTogether), 1, 1],
      threadsPerThreadgroup: [SIMD * expertsTogether, 1, 1],
    }),
  },
});

/**
 * Orders the choices of all tokens by expert, so that the rows of an expert are one matrix product: `order[offsets[e]] …
 * order[offsets[e + 1] − 1]` are the pairs (token n, slot j), each as the number n · topK + j, whose index is e, in
 * ascending order.
 *
 * - `indices` [N, topK] u32, from `moeRoute`. `order` i32 [N · topK], a permutation; `offsets` i32 [experts + 1].
 * - `experts`: how many there are, 1 … 65536.
 *
 * Errors: `InvalidArgument` for shapes, dtypes, options and overlap. An index of `experts` or more fails the submission
 * with `InvalidArgument`, naming the first such index and its position in `indices`; nothing is written.
 */
export const moeOrder: MoeOrder = defineOp({
  name: "moeOrder",
  summary: "tokens' choices in the order of experts",
  inputs: { indices: { dtype: ["u32"], shape: "N topK", doc: "the experts of each token" } },
  outputs: {
    order: {
      dtype: ["i32"],
      shape: { text: "N·topK", of: ({ dims }) => [(dims.N as number) * (dims.topK as number)] },
      doc: "the choices, as n · topK + j, by expert",
    },
    offsets: {
      dtype: ["i32"],
      shape: { text: "experts + 1", of: ({ options }) => [(options.experts as number) + 1] },
      doc: "where the choices of each expert begin in `order`, and where the last ones end",
    },
  },
  params: { experts: { kind: "number", integer: true, min: 1, max: 65536, doc: "how many experts there are" } },
  rules({ dims, fail }) {
    const pairs = (dims.N as number) * (dims.topK as number);
    if (pairs > 0x7fffffff) fail("indices", "have at most 2³¹ − 1 elements", pairs);
  },
  encode({ encoder, op, inputs: { indices }, outputs: { order, offsets }, options: { experts } }) {
    encoder.dispatch(moeOrderKernel, {
      op,
      variant: "u32",
      buffers: { indices, order, offsets },
      params: { pairs: indices.size, experts },
      sizes: { experts },
    });
  },
});
