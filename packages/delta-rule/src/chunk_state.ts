import {
  type CommandEncoder,
  DTYPES,
  type Dtype,
  defineKernel,
  defineOp,
  FLOATS,
  OLD_SCRATCH,
  oldLaunch,
  type Tensor,
} from "@mlxts/core";
import {
  CHUNK_PARAMS,
  CHUNK_STATES,
  type ChunkDims,
  CUMULATED,
  channelVariants,
  checkChunkDims,
  chunkDims,
  chunkParams,
  gateVariant,
} from "./chunk.ts";
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

/** Value rows of one threadgroup on the CPU. */
const ROWS = 64;
/** On a GPU, where a simdgroup has eight of them. */
const GPU_ROWS = 32;
/** Rows of w or k that a GPU has in threadgroup memory at once, and what they take with gaps that spread them over banks. */
const TILE_BYTES = 8192;
const BUFFER_BYTES = TILE_BYTES + 1024;
/** A GPU keeps the state in registers: it has a kernel for keys up to each of these lengths. */
const KEY_LENGTHS = [64, 128, 256];

export const chunkStateKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_state",
  variants: channelVariants([...FLOATS, ...FLOATS.flatMap((dtype) => KEY_LENGTHS.map((most) => `${dtype}_k${most}`))]),
  buffers: {
    k: "read",
    w: "read",
    u: "read",
    sum: "read",
    sumLow: "read?",
    cuSeqlens: "read?",
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
  constants: { shared: { rows: GPU_ROWS, tileBytes: TILE_BYTES, bufferBytes: BUFFER_BYTES } },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(
    (
      {
        N,
        H,
        K,
        V,
        BT,
        channels,
        bytes,
      }: Pick<ChunkDims, "N" | "H" | "K" | "V" | "BT" | "channels"> & { bytes: number },
      { gpu },
    ) => ({
      threadgroups: [Math.ceil(V / (gpu ? GPU_ROWS : ROWS)), H, N],
      threadsPerThreadgroup: [4 * GPU_ROWS, 1, 1],
      threadgroupBytes: gpu
        ? 2 * BUFFER_BYTES + BT * GPU_ROWS * bytes + (channels === 1 ? 0 : 4 * K)
        : 4 * (2 * K * ROWS + BT * ROWS + 2 * BT * K + BT + Math.max(2 * (BT + 16), K + 16)),
    }),
  ),
});

/** The variant for any length of keys, or the one for keys of at most so many elements where a library has those. */
function keyVariant({ device }: CommandEncoder, dtype: Dtype, K: number): string {
  if (device.library(deltaRuleLibrary).has(chunkStateKernel.name, dtype)) return dtype;
  return `${dtype}_k${KEY_LENGTHS.find((most) => K <= most)}`;
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
  encoder.dispatch(chunkStateKernel, {
    op,
    variant: gateVariant(keyVariant(encoder, k.dtype, dims.K), dims),
    buffers: { k, w, u, sum: G, sumLow: GLow, cuSeqlens, initialState, h, vNew, finalState, snapshots },
    params: { ...chunkParams(dims, gqa, lastTokens), ...stateStrides(dims, stateLayout), snapshotEvery },
    sizes: { ...dims, bytes: DTYPES[k.dtype].bytesPerElement },
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
    ...CUMULATED,
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
