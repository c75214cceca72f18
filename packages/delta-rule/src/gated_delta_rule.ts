import {
  arenaBytes,
  type CommandEncoder,
  type Dtype,
  defineOp,
  type FloatDtype,
  type OpContext,
  type Tensor,
} from "@mlxts/core";
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
import { encodeChunkOutput, normalizesQueries } from "./chunk_output.ts";
import { encodeChunkState } from "./chunk_state.ts";
import { encodeChunkWu, makesX } from "./chunk_wu.ts";
import { encodeFusedChunks, fusesChunks, multipliesByTiles, offersFusedChunks } from "./gated_delta_rule_chunk.ts";
import { encodeRecurrent, type RuleTensors, ruleTensors } from "./gated_delta_rule_recurrent.ts";
import { encodeMaskValues } from "./mask_values.ts";
import {
  asked,
  type CallContext,
  type CallDims,
  CONVENTIONS,
  callDims,
  checkRule,
  checkRuleDims,
  keepsLast,
  LAST_TOKENS,
  LONGEST_CHUNK,
  RULE_CHUNK_LENGTH,
  RULE_INPUTS,
  RULE_OUTPUTS,
  type RuleDims,
  type RuleOptions,
  SNAPSHOT_EVERY,
} from "./options.ts";
import { encodeQkNorm } from "./qk_norm.ts";
import type { GatedDeltaRule } from "./signatures.ts";
import { encodeValidation } from "./validate_rule.ts";

/**
 * The number of tokens from which the chunk path is faster. Libraries with the fused kernel are those of CPUs: by the
 * instruction set, gates of channels and elements of state, as the README's tables have it. Others are those of GPUs: one
 * whole chunk.
 */
function crossover(encoder: CommandEncoder, dtype: Dtype, { K, V, channels }: ChunkDims): number {
  if (!offersFusedChunks(encoder, dtype)) return 64;
  if (channels > 1 || multipliesByTiles(encoder, "bf16")) return 16;
  return K * V > 2 ** 14 ? 8 : 4;
}

type Path = "auto" | "recurrent" | "chunk";
type Precision = "activation" | "f32";

/**
 * What decides, beside the dimensions, how much scratch the chunk path takes, with the op's meanings and defaults:
 * `chunkLength` 64 tokens, `qkNorm` `none` (normalized copies of q and k are scratch), `precision` `activation` (`f32`
 * adds the low part of the cumulative gates); whether each channel has a gate of its own, whether there is a `mask`,
 * the number of packed `sequences`, and whether the last tokens are kept without a `finalState`.
 */
export interface ScratchOptions {
  chunkLength?: 16 | 32 | 64;
  qkNorm?: RuleOptions["qkNorm"];
  precision?: Precision;
  channelGates?: boolean;
  mask?: boolean;
  sequences?: number;
  lastTokensOnly?: boolean;
}

export type ChunkOptions = RuleOptions & { precision: Precision };

/**
 * The dimensions of a call, with the fastest chunk length where the call has none. Where one kernel has the whole pipeline
 * that is 16: of 512 tokens (H 32, K = V = 128, Zen 5) it takes 8 to 18 % less time than 64, at each instruction set in f32 and
 * bf16, and never more than 32, since the products within a chunk cost less. With AMX these are cheap, and longer chunks
 * pass over the state less often: 64 takes a quarter less than 16, or 32 where each channel has its own gate.
 */
export function ruleDims(
  c: Pick<CallContext, "dims" | "options" | "tensors"> & { readonly encoder: CommandEncoder },
  dtype: Dtype,
): ChunkDims {
  return chunkDims(c, (c.options.chunkLength as number | undefined) ?? fastestChunk(c.encoder, dtype, callDims(c)));
}

function fastestChunk(encoder: CommandEncoder, dtype: Dtype, dims: CallDims): number {
  if (!fusesChunks(encoder, dtype, dims)) return LONGEST_CHUNK;
  if (!multipliesByTiles(encoder, dtype)) return 16;
  return dims.channels > 1 ? 32 : LONGEST_CHUNK;
}

const carriesLow = (dtype: Dtype, precision: Precision): boolean => dtype === "f32" || precision === "f32";

/** Which path a call with `path` takes; K that the chunk path does not do goes to the recurrent one. */
export function takesChunks(encoder: CommandEncoder, path: Path, dtype: Dtype, dims: ChunkDims): boolean {
  if (path !== "auto") return path === "chunk";
  return dims.K % 8 === 0 && (dims.B * dims.T) / dims.N >= crossover(encoder, dtype, dims);
}

