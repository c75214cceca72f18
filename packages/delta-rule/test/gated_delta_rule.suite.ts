import type { Case, Suite } from "@mlxts/core/testing";
import { gatedDeltaRule } from "../src/index.ts";
import { FIXTURES, type RuleSetting, ruleCase, sequentialReference } from "./rule_cases.ts";

const BASE: RuleSetting = { B: 1, T: 50, Hk: 1, H: 2, K: 32, V: 16, state: true };
const chunk = (setting: Partial<RuleSetting>, options: Record<string, unknown> = {}): Case =>
  ruleCase({ ...BASE, ...setting, options: { path: "chunk", chunkLength: 16, ...options } });

const TOKENS = [1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200, 256, 1000];
const LENGTHS = [16, 32, 64] as const;

const cases: Case[] = [
  ...Object.values<RuleSetting>(FIXTURES).flatMap((fixture) =>
    (["chunk", "recurrent"] as const).map((path) => ruleCase({ ...fixture, options: { path } })),
  ),
  ...LENGTHS.flatMap((chunkLength) => TOKENS.map((T) => chunk({ T }, { chunkLength }))),
  ...[8, 64, 96, 128, 192, 256].map((K) => chunk({ K, T: 70 }, { chunkLength: 64 })),
  ...[8, 24, 40, 72].map((K) => chunk({ K, T: 20 })),
  ...[1, 3, 32, 64, 65, 96, 128, 200, 256].map((V) => chunk({ V, T: V < 8 ? 150 : 36 }, { chunkLength: 32 })),
  ...[
    [1, 1],
    [2, 2],
    [2, 4],
    [2, 8],
    [1, 8],
    [16, 16],
    [16, 32],
    [16, 48],
    [16, 64],
    [24, 24],
    [32, 32],
  ].map(([Hk, H]) => chunk({ Hk: Hk as number, H: H as number, T: 19, K: 16, V: 8 })),
  ...[1, 2, 3].flatMap((B) => [true, false].map((state) => chunk({ B, state, T: 37 }))),
  ...(["none", "weak", "strong", "rare", "all -50", "half -50", "one -1000"] as const).flatMap((gate) =>
    LENGTHS.map((chunkLength) => chunk({ gate, T: 200, K: 64 }, { chunkLength })),
  ),
  ...(["half -50", "one -1000"] as const).map((gate) =>
    chunk({ gate, T: 200, K: 64 }, { chunkLength: 64, precision: "f32" }),
  ),
  ...(["half", "all"] as const).flatMap((repeated) =>
    [0.99, 1.9].flatMap((beta) => [
      chunk({ repeated, beta, T: 130, gate: "weak" }, { chunkLength: 64 }),
      chunk({ repeated, beta, T: 70 }),
    ]),
  ),
  // More state than the fused kernel takes: the stages one after the other.
  ...(["sum-eps", "none"] as const).map((qkNorm) => chunk({ qkNorm, T: 35, K: 256, V: 513, Hk: 1, H: 1 })),
  chunk({ T: 35, K: 128, V: 1030, Hk: 1, H: 1, B: 2, state: false }, { chunkLength: 32, precision: "f32" }),
  ...(["half -50", "one -1000"] as const).map((gate) =>
    chunk({ gate, T: 100, K: 128, V: 1030, Hk: 1, H: 1 }, { chunkLength: 64, precision: "f32" }),
  ),
  chunk({ qkNorm: "none" }, { chunkLength: 64 }),
  ...[0.003, 0.01].map((keyNorm) => chunk({ keyNorm })),
  ...[0.003, 0.01].map((keyNorm) => chunk({ keyNorm }, { path: "recurrent" })),
  chunk({ keyNorm: 0.01 }, { qkNormEps: 1e-3 }),
  ...[1, 7, 8, 9, 65].map((T) => chunk({ T, V: 64 }, { path: "auto", chunkLength: 64 })),
  chunk({ T: 70, K: 20 }, { path: "auto" }),
  { ...chunk({ T: 50 }), inPlace: { finalState: "initialState" } },
  { ...chunk({ T: 50 }, { path: "recurrent" }), inPlace: { finalState: "initialState" } },
  { ...chunk({ T: 51 }), ask: {} },
];

export const suite: Suite = {
  op: gatedDeltaRule,
  errorClass: "P",
  reference: sequentialReference,
  cases,
};
