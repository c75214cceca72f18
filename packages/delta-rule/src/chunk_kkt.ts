import { type CommandEncoder, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import {
  type ChunkDims,
  CUMULATED,
  checkChunkDims,
  chunkDims,
  chunkThreads,
  PANEL_ROW_BYTES,
  TOKEN_PAIRS,
} from "./chunk.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH } from "./options.ts";

export const chunkKktKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_kkt",
  variants: FLOATS,
  buffers: { k: "read", beta: "read", sum: "read", sumLow: "read?", a: "write" },
  params: { tokens: "u32", keyHeads: "u32", heads: "u32", keyDim: "u32", chunkLength: "u32" },
  constants: { rowBytes: PANEL_ROW_BYTES },
  launch: ({ B, H, K, BT, NT }: Pick<ChunkDims, "B" | "H" | "K" | "BT" | "NT">, { gpu }) => ({
    threadgroups: [NT, H, B],
    threadsPerThreadgroup: [chunkThreads(BT), 1, 1],
    threadgroupBytes: gpu ? BT * (PANEL_ROW_BYTES + 8) : 4 * (BT * (2 * K + 16) + BT + 2 * (BT + 16)),
  }),
});

export function encodeChunkKkt(
  encoder: CommandEncoder,
  op: string,
  { k, beta, G, GLow, A }: { k: Tensor; beta: Tensor; G: Tensor; GLow?: Tensor | undefined; A: Tensor },
  dims: Omit<ChunkDims, "V">,
): void {
  encoder.dispatch(chunkKktKernel, {
    op,
    variant: k.dtype,
    buffers: { k, beta, sum: G, sumLow: GLow, a: A },
    params: { tokens: dims.T, keyHeads: dims.Hk, heads: dims.H, keyDim: dims.K, chunkLength: dims.BT },
    sizes: dims,
  });
}

/**
 * Stage 3 of the chunked gated delta rule: `A[i, j] = (round(beta_i k_i) · k_j) · exp(G_i − G_j)` for j < i of the same
 * chunk, exactly 0 elsewhere.
 *
 * `k` [B, T, Hk, K] f32, f16 or bf16 (round: to that dtype); `beta`, `G`, `GLow` (optional) [B, T, H] f32; `A` [B, T, H,
 * chunkLength] f32, column j for token j of the row's chunk. H a multiple of Hk; K a multiple of 8, at most 256. Products
 * are summed in f32. Errors: `InvalidArgument` for dimensions, shapes, dtypes, options and overlap.
 */
export const chunkKkt = defineOp({
  name: "chunkKkt",
  summary: "A[i, j] = (round(beta_i k_i) · k_j) · exp(G_i - G_j) for j < i",
  inputs: {
    k: { dtype: FLOATS, shape: "B T Hk K" },
    beta: { dtype: ["f32"], shape: "B T H" },
    ...CUMULATED,
  },
  outputs: { A: { dtype: ["f32"], shape: TOKEN_PAIRS } },
  params: { chunkLength: CHUNK_LENGTH },
  relations: checkChunkDims,
  encode(c) {
    encodeChunkKkt(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c));
  },
});
