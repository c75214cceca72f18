import { arenaBytes, type CommandEncoder, type Dtype, defineOp, type FloatDtype, type Tensor } from "@mlxts/core";
import {
  type ChunkDims,
  checkChunkDims,
  chunkDims,
  type ScratchShape,
  type ScratchTensors,
  scratchTensors,
} from "./chunk.ts";
import { encodeChunkCumsum } from "./chunk_cumsum.ts";
import { encodeChunkInverse } from "./chunk_inverse.ts";
import { encodeChunkKkt } from "./chunk_kkt.ts";
import { encodeChunkOutput } from "./chunk_output.ts";
import { encodeChunkState } from "./chunk_state.ts";
import { encodeChunkWu } from "./chunk_wu.ts";
import { encodeFusedChunks, fusesChunks } from "./gated_delta_rule_chunk.ts";
import { encodeRecurrent, type RuleTensors } from "./gated_delta_rule_recurrent.ts";
import {
  CHUNK_LENGTH,
  checkRuleDims,
  QK_NORM,
  QK_NORM_EPS,
  RULE_INPUTS,
  RULE_OUTPUTS,
  type RuleDims,
  type RuleOptions,
  SCALE,
} from "./options.ts";
import { encodeQkNorm } from "./qk_norm.ts";

/** The number of tokens from which a CPU's chunk path is faster, measured with K = V = 128 and 4 and 32 heads. */
const CROSSOVER = 8;
/** The same for GPUs, where the stages are dispatches of their own: one whole chunk. */
const GPU_CROSSOVER = 64;

type Path = "auto" | "recurrent" | "chunk";
type Precision = "act" | "f32";

/**
 * Options of `gatedDeltaRule` that decide how much scratch the chunk path takes, with the op's meanings and defaults:
 * `chunkLength` 64 tokens, `qkNorm` `none` (normalised copies of q and k are scratch), `precision` `act` (`f32` adds the
 * low part of the cumulated gates).
 */
export interface ChunkOptions {
  chunkLength?: 16 | 32 | 64;
  qkNorm?: "none" | "sum-eps";
  precision?: Precision;
}

const carriesPair = (dtype: Dtype, precision: Precision): boolean => dtype === "f32" || precision === "f32";

/** Which path a call with `path` takes; K that the chunk path does not do goes to the recurrent one. */
function takesChunks({ device }: CommandEncoder, path: Path, { T, K }: Pick<RuleDims, "T" | "K">): boolean {
  if (path !== "auto") return path === "chunk";
  return T >= (device.gpu ? GPU_CROSSOVER : CROSSOVER) && K % 8 === 0;
}

/**
 * Bytes of scratch that the stages of the chunk path take from the encoder's arena, and give back. Devices with a kernel
 * for the whole pipeline (the CPU, up to 2^17 elements of state per head) take none; GPUs always take these.
 */
export function scratchBytes(
  shape: RuleDims & { dtype: FloatDtype },
  { chunkLength = 64, qkNorm = "none", precision = "act" }: ChunkOptions = {},
): number {
  return bytesOf(scratchShape(shape, { chunkLength, qkNorm, precision }));
}

function scratchShape(
  shape: RuleDims & { dtype: Dtype },
  { chunkLength, qkNorm, precision }: Required<ChunkOptions>,
): ScratchShape {
  return { ...shape, chunkLength, pair: carriesPair(shape.dtype, precision), normalised: qkNorm !== "none" };
}

const bytesOf = (shape: ScratchShape): number =>
  scratchTensors(shape).reduce((sum, [, dtype, dims]) => sum + arenaBytes(dtype, dims), 0);

/** The intermediate tensors, as parts of one block: it is there in whole or not at all. */
function allocateScratch(encoder: CommandEncoder, shape: ScratchShape): ScratchTensors {
  const block = encoder.empty("u8", [bytesOf(shape)]);
  let offset = 0;
  const parts: Record<string, Tensor> = {};
  for (const [name, dtype, dims] of scratchTensors(shape)) {
    const taken = arenaBytes(dtype, dims);
    const size = dims.reduce((a, b) => a * b, 1);
    parts[name] = block.view(offset, [taken]).cast(dtype).view(0, [size]).reshape(dims);
    offset += taken;
  }
  return parts as ScratchTensors;
}

