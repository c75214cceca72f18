import { type CommandEncoder, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";
import {
  checkRuleDims,
  QK_NORM,
  QK_NORM_EPS,
  RULE_BUFFERS,
  RULE_IN_PLACE,
  RULE_INPUTS,
  RULE_OUTPUTS,
  type RuleDims,
  type RuleOptions,
  ruleParams,
  SCALE,
} from "./options.ts";

/** On a GPU: the rows of the state that a simdgroup keeps in registers, and simdgroups of a threadgroup. */
const ROWS_PER_SIMDGROUP = 4;
const SIMDGROUPS = 4;

/** Value rows of one threadgroup: small enough that one head spreads over threads, large enough to share k and q. */
const rowBlock = (gpu: boolean) => (gpu ? SIMDGROUPS * ROWS_PER_SIMDGROUP : 32);

interface Sizes extends RuleDims {
  keepsState: boolean;
}

export const gatedDeltaRuleRecurrentKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "gated_delta_rule_recurrent",
  variants: FLOATS,
  buffers: RULE_BUFFERS,
  params: {
    tokens: "u32",
    keyHeads: "u32",
    heads: "u32",
    keyDim: "u32",
    valueDim: "u32",
    rowsPerThreadgroup: "u32",
    qkNorm: "u32",
    eps: "f32",
    scale: "f32",
  },
  constants: { rowsPerSimdgroup: ROWS_PER_SIMDGROUP },
  inPlace: RULE_IN_PLACE,
  launch: ({ B, H, K, V, keepsState }: Sizes, { gpu }) => {
    const rows = rowBlock(gpu);
    return {
      threadgroups: [Math.ceil(V / rows), H, B],
      threadsPerThreadgroup: gpu ? [32, SIMDGROUPS, 1] : [128, 1, 1],
      threadgroupBytes: gpu ? 0 : 4 * (2 * Math.ceil(K / 16) * 16 + 2 * rows + (keepsState ? 0 : rows * K)),
    };
  },
});

export interface RuleTensors {
  q: Tensor;
  k: Tensor;
  v: Tensor;
  g: Tensor;
  beta: Tensor;
  initialState: Tensor | undefined;
  o: Tensor;
  finalState: Tensor | undefined;
}

export function encodeRecurrent(
  encoder: CommandEncoder,
  op: string,
  tensors: RuleTensors,
  dims: RuleDims,
  options: RuleOptions,
): void {
  encoder.dispatch(gatedDeltaRuleRecurrentKernel, {
    op,
    variant: tensors.q.dtype,
    buffers: { ...tensors },
    params: { ...ruleParams(dims, options), rowsPerThreadgroup: rowBlock(encoder.device.gpu) },
    sizes: { ...dims, keepsState: tensors.finalState !== undefined },
  });
}

/**
 * The gated delta rule token by token; for each sequence and value head, with state S [V, K]:
 *
 * ```
 * S ← exp(g) · S
 * S ← S + beta · (v − S k) kᵀ
 * o = scale · S q
 * ```
 *
 * - `q`, `k` [B, T, Hk, K], `v`, `o` [B, T, H, V] f32, f16 or bf16, one dtype; H a multiple of Hk, value head h uses key
 *   head ⌊h / (H/Hk)⌋. K ≤ 256.
 * - `g` [B, T, H] f32, natural log of the decay per token; `beta` [B, T, H] f32.
 * - `initialState` [B, H, V, K] f32, absent: zeros. `finalState`, same: written when it is passed (or `true`), may be
 *   exactly `initialState`.
 * - `scale`: required, K^-1/2 in the known models; applied once, to the output.
 * - `qkNorm` `none` (default) or `sum-eps`: q and k are divided by √(Σx² + `qkNormEps`), in f32.
 *
 * Everything in f32, one rounding at the store of o. Cut anywhere, with the state carried, the bits are those of one
 * call. The rule is stable while beta·|k|² ≤ 2. Errors: `InvalidArgument` for dimensions, shapes, dtypes, options, overlap.
 * Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024.
 */
export const gatedDeltaRuleRecurrent = defineOp({
  name: "gatedDeltaRuleRecurrent",
  summary: "S = exp(g)·S + beta·(v - exp(g)·S k)·kᵀ; o = scale · S q, token by token",
  inputs: RULE_INPUTS,
  outputs: RULE_OUTPUTS,
  params: { scale: SCALE, qkNorm: QK_NORM, qkNormEps: QK_NORM_EPS },
  relations: checkRuleDims,
  encode({ encoder, op, inputs, outputs, options, dims }) {
    encodeRecurrent(
      encoder,
      op,
      { ...inputs, initialState: inputs.initialState, ...outputs },
      dims as unknown as RuleDims,
      options,
    );
  },
});
