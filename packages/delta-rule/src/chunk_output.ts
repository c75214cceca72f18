import { type CommandEncoder, DTYPES, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import {
  CHUNK_PARAMS,
  CHUNK_STATES,
  type ChunkDims,
  CUMULATIVE,
  channelVariants,
  checkChunkDims,
  chunkDims,
  chunkParams,
  gateVariant,
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
  WIDE,
  WIDE_STRIDE,
  wholeVectors,
  wideChunks,
} from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH, checkPacked, GQA, PACKED_FAULTS, type RuleOptions, SCALE } from "./options.ts";
import type { ChunkOutput } from "./signatures.ts";

interface Sizes extends Pick<ChunkDims, "B" | "H" | "K" | "V" | "BT" | "NT" | "channels"> {
  /** Bytes of an element of q. */
  bytes: number;
}

const onGpu = (sizes: Sizes, panelBytes: number) => {
  const { BT } = sizes;
  const channels = sizes.channels > 1;
  const ofHead = shapeIf(!channels, BT);
  return {
    threadgroups: chunkThreadgroups(sizes),
    threadsPerThreadgroup: chunkThreads(sizes),
    params: { wide: 0 },
    scratch: {
      ...PLACE_SHAPE,
      tiles: tileShape(4 * BT, panelBytes),
      cumulativeGateHigh: ofHead,
      cumulativeGateLow: ofHead,
      decayed: shapeIf(channels, ...tileShapeF32(BT, panelBytes / 4)),
    },
  };
};

export const chunkOutputKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_output",
  variants: channelVariants(FLOATS),
  buffers: {
    q: "read",
    k: "read",
    vNew: "read",
    h: "read",
    ...CUMULATIVE_BUFFERS,
    mask: "read?",
    o: "write",
  },
  params: { ...CHUNK_PARAMS, scale: "f32" },
  faults: PACKED_FAULTS,
  constants: { cpu: { panelValues: 64 }, gpu: { panelBytes: 64 } },
  launchParams: { cpu: { keyStride: "u32" }, gpu: { wide: "u32" } },
  scratch: {
    // G with one gate a head, steps (decays from row to row) with one for each channel.
    cpu: {
      queries: "f32",
      keysThenStates: "f32",
      transposed: "f32",
      scores: "f32",
      values: "f32",
      decays: "f32",
      ...CUMULATIVE_SCRATCH,
      steps: "f32",
    },
    // Two stages, used in turn, of a tile for each of two operands. With a gate for each channel first four tiles, of q, of
    // k and two of G, and beside them one in which each simdgroup has rows of its own.
    gpu: { ...PLACE_SCRATCH, tiles: "u8", ...CUMULATIVE_SCRATCH, decayed: "f32" },
  },
  mostThreads: 128,
  launch: {
    cpu: (sizes: Sizes, { constants: { panelValues } }) => {
      const { K, BT } = sizes;
      const channels = sizes.channels > 1;
      const keyStride = channels ? wholeVectors(K) : K;
      const most = Math.max(BT, panelValues);
      const ofHead = shapeIf(!channels, BT);
      return {
        threadgroups: chunkThreadgroups(sizes),
        params: { keyStride },
        scratch: {
          queries: [BT, keyStride],
          keysThenStates: [most, keyStride],
          transposed: [K, most],
          scores: [BT, BT],
          values: [BT, panelValues],
          decays: ofHead,
          cumulativeGateHigh: ofHead,
          cumulativeGateLow: ofHead,
          steps: shapeIf(channels, BT, keyStride),
        },
      };
    },
    gpu: (sizes, { constants: { panelBytes } }) => onGpu(sizes, panelBytes),
    cuda: (sizes, { limits, constants: { panelBytes } }) => {
      const launch = onGpu(sizes, panelBytes);
      // q, k and vNew; a state.
      const tiles = 2 * WIDE_STRIDE * (3 * sizes.BT + WIDE);
      const roomy = tiles + 1024 <= limits.maxThreadgroupBytes;
      if (!roomy || !wideChunks(sizes) || sizes.bytes !== 2 || sizes.K > WIDE) return launch;
      return { ...launch, params: { wide: 1 }, scratch: { ...launch.scratch, tiles: [tiles] } };
    },
  },
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
    buffers: { q, k, vNew, h, cumulativeGate: G, cumulativeGateLow: GLow, cuSeqlens, mask, o },
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
    ...CUMULATIVE,
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
