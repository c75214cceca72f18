import { defineKernel, defineOp, FLOATS, type OpContext, type ShapeRule } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";
import type { ConvRollback } from "./signatures.ts";

/** On a GPU, each for one element. */
const THREADS = 256;

interface Sizes {
  N: number;
  C: number;
  kernelSize: number;
}

export const convRollbackKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "conv_rollback",
  // A copy needs to know of a dtype only how wide its elements are.
  variants: ["u16", "u32"],
  buffers: { history: "read", rejected: "read", finalState: "write" },
  params: { sequences: "u32", historyRows: "u32", channels: "u32", kernelSize: "u32" },
  faults: {
    rejected: ([value, sequence], { historyRows, kernelSize }) =>
      `\`rejected\` must be at least 0 and at most the ${historyRows - (kernelSize - 1)} tokens that \`history\` can take back, ` +
      `got ${value | 0} at sequence ${sequence}`,
  },
  launch: {
    cpu: ({ N }: Sizes) => ({ threadgroups: [N, 1, 1] }),
    gpu: ({ N, C, kernelSize }) => ({
      threadgroups: [Math.ceil(((kernelSize - 1) * C) / THREADS), N, 1],
      threadsPerThreadgroup: [THREADS, 1, 1],
    }),
  },
});

const STATE: ShapeRule = {
  text: "N, W − 1, C",
  of: ({ dims: { N, C }, options: { kernelSize } }: OpContext) =>
    [N, (kernelSize as unknown as number) - 1, C] as number[],
};

/**
 * The state of a causal convolution before the last `rejected` of its inputs, cut out of a longer history: rows
 * R − (W−1) − rejected to R − 1 − rejected of `history`, bit by bit.
 *
 * - `history` [N, R, C] f32, f16 or bf16, as `causalConv1d` leaves it in `finalState`: the last R inputs, oldest first.
 *   R = W−1 + n can take up to n tokens back.
 * - `rejected` i32 [N]: for each sequence how many of its last tokens are taken back, 0 to R − (W−1).
 * - `finalState` [N, W−1, C], dtype of `history`.
 * - `kernelSize` ≥ 2, W: required.
 *
 * Errors: `InvalidArgument` for shapes, dtypes, options and overlap; a `rejected` out of range fails the submission, and
 * nothing is written.
 */
export const convRollback: ConvRollback = defineOp({
  name: "convRollback",
  summary: "the state of causalConv1d before the last tokens: rows of a longer history",
  inputs: {
    history: { dtype: FLOATS, shape: "N R C", doc: "the `finalState` of a pass that kept more rows than a state has" },
    rejected: { dtype: ["i32"], shape: "N", doc: "tokens to take back from each sequence" },
  },
  outputs: {
    finalState: { dtype: ["=history"], shape: STATE, doc: "the state before those tokens" },
  },
  params: {
    kernelSize: { kind: "number", integer: true, min: 2, doc: "W, of the convolution" },
  },
  check({ dims, options: { kernelSize }, fail }) {
    const rows = dims.R as number;
    if (rows < kernelSize - 1) fail("history", `have at least kernelSize − 1 = ${kernelSize - 1} rows`, rows);
  },
  encode({ encoder, op, inputs: { history, rejected }, outputs: { finalState }, options: { kernelSize }, dims }) {
    const { N, R, C } = dims as Record<"N" | "R" | "C", number>;
    encoder.dispatch(convRollbackKernel, {
      op,
      variant: history.dtype === "f32" ? "u32" : "u16",
      buffers: { history, rejected, finalState },
      params: { sequences: N, historyRows: R, channels: C, kernelSize },
      sizes: { N, C, kernelSize },
    });
  },
});
