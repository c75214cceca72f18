import {
  type CommandEncoder,
  DTYPES,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  type Tensor,
  tileStride,
} from "@mlxts/core";
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
  PLACE_SCRATCH,
  PLACE_SHAPE,
  SIMD,
  shapeIf,
  tileShape,
  tileShapeF32,
  wholeVectors,
} from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import {
  CHUNK_LENGTH,
  checkSnapshots,
  GQA,
  PACKED_FAULTS,
  RULE_OUTPUTS,
  type RuleOptions,
  SNAPSHOT_EVERY,
  STATE_LAYOUT,
  STATES,
  stateStrides,
} from "./options.ts";
import type { ChunkState } from "./signatures.ts";

interface Sizes extends Pick<ChunkDims, "N" | "H" | "K" | "V" | "BT" | "channels"> {
  /** Bytes of an element of k. */
  bytes: number;
  /** Whether warpgroups multiply, and whether one has half of the rows that it can have. */
  warpgroups: boolean;
  halves: boolean;
}

/** A GPU keeps the state in registers: it has a kernel for keys up to each of these lengths. */
const KEY_LENGTHS = [64, 128, 256];
const keyLength = (K: number) => KEY_LENGTHS.find((most) => K <= most) as number;
/** Value rows of a GPU's threadgroup, and simdgroups that share the columns of the state and the tokens of a chunk. */
const GPU_ROWS = 16;
const SIMDGROUPS = 4;
const MOST_TOKENS = Math.max(...CHUNK_LENGTH.values);
/** Bytes of w or k that a simdgroup has in threadgroup memory at once. */
const TILE_BYTES = 2048;

/** Bytes of the tile of a simdgroup: w with a strip of tokens, or k with the simdgroup's columns. */
function tileBytes({ K, bytes }: Pick<Sizes, "K" | "bytes">): number {
  const strip = MOST_TOKENS / SIMDGROUPS;
  const ofKey = bytes * keyLength(K);
  const w = Math.min(ofKey, TILE_BYTES / strip);
  const k = Math.min(ofKey / SIMDGROUPS, TILE_BYTES / 16);
  return Math.max(strip * tileStride("u8", w), Math.min(MOST_TOKENS, TILE_BYTES / k) * tileStride("u8", k));
}

const onGpu = (sizes: Sizes) => ({
  threadgroups: [Math.ceil(sizes.V / GPU_ROWS), sizes.H, sizes.N] as const,
  threadsPerThreadgroup: [SIMDGROUPS * SIMD, 1, 1] as const,
  params: { teams: 0, slots: 0 },
  scratch: {
    ...PLACE_SHAPE,
    state: tileShapeF32(GPU_ROWS, keyLength(sizes.K)),
    values: tileShape(MOST_TOKENS, GPU_ROWS * sizes.bytes),
    tiles: [SIMDGROUPS, tileBytes(sizes)],
  },
});

/** Elements from token to token of a team's tiles. */
const SUM_STRIDE = GPU_ROWS + 8;
/** More threadgroups than this, and each has two teams, which share what they read; beside one team are carriers. */
const MOST_SINGLE_TEAMS = 144;
const MOST_TEAMS = 2;
const MOST_SLOTS = 4;
/** Room for \`place\` of the scratch below. */
const PLACE_BYTES = 64;

/**
 * With 16-bit elements, whole eights of values and one gate a head, NVIDIA's GPUs have teams of simdgroups, each with `rows` of the state, and slots
 * for the chunks that are on their way; see cuda_chunk_state.h.
 */
function inTeams({ N, H, K, V }: Sizes, mostBytes: number) {
  const rowBlocks = Math.ceil(V / GPU_ROWS);
  const teams = rowBlocks > 1 && rowBlocks * H * N > MOST_SINGLE_TEAMS ? MOST_TEAMS : 1;
  const keyStride = tileStride("bf16", keyLength(K));
  const slot = MOST_TOKENS * (2 * (2 * keyStride + teams * GPU_ROWS + 8) + 8);
  const values = 2 * teams * (MOST_TOKENS * SUM_STRIDE + GPU_ROWS * keyStride);
  const sums = teams * SIMDGROUPS * MOST_TOKENS * SUM_STRIDE;
  const slots = Math.min(MOST_SLOTS, Math.floor((mostBytes - PLACE_BYTES - values - 4 * sums) / slot));
  return {
    threadgroups: [Math.ceil(rowBlocks / teams), H, N] as const,
    threadsPerThreadgroup: [MOST_TEAMS * SIMDGROUPS * SIMD, 1, 1] as const,
    params: { teams, slots },
    scratch: { ...PLACE_SHAPE, state: [sums], values: [values], tiles: [slots, slot] },
  };
}