/**
 * Bytes of scratch that the stages of the chunk path take from the encoder's arena, and give back. Devices with a kernel
 * for the whole pipeline (the CPU, with up to 2^17 elements of state) take none but the state that
 * `lastTokensOnly` adds; GPUs always take these.
 */
export function scratchBytes(shape: RuleDims & { dtype: FloatDtype }, options: ScratchOptions = {}): number {
  const { chunkLength = 64, qkNorm = "none", precision = "activation", sequences } = options;
  return bytesOf({
    ...shape,
    chunkLength,
    N: sequences ?? shape.B,
    packed: sequences !== undefined,
    channels: options.channelGates ? shape.K : 1,
    carriesLow: carriesLow(shape.dtype, precision),
    normalized: qkNorm !== "none",
    masked: options.mask ?? false,
    carries: options.lastTokensOnly ?? false,
  });
}

const bytesOf = (shape: ScratchShape): number =>
  scratchTensors(shape).reduce((sum, [, dtype, dims]) => sum + arenaBytes(dtype, dims), 0);

/** `arenaBytes` gives multiples of so many. */
const ROW_BYTES = 256;

/** The intermediate tensors, as parts of one block: it is there in whole or not at all. */
function allocateScratch(encoder: CommandEncoder, shape: ScratchShape): ScratchTensors {
  // One dimension counts fewer bytes than many sequences take.
  const rows = (bytes: number) => [bytes / ROW_BYTES, ROW_BYTES];
  const block = encoder.empty("u8", rows(bytesOf(shape)));
  let offset = 0;
  const parts: Record<string, Tensor> = {};
  for (const [name, dtype, dims] of scratchTensors(shape)) {
    const taken = arenaBytes(dtype, dims);
    parts[name] = block.view(offset, rows(taken)).cast(dtype).view(0, dims);
    offset += taken;
  }
  return parts as ScratchTensors;
}

function scratchShape(
  dims: ChunkDims,
  options: ChunkOptions,
  { dtype, masked, carries }: Pick<ScratchShape, "dtype" | "masked" | "carries">,
): ScratchShape {
  const { qkNorm, precision } = options;
  return {
    ...dims,
    dtype,
    chunkLength: dims.BT,
    carriesLow: carriesLow(dtype, precision),
    normalized: qkNorm !== "none",
    masked,
    carries,
  };
}

/** The stages one after the other, up to the last `lastTokens` tokens of each sequence. */
function encodeStages(
  encoder: CommandEncoder,
  op: string,
  tensors: RuleTensors,
  scratch: ScratchTensors,
  dims: ChunkDims,
  options: ChunkOptions,
  lastTokens: number,
): void {
  const { q, k, v, g, beta, mask } = tensors;
  const { qUnit, kUnit, vKept, betaKept } = scratch;
  const { vNew, h } = scratch;
  const queriesLater = qUnit !== undefined && normalizesQueries(encoder, [q, kUnit ?? k, vNew, h, tensors.o], dims);
  if (qUnit && kUnit) {
    const keys = { k: { of: k, unit: kUnit }, mask };
    encodeQkNorm(encoder, op, queriesLater ? keys : { ...keys, q: { of: q, unit: qUnit } }, options);
  }
  if (mask && vKept && betaKept) encodeMaskValues(encoder, op, { v, beta, mask, vKept, betaKept });
  const stages = {
    ...tensors,
    ...scratch,
    q: queriesLater ? q : (qUnit ?? q),
    k: kUnit ?? k,
    v: vKept ?? v,
    beta: betaKept ?? beta,
  };
  encodeChunkCumsum(encoder, op, { ...stages, g }, dims, options.gate, lastTokens);
  const own = makesX(encoder, { ...dims, dtype: q.dtype });
  if (!own) {
    encodeChunkKkt(encoder, op, stages, dims, options.gqa, lastTokens);
    encodeChunkInverse(encoder, op, stages, dims, lastTokens);
  }
  encodeChunkWu(encoder, op, { ...stages, X: own ? undefined : stages.X }, dims, options.gqa, lastTokens);
  encodeChunkState(encoder, op, stages, dims, options, lastTokens);
  encodeChunkOutput(encoder, op, stages, dims, options, lastTokens, queriesLater ? options : undefined);
}

