import type { Suite } from "@mlxts/core/testing";
import { suite as causalConv1d } from "./causal_conv1d.suite.ts";
import { suite as deltaGates } from "./delta_gates.suite.ts";
import { suite as gatedDeltaRule } from "./gated_delta_rule.suite.ts";
import { suite as gatedDeltaRuleRecurrent } from "./gated_delta_rule_recurrent.suite.ts";
import { suites as stages } from "./stages.suite.ts";

/** The conformance suites of this package's ops. */
export const suites: readonly Suite[] = [deltaGates, causalConv1d, gatedDeltaRuleRecurrent, ...stages, gatedDeltaRule];