/** Where warpgroups multiply, see warpgroup_state_cuda.h, they have 64 value rows of a head, of keys this long. */
const WARPGROUPS = { variant: "bf16_warpgroups", rows: 64, shortest: 72, longest: 128, threads: 384, slots: 4 };

/** The most threadgroups that have a multiprocessor each. */
const MULTIPROCESSORS = 132;
const takesHalves = ({ N, H, V }: Pick<Sizes, "N" | "H" | "V">) =>
  Math.ceil(V / (WARPGROUPS.rows / 2)) * H * N <= MULTIPROCESSORS;

function byWarpgroups({ N, H, V, halves }: Sizes) {
  const { rows, longest, threads, slots } = WARPGROUPS;
  const own = halves ? rows / 2 : rows;
  const row = 2 * MOST_TOKENS;
  const taken = rows * tileStride("u8", 2 * longest) + MOST_TOKENS * tileStride("u8", 2 * rows);
  return {
    threadgroups: [Math.ceil(V / own), H, N] as const,
    threadsPerThreadgroup: [threads, 1, 1] as const,
    // As many simdgroups have values.
    params: { teams: own / GPU_ROWS, slots },
    // Halves of w and k, and u; factors and gates; h and vNew of two chunks.
    scratch: {
      ...PLACE_SHAPE,
      tiles: [slots, 5, MOST_TOKENS, row],
      state: [slots, 6 * MOST_TOKENS],
      values: [2, taken],
    },
  };
}

/** Where all begins at whole pieces, and so many heads that threadgroups with few rows each would crowd the device. */
function takesWarpgroups(
  { device }: CommandEncoder,
  tensors: readonly Tensor[],
  { N, H, K, V, channels }: ChunkDims,
): boolean {
  const { variant, shortest, longest } = WARPGROUPS;
  const many = Math.ceil(V / GPU_ROWS) * H * N > MOST_SINGLE_TEAMS && V > GPU_ROWS;
  if (!many || K < shortest || K > longest || K % 8 !== 0 || V % 8 !== 0 || channels > 1) return false;
  if (tensors.some(({ dtype, byteOffset }) => dtype !== "bf16" || byteOffset % 16 !== 0)) return false;
  return device.library(deltaRuleLibrary).has(chunkStateKernel.name, variant);
}

export const chunkStateKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_state",
  variants: [
    ...channelVariants([...FLOATS, ...FLOATS.flatMap((dtype) => KEY_LENGTHS.map((most) => `${dtype}_k${most}`))]),
    WARPGROUPS.variant,
  ],
  sm90a: [WARPGROUPS.variant],
  buffers: {
    k: "read",
    w: "read",
    u: "read",
    ...CUMULATIVE_BUFFERS,
    initialState: "read?",
    h: "write",
    vNew: "write",
    finalState: "write?",
    snapshots: "write?",
  },
  params: { ...CHUNK_PARAMS, rowStride: "u32", columnStride: "u32", snapshotEvery: "u32" },
  faults: PACKED_FAULTS,
  inPlace: [
    ["finalState", "initialState"],
    ["vNew", "u"],
  ],
  constants: {
    cpu: { rows: 64 },
    gpu: {
      rows: GPU_ROWS,
      simdgroups: SIMDGROUPS,
      threads: SIMDGROUPS * SIMD,
      tileBytes: TILE_BYTES,
      mostTokens: MOST_TOKENS,
      sumStride: SUM_STRIDE,
    },
  },
  launchParams: { gpu: { teams: "u32", slots: "u32" } },
  scratch: {
    // gated: vNew as it decays to the chunk's end. keyDecays: with a gate for each channel, those of the whole chunk.
    // values: a chunk's u, then vNew, then what gated is. tiles: of w and k, one for each simdgroup. Of teams: the
    // simdgroups' parts of w Sᵀ; what gated is, and the state, rounded; the slots.
    cpu: {
      state: "f32",
      transposedState: "f32",
      gated: "f32",
      w: "f32",
      keys: "f32",
      decaysToEnd: "f32",
      ...CUMULATIVE_SCRATCH,
      keyDecays: "f32",
    },
    // Warpgroups want tiles at the beginning.
    gpu: { tiles: "u8", ...PLACE_SCRATCH, state: "f32", values: "u8" },
  },
  mostThreads: WARPGROUPS.threads,
  launch: {
    cpu: ({ N, H, K, V, BT, channels, bytes }: Sizes, { constants: { rows } }) => {
      const ofHead = shapeIf(channels === 1, BT);
      return {
        threadgroups: [Math.ceil(V / rows), H, N],
        scratch: {
          state: [K, rows],
          transposedState: [rows, K],
          gated: [BT, rows],
          w: shapeIf(bytes < 4, BT, K),
          keys: [BT, K],
          decaysToEnd: ofHead,
          cumulativeGateHigh: ofHead,
          cumulativeGateLow: ofHead,
          keyDecays: shapeIf(channels > 1, wholeVectors(K)),
        },
      };
    },
    gpu: (sizes) => onGpu(sizes),
    cuda: (sizes, { limits }) => {
      if (sizes.warpgroups === true) return byWarpgroups(sizes);
      const pairs = sizes.bytes === 2 && sizes.channels === 1 && sizes.V % 8 === 0;
      const launch = pairs ? inTeams(sizes, limits.maxThreadgroupBytes) : undefined;
      return launch && launch.params.slots >= 2 ? launch : onGpu(sizes);
    },
  },
});

