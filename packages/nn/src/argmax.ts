import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { nnLibrary } from "./library.ts";

export const argmaxKernel = defineKernel({
  library: nnLibrary,
  name: "argmax",
  variants: FLOATS,
  buffers: { logits: "read", ids: "write" },
  params: { dim: "u32" },
  launch: ({ rows }: { rows: number }) => ({ threadgroups: [rows, 1, 1], threadsPerThreadgroup: [1024, 1, 1] }),
});

/**
 * Index of the largest element of each row: `ids[..] = argmax_v logits[.., v]`.
 *
 * - `logits` [.., V] f32, f16 or bf16; `ids` [..] u32, [1] for a single row.
 * - Of equal maxima the first. NaN never wins: a row of nothing else gives 0, a row of −∞ its first −∞.
 *
 * Errors: `InvalidArgument` for shapes, dtypes and overlap.
 */
export const argmax = defineOp({
  name: "argmax",
  summary: "index of the largest logit",
  inputs: { logits: { dtype: FLOATS, shape: "... V" } },
  outputs: {
    ids: { dtype: ["u32"], shape: { text: "...", of: ({ lead }) => (lead.length > 0 ? lead : [1]) } },
  },
  params: {},
  encode({ encoder, op, inputs: { logits }, outputs: { ids }, rows, dims }) {
    encoder.dispatch(argmaxKernel, {
      op,
      variant: logits.dtype,
      buffers: { logits, ids },
      params: { dim: dims.V as number },
      sizes: { rows },
    });
  },
});