function encodeChunks(
  encoder: CommandEncoder,
  op: string,
  { q, k, v, g, beta, initialState, o, finalState }: RuleTensors,
  dims: ChunkDims,
  { scale, qkNorm, qkNormEps, precision, chunkLength }: RuleOptions & Required<ChunkOptions>,
): void {
  if (fusesChunks(encoder, q.dtype, dims)) {
    const tensors = { q, k, v, g, beta, initialState, o, finalState };
    const pair = carriesPair(q.dtype, precision);
    encodeFusedChunks(encoder, op, tensors, dims, { scale, qkNorm, qkNormEps, pair });
    return;
  }
  const mark = encoder.arena?.mark();
  const options = { chunkLength, qkNorm, precision };
  const scratch = allocateScratch(encoder, scratchShape({ ...dims, dtype: q.dtype }, options));
  const { qUnit, kUnit } = scratch;
  if (qUnit && kUnit) encodeQkNorm(encoder, op, { q, k, qUnit, kUnit }, qkNormEps);
  const tensors = { ...scratch, q: qUnit ?? q, k: kUnit ?? k, v, g, beta, initialState, o, finalState };
  encodeChunkCumsum(encoder, op, tensors, dims);
  encodeChunkKkt(encoder, op, tensors, dims);
  encodeChunkInverse(encoder, op, tensors, dims);
  encodeChunkWu(encoder, op, tensors, dims);
  encodeChunkState(encoder, op, tensors, dims);
  encodeChunkOutput(encoder, op, tensors, dims, scale);
  if (mark) encoder.arena?.rewind(mark);
}

/**
 * The gated delta rule over T tokens; for each sequence and value head, with state S [V, K]:
 *
 * ```
 * S ← exp(g) · S
 * S ← S + beta · (v − S k) kᵀ
 * o = scale · S q
 * ```
 *
 * - `q`, `k` [B, T, Hk, K], `v`, `o` [B, T, H, V] f32, f16 or bf16, one dtype; H a multiple of Hk, value head h uses key
 *   head ⌊h / (H/Hk)⌋. K ≤ 256.
 * - `g` [B, T, H] f32, natural log of the decay per token, not cumulated; `beta` [B, T, H] f32.
 * - `initialState` [B, H, V, K] f32, absent: zeros. `finalState`, same: written when it is passed (or `true`), may be
 *   exactly `initialState`.
 * - `scale`: required, K^-1/2 in the known models; applied once, to the output.
 * - `qkNorm` `none` (default) or `sum-eps`: q and k are divided by √(Σx² + `qkNormEps`).
 * - `path` `recurrent`: token by token. `chunk`: in chunks of `chunkLength` 16, 32 or 64 (default) tokens, by matrix
 *   products; K a multiple of 8. `auto` (default): `chunk` from the number of tokens where it is faster.
 * - `precision` `f32`: cumulated gates are carried as pairs, exact for gates of any strength; always so with f32
 *   tensors. `act` (default): in f32 alone.
 *
 * On the chunk path q and k are rounded to their dtype after normalisation and the intermediate results of §4 of the
 * contract are kept in the dtype of q; sums and the state are f32. Cut at a multiple of `chunkLength` the bits are those of
 * one call. Scratch, at most `scratchBytes`, comes from the encoder's arena, and goes back to it when the call returns.
 * The rule is stable while beta·|k|² ≤ 2; a NaN in a token reaches the rest of its head, and earlier tokens of its chunk.
 * Errors: `InvalidArgument` for dimensions, shapes, dtypes, options, overlap, and an arena that is too small.
 * Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024; Yang et al., "Parallelizing Linear Transformers with the
 * Delta Rule over Sequence Length", 2024.
 */
export const gatedDeltaRule = defineOp({
  name: "gatedDeltaRule",
  summary: "S = exp(g)·S + beta·(v - exp(g)·S k)·kᵀ; o = scale · S q",
  inputs: RULE_INPUTS,
  outputs: RULE_OUTPUTS,
  params: {
    scale: SCALE,
    path: { kind: "choice", values: ["auto", "recurrent", "chunk"], default: "auto", doc: "how it is computed" },
    chunkLength: CHUNK_LENGTH,
    qkNorm: QK_NORM,
    qkNormEps: QK_NORM_EPS,
    precision: { kind: "choice", values: ["act", "f32"], default: "act", doc: "f32: cumulated gates as pairs" },
  },
  relations(c) {
    if (c.options.path === "chunk") checkChunkDims(c);
    else checkRuleDims(c);
  },
  check(c) {
    const { encoder, options, outputs, inputs, fail } = c;
    const { dtype } = inputs.q;
    const dims = chunkDims(c);
    if (!encoder.arena || !takesChunks(encoder, options.path, dims) || fusesChunks(encoder, dtype, dims)) return;
    const { B, T, H, K, V } = dims;
    const asked = (inputs as { finalState?: unknown }).finalState === true;
    const bytes =
      bytesOf(scratchShape({ ...dims, dtype }, options)) +
      (outputs.o ? 0 : arenaBytes(dtype, [B, T, H, V])) +
      (asked ? arenaBytes("f32", [B, H, V, K]) : 0);
    const { free, used } = encoder.arena;
    if (free < bytes) fail("arena", `have ${bytes} free bytes`, free, `make it at least ${used + bytes} bytes`);
  },
  encode(c) {
    const { encoder, op, options } = c;
    const tensors = { ...c.inputs, initialState: c.inputs.initialState, ...c.outputs };
    const dims = chunkDims(c);
    if (takesChunks(encoder, options.path, dims)) encodeChunks(encoder, op, tensors, dims, options);
    else encodeRecurrent(encoder, op, tensors, dims, options);
  },
});
