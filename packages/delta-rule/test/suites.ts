import type { DeclaredKernel, Suite } from "@mlxts/core/testing";
import { causalConv1dKernel } from "../src/causal_conv1d.ts";
import { chunkCumsumKernel } from "../src/chunk_cumsum.ts";
import { chunkInverseKernel } from "../src/chunk_inverse.ts";
import { chunkKktKernel } from "../src/chunk_kkt.ts";
import { chunkOutputKernel } from "../src/chunk_output.ts";
import { chunkStateKernel } from "../src/chunk_state.ts";
import { chunkWuKernel } from "../src/chunk_wu.ts";
import { convRollbackKernel } from "../src/conv_rollback.ts";
import { deltaGatesKernel } from "../src/delta_gates.ts";
import { gatedDeltaRollbackKernel } from "../src/gated_delta_rollback.ts";
import { gatedDeltaRuleChunkKernel } from "../src/gated_delta_rule_chunk.ts";
import { gatedDeltaRuleRecurrentKernel } from "../src/gated_delta_rule_recurrent.ts";
import { maskValuesKernel } from "../src/mask_values.ts";
import { qkNormKernel } from "../src/qk_norm.ts";
import { validateRuleKernel } from "../src/validate_rule.ts";
import { suite as causalConv1d } from "./causal_conv1d.suite.ts";
import { suite as convRollback } from "./conv_rollback.suite.ts";
import { suite as deltaGates } from "./delta_gates.suite.ts";
import { suite as gatedDeltaRollback } from "./gated_delta_rollback.suite.ts";
import { suite as gatedDeltaRule } from "./gated_delta_rule.suite.ts";
import { suite as gatedDeltaRuleRecurrent } from "./gated_delta_rule_recurrent.suite.ts";
import { suites as stages } from "./stages.suite.ts";
import { suite as validateRule } from "./validate_rule.suite.ts";

/** The conformance suites of this package's ops. */
export const suites: readonly Suite[] = [
  deltaGates,
  causalConv1d,
  convRollback,
  gatedDeltaRuleRecurrent,
  gatedDeltaRollback,
  ...stages,
  gatedDeltaRule,
  validateRule,
];

/** Every kernel that this package declares. */
export const kernels: readonly DeclaredKernel[] = [
  causalConv1dKernel,
  chunkCumsumKernel,
  chunkInverseKernel,
  chunkKktKernel,
  chunkOutputKernel,
  chunkStateKernel,
  chunkWuKernel,
  convRollbackKernel,
  deltaGatesKernel,
  gatedDeltaRollbackKernel,
  gatedDeltaRuleChunkKernel,
  gatedDeltaRuleRecurrentKernel,
  maskValuesKernel,
  qkNormKernel,
  validateRuleKernel,
];