/** The variant for any length of keys, or the one for keys of at most so many elements where a library has those. */
function keyVariant({ device }: CommandEncoder, dtype: Dtype, K: number): string {
  if (device.library(deltaRuleLibrary).has(chunkStateKernel.name, dtype)) return dtype;
  return `${dtype}_k${keyLength(K)}`;
}

export function encodeChunkState(
  encoder: CommandEncoder,
  op: string,
  tensors: Record<"k" | "w" | "u" | "G" | "h" | "vNew", Tensor> &
    Partial<Record<"GLow" | "cuSeqlens" | "initialState" | "finalState" | "snapshots", Tensor | undefined>>,
  dims: ChunkDims,
  { gqa, stateLayout, snapshotEvery = 0 }: Pick<RuleOptions, "gqa" | "stateLayout" | "snapshotEvery">,
  lastTokens = 0,
): void {
  const { k, w, u, G, GLow, cuSeqlens, initialState, h, vNew, finalState, snapshots } = tensors;
  const warpgroups = takesWarpgroups(encoder, [k, w, u, h, vNew], dims);
  encoder.dispatch(chunkStateKernel, {
    op,
    variant: warpgroups ? WARPGROUPS.variant : gateVariant(keyVariant(encoder, k.dtype, dims.K), dims),
    buffers: {
      k,
      w,
      u,
      cumulativeGate: G,
      cumulativeGateLow: GLow,
      cuSeqlens,
      initialState,
      h,
      vNew,
      finalState,
      snapshots,
    },
    params: { ...chunkParams(dims, gqa, lastTokens), ...stateStrides(dims, stateLayout), snapshotEvery },
    sizes: { ...dims, bytes: DTYPES[k.dtype].bytesPerElement, warpgroups, halves: warpgroups && takesHalves(dims) },
  });
}

/**
 * Stage 6 of the chunked gated delta rule, chunk after chunk with the state S [V, K] of each head, n tokens a chunk:
 *
 * ```
 * h = round(S);  d = u − w Sᵀ;  vNew = round(d)
 * S ← exp(G_{n−1}) · S + round(d · exp(G_{n−1} − G))ᵀ k
 * ```
 *
 * `k` [B, T, Hk, K], `w` [B, T, H, K], `u`, `vNew` [B, T, H, V], `h` [B, NT, H, V, K] with NT = ⌈T/chunkLength⌉: f32, f16 or
 * bf16, one dtype (round: to that dtype); `G`, `GLow` (optional) [B, T, H], `initialState` (absent: zeros), `finalState`
 * (written when passed, or `true`) [B, H, V, K] f32. `finalState` may be exactly `initialState`, `vNew` exactly `u`. S stays
 * in f32, also in w Sᵀ. Errors: `InvalidArgument` for dimensions, shapes, dtypes, options and overlap.
 */
export const chunkState = defineOp({
  name: "chunkState",
  summary: "h = S; vNew = u - w Sᵀ; S = exp(G_last)·S + (vNew·exp(G_last - G))ᵀ k, per chunk",
  inputs: {
    k: { dtype: FLOATS, shape: "B T Hk K", doc: "keys" },
    w: { dtype: ["=k"], shape: "B T H K", doc: "from `chunkWu`" },
    u: { dtype: ["=k"], shape: "B T H V", doc: "from `chunkWu`" },
    ...CUMULATIVE,
    initialState: {
      dtype: ["f32"],
      shape: STATES,
      optional: true,
      doc: "state before the first token, zeros when absent",
    },
  },
  outputs: {
    h: { dtype: ["=k"], shape: CHUNK_STATES, doc: "states before each chunk" },
    vNew: { dtype: ["=k"], shape: "B T H V", inPlace: ["u"], doc: "corrected values" },
    finalState: RULE_OUTPUTS.finalState,
    snapshots: RULE_OUTPUTS.snapshots,
  },
  params: { chunkLength: CHUNK_LENGTH, gqa: GQA, stateLayout: STATE_LAYOUT, snapshotEvery: SNAPSHOT_EVERY },
  relations: checkChunkDims,
  rules: checkSnapshots,
  encode(c) {
    encodeChunkState(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c), c.options);
  },
}) as ChunkState;
