import { type CommandEncoder, constantsOf, DTYPES, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
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
import { CHUNK_LENGTH, checkPacked, GQA, normParams, PACKED_FAULTS, type RuleOptions, SCALE } from "./options.ts";
import type { ChunkOutput } from "./signatures.ts";

interface Sizes extends Pick<ChunkDims, "B" | "H" | "K" | "V" | "BT" | "NT" | "channels"> {
  /** Bytes of an element of q. */
  bytes: number;
  /** How it is normalized. */
  norm: ReturnType<typeof normParams>;
  /** Whether warpgroups multiply. */
  warpgroups: boolean;
}

const NO_NORM = { qkNorm: 0, eps: 0, normFloor: 0 };

const onGpu = (sizes: Sizes, panelBytes: number) => {
  const { BT } = sizes;
  const channels = sizes.channels > 1;
  const ofHead = shapeIf(!channels, BT);
  return {
    threadgroups: chunkThreadgroups(sizes),
    threadsPerThreadgroup: chunkThreads(sizes),
    params: { wide: 0, ...NO_NORM },
    scratch: {
      ...PLACE_SHAPE,
      tiles: tileShape(4 * BT, panelBytes),
      cumulativeGateHigh: ofHead,
      cumulativeGateLow: ofHead,
      decayed: shapeIf(channels, ...tileShapeF32(BT, panelBytes / 4)),
    },
  };
};

/** Bytes of a whole chunk's tiles: q, k and vNew; a state. */
const wideBytes = ({ BT }: Pick<Sizes, "BT">) => 2 * WIDE_STRIDE * (3 * BT + WIDE);
const isWide = (sizes: Omit<Sizes, "norm" | "warpgroups">, mostBytes: number) =>
  sizes.bytes === 2 && sizes.K <= WIDE && wideChunks(sizes) && wideBytes(sizes) + 1024 <= mostBytes;

/** Where warpgroups multiply, see warpgroup_output_cuda.h: whole chunks with values of so many elements. */
const WARPGROUPS = { variant: "bf16_warpgroups", longest: WIDE };

/** All tensors begin at whole pieces. */
function takesWarpgroups(
  { device }: CommandEncoder,
  tensors: readonly Tensor[],
  sizes: Omit<Sizes, "warpgroups">,
): boolean {
  const { variant, longest } = WARPGROUPS;
  if (sizes.V > longest || sizes.K % 8 !== 0 || !isWide(sizes, device.limits.maxThreadgroupBytes)) return false;
  if (tensors.some(({ dtype, byteOffset }) => dtype !== "bf16" || byteOffset % 16 !== 0)) return false;
  return device.library(deltaRuleLibrary).has(chunkOutputKernel.name, variant);
}

export const chunkOutputKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_output",
  variants: [...channelVariants(FLOATS), WARPGROUPS.variant],
  sm90a: [WARPGROUPS.variant],
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
  // `normalizes`: queries of whole chunks as they are multiplied.
  constants: {
    cpu: { panelValues: 64, normalizes: 0 },
    gpu: { panelBytes: 64, normalizes: 0 },
    cuda: { normalizes: 1 },
  },
  launchParams: { cpu: { keyStride: "u32" }, gpu: { wide: "u32", qkNorm: "u32", eps: "f32", normFloor: "f32" } },
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
    // Warpgroups want tiles at the beginning.
    gpu: { tiles: "u8", ...PLACE_SCRATCH, ...CUMULATIVE_SCRATCH, decayed: "f32" },
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
      if (!isWide(sizes, limits.maxThreadgroupBytes)) return launch;
      // q, later vNew, k, and a state, without room between rows.
      const tiles = sizes.warpgroups === true ? 2 * WIDE * (2 * sizes.BT + WIDE) : wideBytes(sizes);
      return {
        ...launch,
        params: { wide: 1, ...sizes.norm },
        scratch: { ...launch.scratch, tiles: [tiles] },
      };
    },
  },
});

/** Whether the stage takes queries as they are and normalizes them itself; these tensors are its others. */
export function normalizesQueries({ device }: CommandEncoder, tensors: readonly Tensor[], dims: ChunkDims): boolean {
  if (constantsOf(chunkOutputKernel, device).normalizes === 0) return false;
  if (tensors.some(({ byteOffset }) => byteOffset % 16 !== 0)) return false;
  const { bytesPerElement: bytes } = DTYPES[(tensors[0] as Tensor).dtype];
  return isWide({ ...dims, bytes }, device.limits.maxThreadgroupBytes);
}

/** With `norm` q is what `normalizesQueries` is asked for. */
export function encodeChunkOutput(
  encoder: CommandEncoder,
  op: string,
  tensors: Record<"q" | "k" | "vNew" | "h" | "G" | "o", Tensor> &
    Partial<Record<"GLow" | "cuSeqlens" | "mask", Tensor | undefined>>,
  dims: ChunkDims,
  { gqa, scale }: Pick<RuleOptions, "gqa" | "scale">,
  lastTokens = 0,
  norm?: Pick<RuleOptions, "qkNorm" | "qkNormEps">,
): void {
  const { q, k, vNew, h, G, GLow, cuSeqlens, mask, o } = tensors;
  const { bytesPerElement: bytes } = DTYPES[q.dtype];
  const sizes = { ...dims, bytes, norm: norm ? normParams(dims, norm) : NO_NORM };
  const warpgroups = takesWarpgroups(encoder, [q, k, vNew, h, o], sizes);
  encoder.dispatch(chunkOutputKernel, {
    op,
    variant: warpgroups ? WARPGROUPS.variant : gateVariant(q.dtype, dims),
    buffers: { q, k, vNew, h, cumulativeGate: G, cumulativeGateLow: GLow, cuSeqlens, mask, o },
    params: { ...chunkParams(dims, gqa, lastTokens), scale },
    sizes: { ...sizes, warpgroups },
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
