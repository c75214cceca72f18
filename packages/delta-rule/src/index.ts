export { causalConv1d } from "./causal_conv1d.ts";
export { deltaGates } from "./delta_gates.ts";
export { gatedDeltaRuleRecurrent } from "./gated_delta_rule_recurrent.ts";
