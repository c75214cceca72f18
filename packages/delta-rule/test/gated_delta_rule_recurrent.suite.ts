import type { Case, Suite } from "@mlxts/core/testing";
import { gatedDeltaRuleRecurrent } from "../src/index.ts";
import { FIXTURES, type RuleSetting, ruleCase, sequentialReference } from "./rule_cases.ts";

export const BASE: RuleSetting = { B: 1, T: 5, Hk: 2, H: 4, K: 64, V: 32, state: true };

const cases: Case[] = [
  ...Object.values<RuleSetting>(FIXTURES).map((fixture) => ruleCase(fixture)),
  ...[1, 2, 15, 16, 17, 31, 33, 64, 65].map((T) => ruleCase({ ...BASE, T })),
  ...[1, 3, 8, 12, 20, 65, 96, 97, 100, 128, 129, 192, 193, 250, 256].map((K) => ruleCase({ ...BASE, K })),
  ...[1, 2, 3, 5, 15, 16, 17, 31, 33, 64, 100, 128, 200].map((V) => ruleCase({ ...BASE, V, T: V < 8 ? 60 : 3 })),
  ...[
    [1, 1],
    [2, 2],
    [2, 8],
    [1, 8],
    [16, 16],
    [16, 48],
    [24, 24],
  ].map(([Hk, H]) => ruleCase({ ...BASE, T: 2, Hk: Hk as number, H: H as number })),
  ruleCase({ ...BASE, B: 3 }),
  ruleCase({ ...BASE, B: 3, state: false }),
  ...(["none", "weak", "strong", "rare", "all -50", "half -50", "one -1000"] as const).map((gate) =>
    ruleCase({ ...BASE, T: 70, gate }),
  ),
  ...(["half", "all"] as const).flatMap((repeated) =>
    [0.99, 1.9].map((beta) => ruleCase({ ...BASE, T: 70, repeated, beta })),
  ),
  ruleCase({ ...BASE, qkNorm: "none" }),
  ...[0.003, 0.01].map((keyNorm) => ruleCase({ ...BASE, keyNorm, T: 20 })),
  ruleCase({ ...BASE, keyNorm: 0.01, T: 20, options: { qkNormEps: 1e-3 } }),
];

export const suite: Suite = {
  op: gatedDeltaRuleRecurrent,
  errorClass: "P",
  reference: sequentialReference,
  cases: [
    ...cases,
    { ...ruleCase({ ...BASE, T: 1 }, 5), inPlace: { finalState: "initialState" } },
    { ...ruleCase({ ...BASE, T: 9, V: 33 }, 6), inPlace: { finalState: "initialState" } },
    { ...ruleCase({ ...BASE, T: 9, V: 33 }, 7), ask: {} },
    { ...ruleCase({ ...BASE, T: 9, state: false }, 8), ask: {} },
  ],
};
