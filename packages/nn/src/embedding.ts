import { defineKernel, defineOp, FLOATS, type FloatDtype } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Embedding } from "./signatures.ts";
import { rowThreads, vectorElements } from "./threads.ts";

export const embeddingKernel = defineKernel({
  library: nnLibrary,
  name: "embedding",
  variants: FLOATS.flatMap((weight) => FLOATS.map((out) => `${weight}_${out}`)),
  buffers: { ids: "read", weight: "read", out: "write" },
  params: { vocabulary: "u32", dim: "u32", signedIds: "u32" },
  faults: {
    id: ([id, position], { vocabulary, signedIds }) =>
      `\`ids\` must be from 0 to ${vocabulary - 1}, got ${signedIds ? id | 0 : id} at position ${position}`,
  },
  launch: {
    cpu: ({ tokens }: { tokens: number; dim: number }) => ({ threadgroups: [tokens, 1, 1] }),
    gpu: ({ tokens, dim }) => {
      const threads = rowThreads(dim);
      return {
        threadgroups: [tokens, Math.ceil(dim / vectorElements(threads)), 1],
        threadsPerThreadgroup: [threads, 1, 1],
      };
    },
  },
});

/**
 * Rows of a table: `out[.., :] = weight[ids[..], :]`.
 *
 * - `ids` [..] i32 or u32; `weight` [V, D] f32, f16 or bf16; `out` [.., D].
 * - `outDtype` f32, f16 or bf16 (default: that of `weight`). Equal dtypes are copied bit by bit, others rounded once.
 *
 * Errors: `InvalidArgument` for shapes, dtypes, options and overlap. An id outside 0 … V − 1 fails the submission with
 * `InvalidArgument`, naming the id and its position in `ids`; its row is not written.
 */
export const embedding: Embedding = defineOp({
  name: "embedding",
  summary: "weight[ids]",
  inputs: {
    ids: { dtype: ["i32", "u32"], shape: "...", doc: "rows of the table to take, each from 0 to V − 1" },
    weight: { dtype: FLOATS, shape: "V D", doc: "the table" },
  },
  outputs: {
    out: {
      dtype: ({ options, tensors }) => (options.outDtype ?? tensors.weight?.dtype) as FloatDtype,
      shape: "... D",
      doc: "the rows taken",
    },
  },
  params: {
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of out; default that of weight" },
  },
  encode({ encoder, op, inputs: { ids, weight }, outputs: { out }, dims }) {
    encoder.dispatch(embeddingKernel, {
      op,
      variant: `${weight.dtype}_${out.dtype}`,
      buffers: { ids, weight, out },
      params: { vocabulary: dims.V as number, dim: dims.D as number, signedIds: ids.dtype === "i32" ? 1 : 0 },
      sizes: { tokens: ids.size, dim: dims.D as number },
    });
  },
});
