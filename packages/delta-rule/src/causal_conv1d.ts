import { defineKernel, defineOp, FLOATS, OLD_SCRATCH, oldLaunch, type ShapeRule } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";
import { CU_SEQLENS, PACKED_FAULTS, sequenceCount } from "./options.ts";
import type { CausalConv1d } from "./signatures.ts";

interface Sizes {
  N: number;
  T: number;
  C: number;
  kernelSize: number;
  packed: boolean;
}

/** What a thread of a GPU does at a time: channels side by side, and tokens that share their inputs. */
const CHANNELS_PER_THREAD = 4;
const TOKENS_PER_STEP = 4;

/**
 * A threadgroup's channels and tokens, and its threads. The first block of a sequence, on a GPU the first thread, owns the
 * state, so it has to hold every token that reads it.
 */
function blockOf(
  { T, kernelSize }: Sizes,
  gpu: boolean,
): { channels: number; tokens: number; threads: [number, number, 1] } {
  if (!gpu) return { channels: 256, tokens: Math.max(64, kernelSize - 1), threads: [256, 1, 1] };
  const perThread = Math.ceil((kernelSize - 1) / TOKENS_PER_STEP) * TOKENS_PER_STEP;
  const runs = Math.min(8, Math.ceil(T / perThread));
  return { channels: 32 * CHANNELS_PER_THREAD, tokens: runs * perThread, threads: [32, runs, 1] };
}

/** As many rows as the state has, or the final one where there is none, but those that a token needs. */
const STATE: ShapeRule = {
  text: "N, R ≥ W − 1, C",
  of(c) {
    const { W, C } = c.dims as { W: number; C: number };
    const [, rows = 0] = (c.tensors.initialState ?? c.outputs.finalState)?.shape ?? [];
    return [sequenceCount(c), Math.max(W - 1, rows), C];
  },
};

export const causalConv1dKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "causal_conv1d",
  // x, weight and bias, states
  variants: [
    "f32_f32_f32",
    ...(["f16", "bf16"] as const).flatMap((x) => [`${x}_${x}_${x}`, `${x}_${x}_f32`, `${x}_f32_${x}`, `${x}_f32_f32`]),
  ],
  buffers: {
    x: "read",
    weight: "read",
    bias: "read?",
    initialState: "read?",
    cuSeqlens: "read?",
    mask: "read?",
    y: "write",
    finalState: "write?",
  },
  params: {
    sequences: "u32",
    tokens: "u32",
    channels: "u32",
    kernelSize: "u32",
    stateRows: "u32",
    silu: "u32",
    channelsPerThreadgroup: "u32",
    tokensPerThreadgroup: "u32",
  },
  constants: { shared: { channelsPerThread: CHANNELS_PER_THREAD, tokensPerStep: TOKENS_PER_STEP } },
  faults: PACKED_FAULTS,
  inPlace: [["finalState", "initialState"]],
  scratch: OLD_SCRATCH,
  launch: oldLaunch((sizes: Sizes, { gpu }) => {
    const { channels, tokens, threads } = blockOf(sizes, gpu);
    const { N, T, C, packed } = sizes;
    return {
      // Packed sequences: as chunks of the rule, one block for each sequence more than those that are full.
      threadgroups: [
        Math.ceil(C / channels),
        packed ? Math.floor(T / tokens) + N : Math.ceil(T / tokens),
        packed ? 1 : N,
      ],
      threadsPerThreadgroup: threads,
      threadgroupBytes: gpu ? 0 : (2 * sizes.kernelSize + 1) * channels * 4,
    };
  }),
});

