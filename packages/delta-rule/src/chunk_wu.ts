import {
  type CommandEncoder,
  constantsOf,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  type Tensor,
  tileStride,
} from "@mlxts/core";
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
  chunkThreads,
  PLACE_SCRATCH,
  PLACE_SHAPE,
  SIMD,
  STRIP,
  tileShapeF32,
  WIDE,
  WIDE_STRIDE,
  wideChunks,
} from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH, checkPacked, GQA, PACKED_FAULTS, type RuleOptions } from "./options.ts";
import type { ChunkWu } from "./signatures.ts";

interface Sizes extends Pick<ChunkDims, "B" | "H" | "K" | "V" | "BT" | "NT" | "channels"> {
  dtype: Dtype;
  /** Whether warpgroups multiply. */
  warpgroups: boolean;
}

/** Two simdgroups share a strip of a whole chunk. */
const WIDE_THREADS = 256;

const computesWide = (sizes: Omit<Sizes, "warpgroups">) => wideChunks(sizes) && sizes.dtype === "bf16";

/** u and w have threadgroups of their own. */
const onGpu = ({ B, H, BT, NT }: Sizes, panelColumns: number) => ({
  threadgroups: [NT, H, 2 * B] as const,
  threadsPerThreadgroup: chunkThreads({ BT }),
  scratch: { ...PLACE_SHAPE, tiles: tileShapeF32(2 * BT, panelColumns), factors: [BT] },
});

/** Where warpgroups multiply, see warpgroup_wu_cuda.h, one has a chunk of a head, with keys and values this long. */
const WARPGROUPS = { variant: "bf16_warpgroups", longest: WIDE, threads: 4 * SIMD };

function byWarpgroups({ NT, H, B, BT }: Sizes) {
  // v and k; A and X in two parts; the diagonal of A.
  const bytes = 4 * BT * WIDE + 4 * BT * tileStride("bf16", BT) + 4 * BT * STRIP;
  return {
    threadgroups: [NT, H, B] as const,
    threadsPerThreadgroup: [WARPGROUPS.threads, 1, 1] as const,
    scratch: { ...PLACE_SHAPE, tiles: [bytes / 4], factors: [4 * BT] },
  };
}

/** Where X is made, and all begins at whole pieces. */
function takesWarpgroups({ device }: CommandEncoder, tensors: readonly Tensor[], { K, V }: ChunkDims): boolean {
  const { variant, longest } = WARPGROUPS;
  if (K > longest || V > longest || K % 8 !== 0 || tensors.some(({ byteOffset }) => byteOffset % 16 !== 0))
    return false;
  return device.library(deltaRuleLibrary).has(chunkWuKernel.name, variant);
}

export const chunkWuKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_wu",
  variants: [...channelVariants(FLOATS), "bf16_wide", WARPGROUPS.variant],
  sm90a: [WARPGROUPS.variant],
  buffers: {
    k: "read",
    v: "read",
    beta: "read",
    ...CUMULATIVE_BUFFERS,
    x: "read?",
    w: "write",
    u: "write",
  },
  params: CHUNK_PARAMS,
  faults: PACKED_FAULTS,
  // `makesX`: a whole chunk is computed without X, from keys and gates, as the stages before this one do it.
  constants: { cpu: { panelColumns: 64, makesX: 0 }, gpu: { panelColumns: 32, makesX: 0 }, cuda: { makesX: 1 } },
  // Rows of v and k times their factor, a panel of columns at a time; on a GPU in two tiles, used in turn.
  scratch: {
    cpu: { panel: "f32", factors: "f32", ...CUMULATIVE_SCRATCH },
    // Warpgroups want tiles at the beginning.
    gpu: { tiles: "f32", ...PLACE_SCRATCH, factors: "f32" },
  },
  mostThreads: WIDE_THREADS,
  launch: {
    cpu: ({ B, H, BT, NT }: Sizes, { constants: { panelColumns } }) => ({
      threadgroups: [NT, H, B],
      scratch: { panel: [BT, panelColumns], factors: [BT], cumulativeGateHigh: [BT], cumulativeGateLow: [BT] },
    }),
    gpu: (sizes, { constants: { panelColumns } }) => onGpu(sizes, panelColumns),
    cuda: (sizes, { constants: { panelColumns } }) => {
      if (sizes.warpgroups === true) return byWarpgroups(sizes);
      const launch = onGpu(sizes, panelColumns);
      if (!computesWide(sizes)) return launch;
      const { NT, H, B, BT } = sizes;
      return {
        ...launch,
        threadgroups: [NT, H, B],
        threadsPerThreadgroup: [WIDE_THREADS, 1, 1],
        // v, k, A and X: tiles of half as many f32.
        scratch: { ...launch.scratch, tiles: [4, BT, WIDE_STRIDE / 2], factors: [4 * BT] },
      };
    },
  },
});

