import { type CommandEncoder, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import { channelVariants, gateVariant } from "./chunk.ts";
import { SIMD, wholeVectors } from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import {
  type CallDims,
  CONVENTIONS,
  callDims,
  checkRule,
  checkRuleDims,
  keepsLast,
  LAST_TOKENS,
  PACKED_FAULTS,
  RULE_BUFFERS,
  RULE_IN_PLACE,
  RULE_INPUTS,
  RULE_OUTPUTS,
  RULE_PARAMS,
  type RuleOptions,
  ruleParams,
  SNAPSHOT_EVERY,
} from "./options.ts";
import type { GatedDeltaRuleRecurrent } from "./signatures.ts";
import { encodeValidation } from "./validate_rule.ts";

interface Sizes extends CallDims {
  /** The final state is where the state is kept meanwhile: it is wanted, and in the layout that rows have. */
  worksInPlace: boolean;
}

export const gatedDeltaRuleRecurrentKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "gated_delta_rule_recurrent",
  // Those of `gates` compute g and beta as `deltaGates` does: what lies at `g` and `beta` are its inputs a and b.
  variants: [...channelVariants(FLOATS), ...FLOATS.map((dtype) => `${dtype}_gates`)],
  buffers: {
    ...RULE_BUFFERS,
    lastStates: "write?",
    logState: "write?",
    logKeys: "write?",
    logDeltas: "write?",
    logGates: "write?",
    aLog: "read?",
    dtBias: "read?",
  },
  early: ["initialState", "aLog", "dtBias"],
  // A chunkLength > 0: from where chunks that leave `lastTokens` end.
  params: { ...RULE_PARAMS, betaScale: "f32", lowerBound: "f32" },
  faults: PACKED_FAULTS,
  // A CPU's threadgroup has so few rows that one head spreads over threads, so many that they share k and q. A GPU's
  // simdgroup keeps its rows of the state in registers.
  constants: { cpu: { rowsPerThreadgroup: 32 }, gpu: { rowsPerSimdgroup: 4, simdgroups: 4 } },
  inPlace: RULE_IN_PLACE,
  scratch: {
    cpu: { key: "f32", query: "f32", decays: "f32", values: "f32", outputs: "f32", deltas: "f32", state: "f32" },
  },
  launch: {
    cpu: ({ N, H, K, V, channels, worksInPlace }: Sizes, { constants: { rowsPerThreadgroup } }) => ({
      threadgroups: [Math.ceil(V / rowsPerThreadgroup), H, N],
      scratch: {
        key: [wholeVectors(K)],
        query: [wholeVectors(K)],
        decays: [channels === 1 ? 0 : wholeVectors(K)],
        values: [rowsPerThreadgroup],
        outputs: [rowsPerThreadgroup],
        deltas: [rowsPerThreadgroup],
        state: [worksInPlace ? 0 : rowsPerThreadgroup, K],
      },
    }),
    gpu: ({ N, H, V }: Sizes, { constants: { rowsPerSimdgroup, simdgroups } }) => ({
      threadgroups: [Math.ceil(V / (simdgroups * rowsPerSimdgroup)), H, N],
      threadsPerThreadgroup: [SIMD, simdgroups, 1],
    }),
  },
});

/** The tensors of a call of the rule, whichever path it takes. */
export type RuleTensors = Record<"q" | "k" | "v" | "g" | "beta" | "o", Tensor> &
  Record<"initialState" | "cuSeqlens" | "mask", Tensor | undefined> &
  Record<
    "finalState" | "snapshots" | "lastStates" | "logState" | "logKeys" | "logDeltas" | "logGates",
    Tensor | undefined
  >;

/** Inputs that are absent are there, as undefined. */
export const ruleTensors = ({
  inputs,
  outputs,
}: {
  inputs: Omit<RuleTensors, keyof typeof RULE_OUTPUTS | "initialState" | "cuSeqlens" | "mask"> &
    Partial<Pick<RuleTensors, "initialState" | "cuSeqlens" | "mask">>;
  outputs: Pick<RuleTensors, keyof typeof RULE_OUTPUTS>;
}): RuleTensors => ({ initialState: undefined, cuSeqlens: undefined, mask: undefined, ...inputs, ...outputs });

/** How g and beta are computed from what lies in their place. */
export interface GateParameters {
  aLog: Tensor;
  dtBias: Tensor;
  betaScale: number;
  lowerBound?: number | undefined;
}

