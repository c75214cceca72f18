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
  TOKEN_PAIRS,
} from "./chunk.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH, checkPacked, GQA, PACKED_FAULTS, type RuleOptions } from "./options.ts";
import type { ChunkKkt } from "./signatures.ts";

export const chunkKktKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_kkt",
  variants: channelVariants(FLOATS),
  buffers: { k: "read", beta: "read", sum: "read", sumLow: "read?", cuSeqlens: "read?", a: "write" },
  params: CHUNK_PARAMS,
  faults: PACKED_FAULTS,
  constants: { shared: { rowBytes: PANEL_ROW_BYTES, channelColumns: CHANNEL_COLUMNS } },
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
          ? BT * (PANEL_ROW_BYTES + 8)
          : channelPanelBytes(BT, bytes)
        : 4 * BT * ((channels === 1 ? 2 : 4) * Math.ceil(K / 16) * 16 + 1) + 8 * (BT + 16),
    }),
  ),
});

export function encodeChunkKkt(
  encoder: CommandEncoder,
  op: string,
  tensors: Record<"k" | "beta" | "G" | "A", Tensor> & Partial<Record<"GLow" | "cuSeqlens", Tensor | undefined>>,
  dims: Omit<ChunkDims, "V">,
  gqa: RuleOptions["gqa"],
  lastTokens = 0,
): void {
  const { k, beta, G, GLow, cuSeqlens, A } = tensors;
  encoder.dispatch(chunkKktKernel, {
    op,
    variant: gateVariant(k.dtype, dims),
    buffers: { k, beta, sum: G, sumLow: GLow, cuSeqlens, a: A },
    params: chunkParams(dims, gqa, lastTokens),
    sizes: { ...dims, bytes: DTYPES[k.dtype].bytesPerElement },
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
export const chunkKkt: ChunkKkt = defineOp({
  name: "chunkKkt",
  summary: "A[i, j] = (round(beta_i k_i) · k_j) · exp(G_i - G_j) for j < i",
  inputs: {
    k: { dtype: FLOATS, shape: "B T Hk K", doc: "keys" },
    beta: { dtype: ["f32"], shape: "B T H", doc: "strength of each write" },
    ...CUMULATED,
  },
  outputs: {
    A: {
      dtype: ["f32"],
      shape: TOKEN_PAIRS,
      doc: "the products of each pair of tokens of a chunk, below the diagonal",
    },
  },
  params: { chunkLength: CHUNK_LENGTH, gqa: GQA },
  relations: checkChunkDims,
  rules: checkPacked,
  encode(c) {
    encodeChunkKkt(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c), c.options.gqa);
  },
});
