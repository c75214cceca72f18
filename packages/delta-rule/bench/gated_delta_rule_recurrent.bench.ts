import type { FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench } from "@mlxts/core/testing";
import { gatedDeltaRuleRecurrent } from "../src/index.ts";
import { K, ruleBench, ruleTensors } from "./rule.ts";

function benchCase(T: number, dtype: FloatDtype): BenchCase {
  const setting = { T, Hk: 16, H: 32, dtype };
  return {
    ...ruleBench({ ...setting, path: "recurrent" }),
    name: `T${T} Hk16 H32 K128 V128 ${dtype}`,
    setup(device) {
      const tensors = ruleTensors(device, setting);
      return {
        encode(encoder) {
          gatedDeltaRuleRecurrent(encoder, tensors, { scale: K ** -0.5, qkNorm: "sum-eps" });
        },
      };
    },
  };
}

export default defineBench({
  op: "gatedDeltaRuleRecurrent",
  cases: (["f32", "bf16"] as const).flatMap((dtype) => [benchCase(1, dtype), benchCase(64, dtype)]),
});
