import { type CommandEncoder, DTYPES, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import {
  CHUNK_PARAMS,
  type ChunkDims,
  CUMULATIVE,
  channelVariants,
  checkChunkDims,
  chunkDims,
  chunkParams,
  gateVariant,
  TOKEN_PAIRS,
} from "./chunk.ts";
import {
  CUMULATIVE_BUFFERS,
  CUMULATIVE_SCRATCH,
  chunkThreadgroups,
  chunkThreads,
  PLACE_SCRATCH,
  PLACE_SHAPE,
  shapeIf,
  tileShape,
  tileShapeF32,
  wholeVectors,
} from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH, checkPacked, GQA, PACKED_FAULTS, type RuleOptions } from "./options.ts";
import type { ChunkKkt } from "./signatures.ts";

interface Sizes extends Pick<ChunkDims, "B" | "H" | "K" | "BT" | "NT" | "channels"> {
  /** Bytes of an element of k. */
  bytes: number;
}

export const chunkKktKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_kkt",
  variants: channelVariants(FLOATS),
  buffers: { k: "read", beta: "read", ...CUMULATIVE_BUFFERS, a: "write" },
  params: CHUNK_PARAMS,
  faults: PACKED_FAULTS,
  constants: { gpu: { panelBytes: 128, channelColumns: 16 } },
  launchParams: { cpu: { keyStride: "u32" } },
  scratch: {
    // With a gate for each channel: weightedKeys, steps (decays from row to row); without: β k in keys, and G.
    cpu: {
      keys: "f32",
      transposedKeys: "f32",
      betas: "f32",
      ...CUMULATIVE_SCRATCH,
      weightedKeys: "f32",
      steps: "f32",
    },
    // Two tiles of k, used in turn. With a gate for each channel: a tile of beta k and one of k, two of G, and one in
    // which each simdgroup has rows of its own.
    gpu: { ...PLACE_SCRATCH, keys: "u8", ...CUMULATIVE_SCRATCH, decayed: "f32" },
  },
  mostThreads: 128,
  launch: {
    cpu: (sizes: Sizes) => {
      const { K, BT } = sizes;
      const keyStride = wholeVectors(K);
      const channels = sizes.channels > 1;
      const ofChannels = shapeIf(channels, BT, keyStride);
      const ofHead = shapeIf(!channels, BT);
      return {
        threadgroups: chunkThreadgroups(sizes),
        params: { keyStride },
        scratch: {
          keys: [BT, keyStride],
          transposedKeys: [K, BT],
          betas: [BT],
          cumulativeGateHigh: ofHead,
          cumulativeGateLow: ofHead,
          weightedKeys: ofChannels,
          steps: ofChannels,
        },
      };
    },
    gpu: (sizes, { constants: { panelBytes, channelColumns } }) => {
      const { BT } = sizes;
      const channels = sizes.channels > 1;
      const gates = channels ? tileShapeF32(BT, channelColumns) : [BT];
      return {
        threadgroups: chunkThreadgroups(sizes),
        threadsPerThreadgroup: chunkThreads(sizes),
        scratch: {
          ...PLACE_SHAPE,
          keys: tileShape(2 * BT, channels ? channelColumns * sizes.bytes : panelBytes),
          cumulativeGateHigh: gates,
          cumulativeGateLow: gates,
          decayed: shapeIf(channels, ...tileShapeF32(BT, channelColumns)),
        },
      };
    },
  },
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
    buffers: { k, beta, cumulativeGate: G, cumulativeGateLow: GLow, cuSeqlens, a: A },
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
    ...CUMULATIVE,
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
