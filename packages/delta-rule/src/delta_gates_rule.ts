import { arenaBytes, defineOp, type Tensor } from "@mlxts/core";
import { BETA_SCALE, encodeGates, LOWER_BOUND } from "./delta_gates.ts";
import {
  type ChunkOptions,
  checkArena,
  checkPathDims,
  encodeChunks,
  RULE_OPTIONS,
  ruleDims,
  takesChunks,
} from "./gated_delta_rule.ts";
import { encodeRecurrent, ruleTensors } from "./gated_delta_rule_recurrent.ts";
import { checkRule, keepsLast, RULE_INPUTS, RULE_OUTPUTS } from "./options.ts";
import type { DeltaGatesRule } from "./signatures.ts";
import { encodeValidation } from "./validate_rule.ts";

const { gate: _, ...OPTIONS } = RULE_OPTIONS;

/** `deltaGates` gives natural logarithms. */
const inLn = <O extends Omit<ChunkOptions, "gate">>(options: O) => ({ ...options, gate: "ln" as const });

/**
 * `gatedDeltaRule` with the gates of `deltaGates`, one for each head: `g = −exp(aLog) · softplus(a + dtBias)`, and with
 * `lowerBound` lb < 0 `g = lb · sigmoid(exp(aLog) · (a + dtBias))`; `beta = sigmoid(b) · betaScale`. The bits are those of the two ops
 * one after the other.
 *
 * - `a`, `b` [B, T, H] of the dtype of q; `aLog`, `dtBias` [H] f32. `betaScale`, `lowerBound` as in `deltaGates`.
 * - All other tensors, options and errors as in `gatedDeltaRule`, with `gate` `ln`: `logGates` has g.
 *
 * Token by token the rule computes the gates of a token itself, in f32: one dispatch, and g and beta are nowhere in memory. On the
 * chunk path they are scratch, in addition to `scratchBytes`, and so they are on devices that validate.
 */
export const deltaGatesRule = defineOp({
  name: "deltaGatesRule",
  summary: "gatedDeltaRule with g = -exp(aLog) · softplus(a + dtBias), beta = sigmoid(b) · betaScale",
  inputs: {
    q: RULE_INPUTS.q,
    k: RULE_INPUTS.k,
    v: RULE_INPUTS.v,
    a: { dtype: ["=q"], shape: "B T H", doc: "projection for the gates" },
    b: { dtype: ["=q"], shape: "B T H", doc: "projection for beta" },
    aLog: { dtype: ["f32"], shape: "H", doc: "logarithm of the decay rate of each head" },
    dtBias: { dtype: ["f32"], shape: "H", doc: "added to `a`" },
    initialState: RULE_INPUTS.initialState,
    cuSeqlens: RULE_INPUTS.cuSeqlens,
    mask: RULE_INPUTS.mask,
  },
  outputs: RULE_OUTPUTS,
  params: { ...OPTIONS, betaScale: BETA_SCALE, lowerBound: LOWER_BOUND },
  relations: checkPathDims,
  rules: checkRule,
  check(c) {
    checkArena(c, inLn(c.options), 2 * arenaBytes("f32", c.inputs.a.shape));
  },
  encode(c) {
    const { encoder, op, inputs, outputs } = c;
    const { a, b, aLog, dtBias, ...rest } = inputs;
    const options = inLn(c.options);
    const dims = ruleDims(c, inputs.q.dtype);
    const last = keepsLast(c);
    const chunks = takesChunks(encoder, options.path, inputs.q.dtype, dims);
    const given = (g: Tensor, beta: Tensor) => ruleTensors({ inputs: { ...rest, g, beta }, outputs });
    const mark = encoder.arena?.mark();
    if (chunks || encoder.device.validate) {
      const gates = { g: encoder.empty("f32", a.shape), beta: encoder.empty("f32", b.shape) };
      encodeGates(encoder, op, { a, b, aLog, dtBias, ...gates }, options);
      const tensors = given(gates.g, gates.beta);
      if (encoder.device.validate) encodeValidation(encoder, op, tensors, dims, options);
      if (chunks) encodeChunks(encoder, op, tensors, dims, options, last);
    }
    if (mark) encoder.arena?.rewind(mark);
    if (!chunks) {
      const { betaScale, lowerBound } = options;
      const gates = { aLog, dtBias, betaScale, lowerBound };
      encodeRecurrent(encoder, op, given(a, b), dims, options, { chunkLength: 0, keepsLast: last, gates });
    }
  },
}) as DeltaGatesRule;
