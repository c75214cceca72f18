import { type CommandEncoder, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import {
  CHUNK_STATES,
  type ChunkDims,
  CUMULATED,
  checkChunkDims,
  chunkDims,
  chunkThreads,
  PANEL_ROW_BYTES,
} from "./chunk.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH, SCALE } from "./options.ts";

const PANEL = 64;

export const chunkOutputKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_output",
  variants: FLOATS,
  buffers: { q: "read", k: "read", vNew: "read", h: "read", sum: "read", sumLow: "read?", o: "write" },
  params: {
    tokens: "u32",
    keyHeads: "u32",
    heads: "u32",
    keyDim: "u32",
    valueDim: "u32",
    chunkLength: "u32",
    scale: "f32",
  },
  constants: { rowBytes: PANEL_ROW_BYTES, values: PANEL },
  launch: ({ B, H, K, BT, NT }: Pick<ChunkDims, "B" | "H" | "K" | "BT" | "NT">, { gpu }) => ({
    threadgroups: [NT, H, B],
    threadsPerThreadgroup: [chunkThreads(BT), 1, 1],
    threadgroupBytes: gpu
      ? (BT + Math.max(BT, PANEL)) * PANEL_ROW_BYTES + 8 * BT
      : 4 * (BT * K + 2 * Math.max(BT, PANEL) * K + BT * BT + BT * PANEL + BT + 2 * (BT + 16)),
  }),
});

export function encodeChunkOutput(
  encoder: CommandEncoder,
  op: string,
  tensors: Record<"q" | "k" | "vNew" | "h" | "G" | "o", Tensor> & { GLow?: Tensor | undefined },
  dims: ChunkDims,
  scale: number,
): void {
  const { q, k, vNew, h, G, GLow, o } = tensors;
  encoder.dispatch(chunkOutputKernel, {
    op,
    variant: q.dtype,
    buffers: { q, k, vNew, h, sum: G, sumLow: GLow, o },
    params: {
      tokens: dims.T,
      keyHeads: dims.Hk,
      heads: dims.H,
      keyDim: dims.K,
      valueDim: dims.V,
      chunkLength: dims.BT,
      scale,
    },
    sizes: dims,
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
export const chunkOutput = defineOp({
  name: "chunkOutput",
  summary: "o = scale · (exp(G) · q hᵀ + Σ_{j ≤ i} (q·k_j)·exp(G - G_j)·vNew_j) per chunk",
  inputs: {
    q: { dtype: FLOATS, shape: "B T Hk K" },
    k: { dtype: ["=q"], shape: "B T Hk K" },
    vNew: { dtype: ["=q"], shape: "B T H V" },
    h: { dtype: ["=q"], shape: CHUNK_STATES },
    ...CUMULATED,
  },
  outputs: { o: { dtype: ["=q"], shape: "B T H V" } },
  params: { chunkLength: CHUNK_LENGTH, scale: SCALE },
  relations: checkChunkDims,
  encode(c) {
    encodeChunkOutput(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c), c.options.scale);
  },
});
