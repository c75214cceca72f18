import { defineKernel, defineOp, FLOATS, OLD_SCRATCH, oldLaunch } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Argmax } from "./signatures.ts";
import { rowThreads } from "./threads.ts";

export const argmaxKernel = defineKernel({
  library: nnLibrary,
  name: "argmax",
  variants: FLOATS,
  buffers: { logits: "read", ids: "write" },
  params: { dim: "u32" },
  // On a GPU a key and an index of each simdgroup.
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ rows, dim }: { rows: number; dim: number }, { gpu }) => {
    const threads = gpu ? rowThreads(dim, 512) : 1;
    return {
      threadgroups: [rows, 1, 1],
      threadsPerThreadgroup: [threads, 1, 1],
      threadgroupBytes: gpu ? (8 * threads) / 32 : 0,
    };
  }),
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
