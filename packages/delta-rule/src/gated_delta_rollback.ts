import { defineKernel, defineOp } from "@mlxts/core";
import { SIMD, wholeVectors } from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import {
  channelsOf,
  checkRuleDims,
  GATE,
  GQA,
  gateFactor,
  headsPerKey,
  STATE_LAYOUT,
  STATES,
  stateStrides,
} from "./options.ts";
import type { GatedDeltaRollback } from "./signatures.ts";

interface Sizes {
  N: number;
  H: number;
  K: number;
  V: number;
  channels: number;
}

export const gatedDeltaRollbackKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "gated_delta_rollback",
  variants: ["f32", "f32_channels"],
  buffers: {
    logState: "read",
    logKeys: "read",
    logDeltas: "read",
    logGates: "read",
    rejected: "read",
    finalState: "write",
  },
  params: {
    sequences: "u32",
    lastTokens: "u32",
    keyHeads: "u32",
    headsPerKey: "u32",
    heads: "u32",
    keyDim: "u32",
    valueDim: "u32",
    rowStride: "u32",
    columnStride: "u32",
    gateFactor: "f32",
  },
  // A GPU's simdgroup keeps its rows of the state in registers.
  constants: { cpu: { rowsPerThreadgroup: 32 }, gpu: { rowsPerSimdgroup: 4, simdgroups: 4 } },
  faults: {
    rejected: ([value, sequence], { lastTokens }) =>
      `\`rejected\` must be at least 0 and at most the ${lastTokens} tokens of the log, ` +
      `got ${value | 0} at sequence ${sequence}`,
  },
  inPlace: [["finalState", "logState"]],
  scratch: { cpu: { key: "f32", decays: "f32", state: "f32" } },
  launch: {
    cpu: ({ N, H, K, V, channels }: Sizes, { constants: { rowsPerThreadgroup } }) => ({
      threadgroups: [Math.ceil(V / rowsPerThreadgroup), H, N],
      scratch: {
        key: [wholeVectors(K)],
        decays: [channels === 1 ? 0 : wholeVectors(K)],
        state: [rowsPerThreadgroup, K],
      },
    }),
    gpu: ({ N, H, V }: Sizes, { constants: { rowsPerSimdgroup, simdgroups } }) => ({
      threadgroups: [Math.ceil(V / (simdgroups * rowsPerSimdgroup)), H, N],
      threadsPerThreadgroup: [SIMD, simdgroups, 1],
    }),
  },
});

/**
 * The state before the last `rejected` tokens of a call of the gated delta rule, from the log it left: its state before
 * all n logged tokens, and the updates of those that stay, `S ← decay · S + delta · keyᵀ`, oldest first.
 *
 * - `logState`, `finalState` [N, H, V, K] (`stateLayout` kv: [N, H, K, V]), `logKeys` [N, n, Hk, K], `logDeltas` [N, n, H, V],
 *   `logGates` [N, n, H] or [N, n, H, K]: f32, as `gatedDeltaRule` wrote them with the same `gate`, `gqa` and
 *   `stateLayout`. `finalState` may be exactly `logState`.
 * - `rejected` i32 [N]: for each sequence how many of its last tokens are taken back, 0 to n. A sequence that had fewer
 *   than n tokens has only its own to take back; beyond them the result is its initial state. Every sequence is written, with
 *   0 the state after the call: one that has gone on since, from other contents, is to be left out (`tensor.slice`).
 *
 * All in f32, the same operations on the same numbers as token by token: the bits of a call that ended there. Errors:
 * `InvalidArgument` for shapes, dtypes, options and overlap; a `rejected` out of range fails the submission, and nothing
 * is written.
 */
export const gatedDeltaRollback: GatedDeltaRollback = defineOp({
  name: "gatedDeltaRollback",
  summary: "the state before the last tokens: S = decay · S + delta · keyᵀ over those that stay",
  inputs: {
    logState: { dtype: ["f32"], shape: STATES, doc: "state before the logged tokens" },
    logKeys: { dtype: ["f32"], shape: "N n Hk K", doc: "keys of the logged tokens" },
    logDeltas: { dtype: ["f32"], shape: "N n H V", doc: "what each logged token wrote" },
    logGates: { dtype: ["f32"], shape: "N n H | N n H K", doc: "gates of the logged tokens" },
    rejected: { dtype: ["i32"], shape: "N", doc: "tokens to take back from each sequence" },
  },
  outputs: {
    finalState: { dtype: ["f32"], shape: STATES, inPlace: ["logState"], doc: "the state before those tokens" },
  },
  params: { gate: GATE, gqa: GQA, stateLayout: STATE_LAYOUT },
  relations: checkRuleDims,
  encode({ encoder, op, inputs, outputs, options, dims }) {
    const { N, n, Hk, H, K, V } = dims as Record<"N" | "n" | "Hk" | "H" | "K" | "V", number>;
    const channels = channelsOf(inputs.logGates, K);
    encoder.dispatch(gatedDeltaRollbackKernel, {
      op,
      variant: channels === 1 ? "f32" : "f32_channels",
      buffers: { ...inputs, ...outputs },
      params: {
        sequences: N,
        lastTokens: n,
        keyHeads: Hk,
        headsPerKey: headsPerKey({ Hk, H }, options.gqa),
        heads: H,
        keyDim: K,
        valueDim: V,
        ...stateStrides({ K, V }, options.stateLayout),
        gateFactor: gateFactor(options.gate),
      },
      sizes: { N, H, K, V, channels },
    });
  },
});
