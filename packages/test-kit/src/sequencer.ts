import { BaseSequencer, type TestSpecification } from "vitest/node";

/** The files that take longest, on one device or another: begun last, one of them would keep all others waiting. */
const LONG = [
  "cli/test/verify",
  "generate/new_op",
  "delta-rule/test/gated_delta_rule.suite",
  "check/kernel_cases",
  "pack/packed",
  "models/test/expert_parity",
  "quant4/test/gather_quantized_matmul.suite",
  "core/test/metal_tile",
  "quant4/test/quantized_matmul.suite",
  "mla/test/mla_out.suite",
  "mla/test/mla_prefill.suite",
  "models/test/parity",
  "metal-sim/test/mutants",
  "models/test/state_fuzz",
  "core/test/growth",
  "delta-rule/test/mutants",
  "nn/test/shared_indices",
  "quant4/test/int8_activations",
  "mla/test/prefill",
  "norms/test/chains",
  "cli/test/every_op",
  "cli/test/verify_cases",
].map((name) => `/${name}.`);

/** Files that share a process come first: vitest keeps it while the next file may share it, too. Of either kind, long ones. */
export default class LongFirst extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const place = ({ moduleId, project }: TestSpecification) => {
      const index = LONG.findIndex((name) => moduleId.includes(name));
      return (project.config.isolate ? LONG.length + 1 : 0) + (index < 0 ? LONG.length : index);
    };
    return (await super.sort(files)).sort((a, b) => place(a) - place(b));
  }
}
