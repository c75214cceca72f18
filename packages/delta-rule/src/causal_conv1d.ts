import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";

interface Sizes {
  N: number;
  T: number;
  C: number;
  taps: number;
}

/** What a thread of a GPU does at a time: channels side by side, and tokens that share their inputs. */
const CHANNELS_PER_THREAD = 4;
const TOKENS_PER_STEP = 4;

/**
 * A threadgroup's channels and tokens, and its threads. The first block of a sequence, on a GPU the first thread, owns the
 * state, so it has to hold every token that reads it.
 */
function blockOf({ T, taps }: Sizes, gpu: boolean): { channels: number; tokens: number; threads: [number, number, 1] } {
  if (!gpu) return { channels: 256, tokens: Math.max(64, taps - 1), threads: [256, 1, 1] };
  const perThread = Math.ceil((taps - 1) / TOKENS_PER_STEP) * TOKENS_PER_STEP;
  const runs = Math.min(8, Math.ceil(T / perThread));
  return { channels: 32 * CHANNELS_PER_THREAD, tokens: runs * perThread, threads: [32, runs, 1] };
}

export const causalConv1dKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "causal_conv1d",
  // x, weight and bias, state
  variants: [
    "f32_f32_f32",
    ...(["f16", "bf16"] as const).flatMap((x) => [`${x}_${x}_${x}`, `${x}_${x}_f32`, `${x}_f32_${x}`, `${x}_f32_f32`]),
  ],
  buffers: { x: "read", weight: "read", bias: "read?", state: "read?", y: "write", newState: "write?" },
  params: {
    tokens: "u32",
    channels: "u32",
    taps: "u32",
    silu: "u32",
    channelsPerThreadgroup: "u32",
    tokensPerThreadgroup: "u32",
  },
  constants: { channelsPerThread: CHANNELS_PER_THREAD, tokensPerStep: TOKENS_PER_STEP },
  inPlace: [["newState", "state"]],
  launch: (sizes: Sizes, { gpu }) => {
    const { channels, tokens, threads } = blockOf(sizes, gpu);
    return {
      threadgroups: [Math.ceil(sizes.C / channels), Math.ceil(sizes.T / tokens), sizes.N],
      threadsPerThreadgroup: threads,
      threadgroupBytes: gpu ? 0 : (2 * sizes.taps + 1) * channels * 4,
    };
  },
});

/**
 * Causal depthwise convolution: `y[t] = f(bias + Σ_i weight[c, i] · x[t − W + 1 + i])`, f = `activation`.
 *
 * - `x`, `y` [N, T, C] f32, f16 or bf16. `weight` [C, W] and `bias` [C] (optional): one dtype, that of x or f32. Tap W−1
 *   meets the current token.
 * - `state` [N, W−1, C], dtype of x or f32: the W−1 inputs before x, oldest first; absent: zeros. `newState`, same dtype
 *   as `state`: the last W−1 inputs of state and x together; written when it is passed (or `true`), and may be exactly
 *   `state`, for every T.
 * - `activation` `none` (default) or `silu`.
 *
 * W ≥ 2. Sums in f32, one rounding at the store. A sequence cut into calls that carry the state gives the same bits as
 * one call. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 */
export const causalConv1d = defineOp({
  name: "causalConv1d",
  summary: "y[t] = f(bias + Σ weight[c, i] · x[t - W + 1 + i])",
  inputs: {
    x: { dtype: FLOATS, shape: "N T C" },
    weight: { dtype: ["=x", "f32"], shape: "C W" },
    bias: { dtype: ["=weight"], shape: "C", optional: true },
    state: { dtype: ["=x", "f32"], shape: { text: "N, W − 1, C", of: ({ dims }) => stateShape(dims) }, optional: true },
  },
  outputs: {
    y: { dtype: ["=x"], shape: "N T C" },
    newState: {
      dtype: ["=state", "=x", "f32"],
      shape: { text: "N, W − 1, C", of: ({ dims }) => stateShape(dims) },
      optional: true,
      inPlace: ["state"],
    },
  },
  params: {
    activation: { kind: "choice", values: ["none", "silu"], default: "none", doc: "applied to the sum" },
  },
  relations({ dims, fail }) {
    if ((dims.W as number) < 2) fail("W", "be ≥ 2", dims.W);
  },
  check({ inputs: { state }, outputs: { newState }, fail }) {
    if (state && newState && newState.dtype !== state.dtype)
      fail("newState", `have the dtype of \`state\`, ${state.dtype}`, newState.dtype);
  },
  encode({ encoder, op, inputs: { x, weight, bias, state }, outputs: { y, newState }, options, dims }) {
    const { N, T, C, W } = dims as { N: number; T: number; C: number; W: number };
    const sizes = { N, T, C, taps: W };
    const block = blockOf(sizes, encoder.device.gpu);
    const stateDtype = state?.dtype ?? newState?.dtype ?? x.dtype;
    encoder.dispatch(causalConv1dKernel, {
      op,
      variant: `${x.dtype}_${weight.dtype}_${stateDtype}`,
      buffers: { x, weight, bias, state, y, newState },
      params: {
        tokens: T,
        channels: C,
        taps: W,
        silu: options.activation === "silu" ? 1 : 0,
        channelsPerThreadgroup: block.channels,
        tokensPerThreadgroup: block.tokens,
      },
      sizes,
    });
  },
});

function stateShape({ N, W, C }: Readonly<Record<string, number>>): number[] {
  return [N as number, (W as number) - 1, C as number];
}