/**
 * Causal depthwise convolution: `y[t] = f(bias + Σ_i weight[c, i] · x[t − W + 1 + i])`, f = `activation`.
 *
 * - `x`, `y` [N, T, C] f32, f16 or bf16. `weight` [C, W] and `bias` [C] (optional): one dtype, that of x or f32. Column W−1 is for
 *   the current token.
 * - `initialState` [N, R, C], dtype of x or f32, R ≥ W−1: the inputs before x, oldest first, of which the last W−1 count;
 *   absent: zeros. `finalState`, same dtype and R as `initialState`: the last R inputs of that and x together; written when it is
 *   passed (or `true`: R = W−1 without an `initialState`), and may be exactly `initialState`, for every T. R = W−1 + n keeps what
 *   `convRollback` needs to take n tokens back.
 * - `cuSeqlens` i32 [S + 1]: the row (N = 1) is S sequences, s from token cuSeqlens[s] to cuSeqlens[s + 1]; `initialState` and
 *   `finalState` are [S, R, C]. An empty sequence keeps its state.
 * - `mask` u8 [N, T], not with `cuSeqlens`: inputs of tokens with 0 count as 0, whatever they are, in `finalState` too.
 * - `activation` `none` (default) or `silu`.
 *
 * W ≥ 2. Sums in f32, one rounding at the store. A sequence cut into calls that carry the state gives the same bits as
 * one call, and so does one among packed ones. Errors: `InvalidArgument` for shapes, dtypes, options and overlap; a
 * `cuSeqlens` that does not begin with 0, decreases or does not end with T fails the submission, and nothing is written.
 */
export const causalConv1d = defineOp({
  name: "causalConv1d",
  summary: "y[t] = f(bias + Σ weight[c, i] · x[t - W + 1 + i])",
  inputs: {
    x: { dtype: FLOATS, shape: "N T C", doc: "a channel to a column, a token to a row" },
    weight: { dtype: ["=x", "f32"], shape: "C W", doc: "W factors of each channel, the last one for the newest token" },
    bias: { dtype: ["=weight"], shape: "C", optional: true, doc: "added to each channel" },
    initialState: {
      dtype: ["=x", "f32"],
      shape: STATE,
      optional: true,
      doc: "inputs before the first token, zeros when absent",
    },
    cuSeqlens: CU_SEQLENS,
    mask: { dtype: ["u8"], shape: "N T", optional: true, doc: "0 for tokens that are to count as zeros" },
  },
  outputs: {
    y: { dtype: ["=x"], shape: "N T C", doc: "the sums, activated" },
    finalState: {
      dtype: ["=initialState", "=x", "f32"],
      shape: STATE,
      optional: true,
      inPlace: ["initialState"],
      doc: "the last inputs, for the next call",
    },
  },
  params: {
    activation: { kind: "choice", values: ["none", "silu"], default: "none", doc: "applied to the sum" },
  },
  relations({ dims, fail }) {
    if ((dims.W as number) < 2) fail("W", "be ≥ 2", dims.W);
  },
  rules({ inputs: { initialState, cuSeqlens, mask }, outputs: { finalState }, dims, fail }) {
    if (cuSeqlens && dims.N !== 1) fail("cuSeqlens", "come with one row of tokens (N = 1)", dims.N);
    if (cuSeqlens && mask) fail("mask", "not be given with `cuSeqlens`", "both");
    if (initialState && finalState && finalState.dtype !== initialState.dtype)
      fail("finalState", `have the dtype of \`initialState\`, ${initialState.dtype}`, finalState.dtype);
  },
  encode(c) {
    const { encoder, op, inputs, outputs, options } = c;
    const { x, weight, initialState } = inputs;
    const { T, C, W } = c.dims as { T: number; C: number; W: number };
    const sizes = { N: sequenceCount(c), T, C, kernelSize: W, packed: inputs.cuSeqlens !== undefined };
    const block = blockOf(sizes, encoder.device.gpu);
    const stateDtype = initialState?.dtype ?? outputs.finalState?.dtype ?? x.dtype;
    encoder.dispatch(causalConv1dKernel, {
      op,
      variant: `${x.dtype}_${weight.dtype}_${stateDtype}`,
      buffers: {
        x,
        weight,
        bias: inputs.bias,
        initialState,
        cuSeqlens: inputs.cuSeqlens,
        mask: inputs.mask,
        ...outputs,
      },
      params: {
        sequences: sizes.N,
        tokens: T,
        channels: C,
        kernelSize: W,
        stateRows: (initialState ?? outputs.finalState)?.shape[1] ?? W - 1,
        silu: options.activation === "silu" ? 1 : 0,
        channelsPerThreadgroup: block.channels,
        tokensPerThreadgroup: block.tokens,
      },
      sizes,
    });
  },
}) as CausalConv1d;