export function encodeRecurrent(
  encoder: CommandEncoder,
  op: string,
  tensors: RuleTensors,
  dims: CallDims,
  options: RuleOptions,
  { chunkLength, keepsLast, gates }: { chunkLength: number; keepsLast: boolean; gates?: GateParameters },
): void {
  const { dtype } = tensors.q;
  encoder.dispatch(gatedDeltaRuleRecurrentKernel, {
    op,
    variant: gates ? `${dtype}_gates` : gateVariant(dtype, dims),
    buffers: { ...tensors, aLog: gates?.aLog, dtBias: gates?.dtBias },
    params: {
      ...ruleParams(dims, options, chunkLength, keepsLast),
      betaScale: gates?.betaScale ?? 0,
      lowerBound: gates?.lowerBound ?? 0,
    },
    sizes: { ...dims, worksInPlace: tensors.finalState !== undefined && options.stateLayout === "vk" },
  });
}

/**
 * The gated delta rule token by token; for each sequence and value head, with state S [V, K]:
 *
 * ```
 * S ← decay · S
 * S ← S + beta · (v − S k) kᵀ
 * o = scale · S q
 * ```
 *
 * - `q`, `k` [B, T, Hk, K], `v`, `o` [B, T, H, V] f32, f16 or bf16, one dtype; H a multiple of Hk, K ≤ 256. `gqa` says
 *   which key head value head h uses: `block` (default) ⌊h / (H/Hk)⌋, `tiled` h mod Hk.
 * - `g` [B, T, H], or [B, T, H, K] with a gate for each column of the state, f32. `gate` says what it is: the decay is
 *   exp(g) with `ln` (default), 2^g with `log2`, g with `linear`, exp(−g) with `neg-ln`. `beta` [B, T, H] f32.
 * - `initialState` [N, H, V, K] f32, absent: zeros. `finalState`, same: written when it is passed (or `true`), may be
 *   exactly `initialState`. With `stateLayout` `kv` all states are [.., K, V].
 * - `cuSeqlens` i32 [N + 1]: N sequences in one row (B = 1), sequence s the tokens from cuSeqlens[s] to cuSeqlens[s + 1];
 *   absent: N = B. It is read on the device; one that does not begin with 0, decreases or does not end with T fails the
 *   submission, and nothing is written. Sequences may be empty.
 * - `mask` u8 [B, T], not with `cuSeqlens`: at 0 the token is skipped. The state stays, o is 0, nothing else of it is used.
 * - `scale`: required, K^-1/2 in the known models; applied once, to the output.
 * - `qkNorm` `none` (default), or what q and k are divided by, in f32: `sum-eps` √(Σx² + eps), `mean-eps` √(Σx² + K·eps),
 *   `max-eps` max(√Σx², eps), with eps `qkNormEps`.
 * - `snapshots` [⌊T / snapshotEvery⌋ · B, H, V, K] f32: the states after `snapshotEvery`, 2·`snapshotEvery`, … tokens of
 *   each sequence, one sequence after the other; packed ones may leave the last places unwritten.
 * - `lastStates` [N, n, H, V, K] f32, n = `lastTokens` 1 … 64: in slot i the state i tokens before the end; zeros where
 *   that is before the beginning.
 * - `logState` [N, H, V, K], `logKeys` [N, n, Hk, K], `logDeltas` [N, n, H, V], `logGates` [N, n, H] or [N, n, H, K], f32,
 *   all or none: what `gatedDeltaRollback` takes the last n tokens back with.
 *
 * Everything in f32, one rounding at the store of o. The bits are those of one call wherever a sequence is cut, with the
 * state carried, and of calls of their own for packed sequences. The rule is stable while beta·|k|² ≤ 2; a NaN reaches
 * later tokens of its head and nothing else. Errors: `InvalidArgument` for dimensions, shapes, dtypes, options, overlap.
 * Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024.
 */
export const gatedDeltaRuleRecurrent = defineOp({
  name: "gatedDeltaRuleRecurrent",
  summary: "S = exp(g)·S + beta·(v - exp(g)·S k)·kᵀ; o = scale · S q, token by token",
  inputs: RULE_INPUTS,
  outputs: RULE_OUTPUTS,
  params: { ...CONVENTIONS, snapshotEvery: SNAPSHOT_EVERY, lastTokens: LAST_TOKENS },
  relations: checkRuleDims,
  rules: checkRule,
  encode(c) {
    const dims = callDims(c);
    if (c.device.validate) encodeValidation(c.encoder, c.op, c.inputs, dims, c.options);
    const parts = { chunkLength: 0, keepsLast: keepsLast(c) };
    encodeRecurrent(c.encoder, c.op, ruleTensors(c), dims, c.options, parts);
  },
}) as GatedDeltaRuleRecurrent;