/** The chunk path; with `last`, the tokens that chunks leave go one by one, so that their states are there. */
export function encodeChunks(
  encoder: CommandEncoder,
  op: string,
  tensors: RuleTensors,
  dims: ChunkDims,
  options: ChunkOptions,
  last: boolean,
): void {
  const { dtype } = tensors.q;
  const mark = encoder.arena?.mark();
  const fused = fusesChunks(encoder, dtype, dims);
  const carries = last && !tensors.finalState;
  const shape = scratchShape(dims, options, { dtype, masked: tensors.mask !== undefined, carries });
  const scratch = fused ? undefined : allocateScratch(encoder, shape);
  const carried = carries ? (scratch?.carried ?? encoder.empty("f32", stateShape(dims, options))) : tensors.finalState;
  const chunked = { ...tensors, finalState: carried?.reshape(stateShape(dims, options)) };
  if (scratch) encodeStages(encoder, op, chunked, scratch, dims, options, last ? (options.lastTokens as number) : 0);
  else {
    const low = carriesLow(dtype, options.precision);
    encodeFusedChunks(encoder, op, chunked, dims, { ...options, carriesLow: low }, last);
  }
  if (last) {
    const rest = { ...tensors, initialState: chunked.finalState };
    encodeRecurrent(encoder, op, rest, dims, options, { chunkLength: dims.BT, keepsLast: true });
  }
  if (mark) encoder.arena?.rewind(mark);
}

const stateShape = ({ N, H, V, K }: ChunkDims, { stateLayout }: Pick<RuleOptions, "stateLayout">): number[] =>
  stateLayout === "kv" ? [N, H, K, V] : [N, H, V, K];

/** The options of the whole rule. */
export const RULE_OPTIONS = {
  chunkLength: RULE_CHUNK_LENGTH,
  ...CONVENTIONS,
  path: {
    kind: "choice",
    values: ["auto", "recurrent", "chunk"],
    default: "auto",
    doc: "`recurrent`: token by token; `chunk`; `auto`: by the number of tokens of a sequence",
  },
  snapshotEvery: SNAPSHOT_EVERY,
  lastTokens: LAST_TOKENS,
  precision: {
    kind: "choice",
    values: ["activation", "f32"],
    default: "activation",
    doc: "`f32`: each cumulative gate is the sum of two f32, exact for gates of any strength; always so for f32 tensors",
  },
} as const;

/** Relations of dimensions on the path that `options` forces. */
export function checkPathDims(c: CallContext): void {
  if (c.options.path === "chunk") checkChunkDims(c);
  else checkRuleDims(c);
}

/** Whether the arena has room for outputs that are not passed, for the scratch of the path, and for `more` bytes on the chunk path. */
export function checkArena(
  c: CallContext & {
    readonly encoder: CommandEncoder;
    readonly inputs: { readonly q: Tensor; readonly v: Tensor; readonly mask?: Tensor | undefined };
    readonly outputs: Partial<Record<keyof typeof RULE_OUTPUTS, Tensor | undefined>>;
  },
  options: ChunkOptions & { path: Path },
  more: number,
): void {
  const { encoder, outputs, inputs, fail } = c;
  const { dtype } = inputs.q;
  const dims = ruleDims(c, dtype);
  if (!encoder.arena || !takesChunks(encoder, options.path, dtype, dims)) return;
  const carries = keepsLast(c) && !asked(c, "finalState");
  const shape = scratchShape(dims, options, { dtype, masked: inputs.mask !== undefined, carries });
  const state = carries ? arenaBytes("f32", stateShape(dims, options)) : 0;
  let bytes = more + (fusesChunks(encoder, dtype, dims) ? state : bytesOf(shape));
  for (const [name, spec] of Object.entries(RULE_OUTPUTS)) {
    if (outputs[name as keyof typeof outputs] || (name !== "o" && !asked(c, name))) continue;
    const of = spec.shape;
    bytes +=
      typeof of === "string"
        ? arenaBytes(dtype, inputs.v.shape)
        : arenaBytes("f32", of.of(c as unknown as OpContext, []));
  }
  const { free, used } = encoder.arena;
  if (free < bytes) fail("arena", `have ${bytes} free bytes`, free, `make it at least ${used + bytes} bytes`);
}

