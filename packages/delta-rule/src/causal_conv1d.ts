import { defineKernel, defineOp, FLOATS, type ShapeRule } from "@mlxts/core";
import { SIMD } from "./launch.ts";
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

/** Threadgroups over blocks of tokens: with packed sequences one more for each than there are full blocks. */
const tokenBlocks = ({ N, T, packed }: Sizes, tokens: number) =>
  packed ? ([Math.floor(T / tokens) + N, 1] as const) : ([Math.ceil(T / tokens), N] as const);

/** As many rows as the caller's tensor has, at least those that a token needs. */
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
  early: ["weight", "bias"],
  params: {
    sequences: "u32",
    tokens: "u32",
    channels: "u32",
    kernelSize: "u32",
    stateRows: "u32",
    silu: "u32",
  },
  launchParams: { cpu: { tokensPerThreadgroup: "u32" }, gpu: { tokensPerThreadgroup: "u32" } },
  constants: {
    cpu: { channelsPerThreadgroup: 256 },
    // A thread has some neighboring channels, and at a time some tokens, which share their inputs.
    gpu: { channelsPerThread: 4, tokensPerStep: 4 },
  },
  faults: PACKED_FAULTS,
  inPlace: [["finalState", "initialState"]],
  // Weights and biases of a threadgroup's channels in f32, the weights with channels side by side.
  scratch: { cpu: { weights: "f32", bias: "f32" } },
  // A sequence's first block of tokens, on a GPU its first thread, writes the final state: all tokens that read the
  // initial one, kernelSize − 1 of them, have to be in it.
  launch: {
    cpu: (sizes: Sizes, { constants: { channelsPerThreadgroup: channels } }) => {
      const { C, kernelSize } = sizes;
      const tokensPerThreadgroup = Math.max(64, kernelSize - 1);
      return {
        threadgroups: [Math.ceil(C / channels), ...tokenBlocks(sizes, tokensPerThreadgroup)],
        params: { tokensPerThreadgroup },
        scratch: { weights: [kernelSize, channels], bias: [channels] },
      };
    },
    gpu: (sizes, { constants: { channelsPerThread, tokensPerStep } }) => {
      const { T, C, kernelSize } = sizes;
      const tokensPerThread = Math.ceil((kernelSize - 1) / tokensPerStep) * tokensPerStep;
      const threads = Math.min(8, Math.ceil(T / tokensPerThread));
      const tokensPerThreadgroup = threads * tokensPerThread;
      return {
        threadgroups: [Math.ceil(C / (SIMD * channelsPerThread)), ...tokenBlocks(sizes, tokensPerThreadgroup)],
        threadsPerThreadgroup: [SIMD, threads, 1],
        params: { tokensPerThreadgroup },
      };
    },
  },
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
      },
      sizes,
    });
  },
}) as CausalConv1d;