/** Whether the stage takes no X but makes it itself, if it has none. */
export const makesX = ({ device }: CommandEncoder, sizes: Omit<Sizes, "warpgroups">): boolean =>
  constantsOf(chunkWuKernel, device).makesX === 1 && computesWide(sizes);

export function encodeChunkWu(
  encoder: CommandEncoder,
  op: string,
  tensors: Record<"k" | "v" | "beta" | "G" | "w" | "u", Tensor> &
    Partial<Record<"GLow" | "cuSeqlens" | "X", Tensor | undefined>>,
  dims: ChunkDims,
  gqa: RuleOptions["gqa"],
  lastTokens = 0,
): void {
  const { k, v, beta, G, GLow, cuSeqlens, X, w, u } = tensors;
  const wide = makesX(encoder, { ...dims, dtype: k.dtype });
  const warpgroups = wide && X === undefined && takesWarpgroups(encoder, [k, v, w, u], dims);
  const wideVariant = warpgroups ? WARPGROUPS.variant : "bf16_wide";
  encoder.dispatch(chunkWuKernel, {
    op,
    variant: wide ? wideVariant : gateVariant(k.dtype, dims),
    buffers: { k, v, beta, cumulativeGate: G, cumulativeGateLow: GLow, cuSeqlens, x: X, w, u },
    params: chunkParams(dims, gqa, lastTokens),
    sizes: { ...dims, dtype: k.dtype, warpgroups },
  });
}

/**
 * Stage 5 of the chunked gated delta rule: `u = X · round(beta v)` and `w = X · round(beta exp(G) k)` per chunk.
 *
 * `k` [B, T, Hk, K], `w` [B, T, H, K], `v`, `u` [B, T, H, V]: f32, f16 or bf16, one dtype (round: to that dtype); `beta`,
 * `G`, `GLow` (optional) [B, T, H] f32; `X` [B, T, H, chunkLength] f32, unit lower triangular per chunk. Summed in f32, one
 * rounding at the store. Errors: `InvalidArgument` for dimensions, shapes, dtypes, options and overlap.
 */
export const chunkWu: ChunkWu = defineOp({
  name: "chunkWu",
  summary: "u = X · round(beta v), w = X · round(beta exp(G) k) per chunk",
  inputs: {
    k: { dtype: FLOATS, shape: "B T Hk K", doc: "keys" },
    v: { dtype: ["=k"], shape: "B T H V", doc: "values" },
    beta: { dtype: ["f32"], shape: "B T H", doc: "strength of each write" },
    ...CUMULATIVE,
    X: { dtype: ["f32"], shape: TOKEN_PAIRS, doc: "inverses from `chunkInverse`" },
  },
  outputs: {
    w: { dtype: ["=k"], shape: "B T H K", doc: "keys that the chunk's own writes have been taken from" },
    u: { dtype: ["=k"], shape: "B T H V", doc: "values that the chunk's own writes have been taken from" },
  },
  params: { chunkLength: CHUNK_LENGTH, gqa: GQA },
  relations: checkChunkDims,
  rules: checkPacked,
  encode(c) {
    encodeChunkWu(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c), c.options.gqa);
  },
});
