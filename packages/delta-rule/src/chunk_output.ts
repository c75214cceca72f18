import {
  type CommandEncoder,
  DTYPES,
  defineKernel,
  defineOp,
  FLOATS,
  OLD_SCRATCH,
  oldLaunch,
  type Tensor,
} from "@mlxts/core";
import {
  CHANNEL_COLUMNS,
  CHUNK_PARAMS,
  CHUNK_STATES,
  type ChunkDims,
  CUMULATED,
  channelPanelBytes,
  channelVariants,
  checkChunkDims,
  chunkDims,
  chunkParams,
  chunkThreads,
  gateVariant,
  PANEL_ROW_BYTES,
} from "./chunk.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH, checkPacked, GQA, PACKED_FAULTS, type RuleOptions, SCALE } from "./options.ts";
import type { ChunkOutput } from "./signatures.ts";

const PANEL = 64;

/** Floats of q, of k or a panel of h, and, with a gate for each channel, of the decays from row to row. */
const cpuRows = (K: number, BT: number, channels: number): number =>
  channels === 1 ? (BT + Math.max(BT, PANEL)) * K : (2 * BT + Math.max(BT, PANEL)) * Math.ceil(K / 16) * 16;

export const chunkOutputKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_output",
  variants: channelVariants(FLOATS),
  buffers: {
    q: "read",
    k: "read",
    vNew: "read",
    h: "read",
    sum: "read",
    sumLow: "read?",
    cuSeqlens: "read?",
    mask: "read?",
    o: "write",
  },
  params: { ...CHUNK_PARAMS, scale: "f32" },
  faults: PACKED_FAULTS,
  constants: { shared: { rowBytes: PANEL_ROW_BYTES, channelColumns: CHANNEL_COLUMNS, values: PANEL } },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(
    (
      {
        B,
        H,
        K,
        BT,
        NT,
        channels,
        bytes,
      }: Pick<ChunkDims, "B" | "H" | "K" | "BT" | "NT" | "channels"> & { bytes: number },
      { gpu },
    ) => ({
      threadgroups: [NT, H, B],
      threadsPerThreadgroup: [chunkThreads(BT), 1, 1],
      threadgroupBytes: gpu
        ? channels === 1
          ? (BT + Math.max(BT, PANEL)) * PANEL_ROW_BYTES + 8 * BT
          : Math.max((BT + PANEL) * PANEL_ROW_BYTES, channelPanelBytes(BT, bytes))
        : 4 * (cpuRows(K, BT, channels) + Math.max(BT, PANEL) * K + BT * (BT + PANEL + 1) + 2 * (BT + 16)),
    }),
  ),
});

export function encodeChunkOutput(
  encoder: CommandEncoder,
  op: string,
  tensors: Record<"q" | "k" | "vNew" | "h" | "G" | "o", Tensor> &
    Partial<Record<"GLow" | "cuSeqlens" | "mask", Tensor | undefined>>,
  dims: ChunkDims,
  { gqa, scale }: Pick<RuleOptions, "gqa" | "scale">,
  lastTokens = 0,
): void {
  const { q, k, vNew, h, G, GLow, cuSeqlens, mask, o } = tensors;
  encoder.dispatch(chunkOutputKernel, {
    op,
    variant: gateVariant(q.dtype, dims),
    buffers: { q, k, vNew, h, sum: G, sumLow: GLow, cuSeqlens, mask, o },
    params: { ...chunkParams(dims, gqa, lastTokens), scale },
    sizes: { ...dims, bytes: DTYPES[q.dtype].bytesPerElement },
  });
}

/**
 * Stage 7 of the chunked gated delta rule, with h the state at the beginning of the chunk:
 * `o_i = scale · (exp(G_i) · q_i hᵀ + Σ_{j ≤ i} round((q_i · k_j) · exp(G_i − G_j)) · vNew_j)`.
 *
 * `q`, `k` [B, T, Hk, K], `vNew`, `o` [B, T, H, V], `h` [B, NT, H, V, K] with NT = ⌈T/chunkLength⌉: f32, f16 or bf16, one
 * dtype (round: to that dtype); `G`, `GLow` (optional) [B, T, H] f32; `scale` required. Summed in f32, one rounding at
 * the store. Errors: `InvalidArgument` for dimensions, shapes, dtypes, options and overlap.
 */
export const chunkOutput: ChunkOutput = defineOp({
  name: "chunkOutput",
  summary: "o = scale · (exp(G) · q hᵀ + Σ_{j ≤ i} (q·k_j)·exp(G - G_j)·vNew_j) per chunk",
  inputs: {
    q: { dtype: FLOATS, shape: "B T Hk K", doc: "queries" },
    k: { dtype: ["=q"], shape: "B T Hk K", doc: "keys" },
    vNew: { dtype: ["=q"], shape: "B T H V", doc: "corrected values from `chunkState`" },
    h: { dtype: ["=q"], shape: CHUNK_STATES, doc: "states before each chunk, from `chunkState`" },
    ...CUMULATED,
    mask: { dtype: ["u8"], shape: "B T", optional: true, doc: "0 for tokens whose output is 0" },
  },
  outputs: { o: { dtype: ["=q"], shape: "B T H V", doc: "the output of each token" } },
  params: { chunkLength: CHUNK_LENGTH, gqa: GQA, scale: SCALE },
  relations: checkChunkDims,
  rules: checkPacked,
  encode(c) {
    encodeChunkOutput(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c), c.options);
  },
});