/**
 * The gated delta rule over T tokens; for each sequence and value head, with state S [V, K]:
 *
 * ```
 * S ← exp(g) · S            (one gate a head, or each column its own)
 * S ← S + beta · (v − S k) kᵀ
 * o = scale · S q
 * ```
 *
 * - `q`, `k` [B, T, Hk, K], `v`, `o` [B, T, H, V] f32, f16 or bf16, one dtype; H a multiple of Hk; K ≤ 256. `gqa` `block`
 *   (default): value head h uses key head ⌊h / (H/Hk)⌋, `tiled`: h mod Hk.
 * - `g` [B, T, H], or [B, T, H, K] for a gate of each channel, f32, per token, not cumulative. `gate` says what it is: the
 *   decay is exp(g) (`ln`, default), 2^g (`log2`), g (`linear`) or exp(−g) (`neg-ln`). `beta` [B, T, H] f32.
 * - `initialState` [N, H, V, K] f32, absent: zeros. `finalState`, same: written when it is passed (or `true`), may be
 *   exactly `initialState`. `stateLayout` `kv`: all states are [.., K, V]; default `vk`.
 * - `cuSeqlens` i32 [N + 1], with B = 1: where each of N packed sequences begins, and T. Without it N = B.
 * - `mask` u8 [B, T]: a token with 0 is skipped: S stays, o is 0, and nothing of it is used.
 * - `snapshots` [B·⌊T/m⌋, H, V, K], m = `snapshotEvery` tokens, a multiple of `chunkLength` (absent: of 64): the states after m, 2m, … tokens
 *   of each sequence, packed ones one after the other.
 * - `lastStates` [N, n, H, V, K], n = `lastTokens`, 1 to 64: place s has the state s tokens before the end, then the initial
 *   state, then zeros. The log, for `gatedDeltaRollback`: `logState` [N, H, V, K] before the last n tokens, `logKeys` [N, n,
 *   Hk, K], `logDeltas` [N, n, H, V], `logGates` [N, n, H] or [N, n, H, K] of these tokens, the last one last. All f32.
 * - `scale`: required, K^-1/2 in the known models; applied once, to the output.
 * - `qkNorm` divides q and k by √(Σx² + ε) (`sum-eps`), √(Σx² + K·ε) (`mean-eps`) or max(√Σx², ε) (`max-eps`), ε = `qkNormEps`,
 *   1e-6 by default; `none` (default) leaves them.
 * - `path` `recurrent`: token by token. `chunk`: in chunks of `chunkLength` 16, 32 or 64 tokens, by default the fastest
 *   number on the device, by matrix products; K a multiple of 8. `auto` (default): `chunk` from the number of tokens where it is faster. With
 *   `lastStates` or a log the chunk path leaves the last n tokens, and those that fill no chunk, to the recurrent one.
 * - `precision` `f32`: each cumulative gate is carried as the sum of two f32, exact for gates of any strength;
 *   always so with f32 tensors. `activation` (default): as one f32.
 *
 * On the chunk path q and k are rounded to their dtype after normalization, and what one stage hands to the next is in the
 * dtype of q (see the README's table of stages); sums and the state are f32. Cut at a multiple of `chunkLength` (absent: of 64) the bits
 * are those of one call; those of a packed sequence are those of a call of its own. Scratch, at most `scratchBytes`, comes
 * from the encoder's arena, and goes back to it when the call returns. The rule is stable while beta·|k|² ≤ 2; a NaN in a
 * token reaches the rest of its head, and earlier tokens of its chunk.
 * Errors: `InvalidArgument` for dimensions, shapes, dtypes, options, overlap, and an arena that is too small. `cuSeqlens`
 * that does not go from 0 to T without decreasing fails the submission, and nothing is written. On devices that validate
 * a decay above 1, beta < 0 and beta·|k|² > 2.001 fail it too.
 * Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024; Yang et al., "Parallelizing Linear Transformers with the
 * Delta Rule over Sequence Length", 2024; for gates of channels Kimi Team, "Kimi Linear", 2025.
 */
export const gatedDeltaRule = defineOp({
  name: "gatedDeltaRule",
  summary: "S = exp(g)·S + beta·(v - exp(g)·S k)·kᵀ; o = scale · S q",
  inputs: RULE_INPUTS,
  outputs: RULE_OUTPUTS,
  params: RULE_OPTIONS,
  relations(c) {
    checkPathDims(c);
  },
  rules: checkRule,
  check(c) {
    checkArena(c, c.options, 0);
  },
  encode(c) {
    const { encoder, op, options } = c;
    const tensors = ruleTensors(c);
    const dims = ruleDims(c, tensors.q.dtype);
    if (encoder.device.validate) encodeValidation(encoder, op, tensors, dims, options);
    if (takesChunks(encoder, options.path, tensors.q.dtype, dims))
      encodeChunks(encoder, op, tensors, dims, options, keepsLast(c));
    else encodeRecurrent(encoder, op, tensors, dims, options, { chunkLength: 0, keepsLast: keepsLast(c) });
  },
}) as GatedDeltaRule;
