import type { CommandEncoder } from "@mlxts/core";
import type { Suite } from "@mlxts/core/testing";
import { gatedDeltaRuleRecurrent } from "../src/index.ts";
import { callDims } from "../src/options.ts";
import { encodeValidation } from "../src/validate_rule.ts";
import { type RuleSetting, ruleCase, sequentialReference } from "./rule_cases.ts";

type Inputs = Parameters<typeof gatedDeltaRuleRecurrent>[1];
type Options = Parameters<typeof gatedDeltaRuleRecurrent>[2];

/** The recurrent op as it is on a device that validates, on any device. */
function validated(encoder: CommandEncoder, inputs: Inputs, options: Options) {
  const { q, v, k, g, beta, mask } = inputs;
  const [B, T, Hk, K] = q.shape as [number, number, number, number];
  const [, , H, V] = v.shape as [number, number, number, number];
  const dims = callDims({ dims: { B, T, Hk, H, K, V }, tensors: { g } });
  const { gate = "ln", gqa = "block", stateLayout = "vk", qkNorm = "none", qkNormEps = 1e-6, scale } = options;
  const conventions = { gate, gqa, stateLayout, qkNorm, qkNormEps, scale };
  encodeValidation(encoder, gatedDeltaRuleRecurrent.op.name, { k, g, beta, mask }, dims, conventions);
  return gatedDeltaRuleRecurrent(encoder, inputs, options);
}

const SMALL: RuleSetting = { B: 2, T: 9, Hk: 2, H: 4, K: 24, V: 10, state: true };

/** What is right passes, and nothing else changes. */
export const suite: Suite = {
  op: Object.assign(validated, { op: gatedDeltaRuleRecurrent.op }),
  errorClass: "S",
  reference: sequentialReference,
  cases: [
    ruleCase(SMALL),
    ruleCase({ ...SMALL, masked: true }),
    ruleCase({ ...SMALL, channels: true, gate: "half -50" }),
    ruleCase({ ...SMALL, options: { gate: "linear", gqa: "tiled", qkNorm: "max-eps" } }),
  ].map((c) => ({ ...c, name: `validated ${c.name}` })),
};
