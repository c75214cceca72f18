// Rules by which ops of this package become one. Each op that results has the bits of its chain.
import { defineFusion } from "@mlxts/core";
import { deltaGatesRule } from "./delta_gates_rule.ts";
import { RULE_OPTIONS } from "./gated_delta_rule.ts";
import { RULE_INPUTS, RULE_OUTPUTS } from "./options.ts";

const from = (call: string, names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [name, `${call}.${name}`]));
const without = (all: object, ...names: string[]) => Object.keys(all).filter((name) => !names.includes(name));

/** For `device.encoder({ optimize: { fuse } })`: `deltaGates` and the `gatedDeltaRule` that takes its gates. */
export const deltaFusions = [
  defineFusion({
    calls: { gates: "deltaGates", rule: "gatedDeltaRule" },
    links: { "rule.g": "gates.g", "rule.beta": "gates.beta" },
    into: deltaGatesRule,
    tensors: {
      ...from("gates", ["a", "b", "aLog", "dtBias"]),
      ...from("rule", without({ ...RULE_INPUTS, ...RULE_OUTPUTS }, "g", "beta")),
    },
    shapes: { a: "rule.g", b: "rule.beta" },
    options: { ...from("gates", ["betaScale", "lowerBound"]), ...from("rule", without(RULE_OPTIONS, "gate")) },
    when: { "rule.gate": ["ln"] },
  }),
];
