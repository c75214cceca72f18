import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Argmax } from "./signatures.ts";
import { rowThreads, SEARCH_THREADS, SIMD } from "./threads.ts";

export const argmaxKernel = defineKernel({
  library: nnLibrary,
  name: "argmax",
  variants: FLOATS,
  buffers: { logits: "read", ids: "write" },
  params: { dim: "u32" },
  // The largest element of each simdgroup: its key and its index.
  scratch: { gpu: { largest: "u32" } },
  launch: {
    cpu: ({ rows }: { rows: number; dim: number }) => ({ threadgroups: [rows, 1, 1] }),
    gpu: ({ rows, dim }) => {
      const threads = rowThreads(dim, SEARCH_THREADS);
      return {
        threadgroups: [rows, 1, 1],
        threadsPerThreadgroup: [threads, 1, 1],
        scratch: { largest: [threads / SIMD, 2] },
      };
    },
  },
});

/**
 * Index of the largest element of each row: `ids[..] = argmax_v logits[.., v]`.
 *
 * - `logits` [.., V] f32, f16 or bf16; `ids` [..] u32, [1] for a single row.
 * - Of equal maxima the first. NaN never wins: a row of nothing else gives 0, a row of −∞ its first −∞.
 *
 * Errors: `InvalidArgument` for shapes, dtypes and overlap.
 */
export const argmax: Argmax = defineOp({
  name: "argmax",
  summary: "index of the largest logit",
  inputs: { logits: { dtype: FLOATS, shape: "... V", doc: "rows to search" } },
  outputs: {
    ids: {
      dtype: ["u32"],
      shape: { text: "...", of: ({ lead }) => (lead.length > 0 ? lead : [1]) },
      doc: "column of the largest logit of each row, the first of equal ones",
    },
  },
  params: {},
  encode({ encoder, op, inputs: { logits }, outputs: { ids }, rows, dims }) {
    const dim = dims.V as number;
    encoder.dispatch(argmaxKernel, {
      op,
      variant: logits.dtype,
      buffers: { logits, ids },
      params: { dim },
      sizes: { rows, dim },
    });
  },
});
