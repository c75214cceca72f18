import { FLOATS } from "@mlxts/core";
import type { Case, Suite } from "@mlxts/core/testing";
import { gatedDeltaRuleRecurrent } from "../src/index.ts";
import { FIXTURES, type Kept, type RuleSetting, ruleCase, ruleClasses, sequentialReference } from "./rule_cases.ts";

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

const FEW: RuleSetting = { B: 1, T: 9, Hk: 1, H: 2, K: 40, V: 18, state: true };
const make = (setting: Partial<RuleSetting>, options: Record<string, unknown> = {}): Case =>
  ruleCase({ ...FEW, ...setting, options });
const packed = (cu: readonly number[]) => ({ packed: cu, T: cu.at(-1) as number });
const keep = (...kept: Kept[]): Pick<RuleSetting, "keep"> => ({ keep: kept });
const inPlace = (c: Case): Case => ({ ...c, inPlace: { finalState: "initialState" } });
const without = (c: Case): Case => {
  const { finalState: _, ...ask } = c.ask ?? {};
  return { ...c, ask };
};

const SPACES = ["ln", "log2", "linear", "neg-ln"] as const;

const CONVENTIONS: Case[] = [
  ...SPACES.flatMap((gate) =>
    ([false, true] as const).flatMap((channels) => [
      make({ channels, gate: "half -50" }, { gate }),
      make({ channels, masked: true, B: 2, ...keep("log"), T: 12 }, { gate, lastTokens: 9 }),
    ]),
  ),
  ...[
    [2, 2],
    [2, 4],
    [3, 9],
    [1, 5],
  ].map(([Hk, H]) => make({ Hk: Hk as number, H: H as number }, { gqa: "tiled" })),
  ...(["mean-eps", "max-eps"] as const).flatMap((qkNorm) => [
    make({ qkNorm }),
    ...[0.003, 0.01].flatMap((keyNorm) => [
      make({ qkNorm, keyNorm, T: 20 }),
      make({ qkNorm, keyNorm, T: 20 }, { qkNormEps: 5e-3 }),
    ]),
  ]),
  // Of the vectors some are longer than eps and some are not, q and k of one token too.
  make({ qkNorm: "max-eps", T: 20 }, { qkNormEps: 6.3 }),
  ...[
    [3, 5],
    [8, 33],
    [20, 17],
    [65, 37],
    [100, 3],
    [129, 47],
    [192, 1],
    [250, 35],
  ].flatMap(([K, V], i) => [
    make({ K: K as number, V: V as number, state: i % 2 === 0 }, { stateLayout: "kv" }),
    inPlace(make({ K: K as number, V: V as number, channels: true, T: 4 }, { stateLayout: "kv" })),
  ]),
];

const CHANNELS: Case[] = [
  ...[1, 3, 8, 20, 31, 33, 64, 65, 96, 100, 128, 129, 192, 250, 256].map((K) =>
    make({ K, channels: true, T: K < 8 ? 60 : 6 }),
  ),
  ...(["none", "weak", "strong", "rare", "all -50", "one -1000"] as const).map((gate) =>
    make({ gate, channels: true, T: 40 }),
  ),
  ...[1, 3, 4, 15, 33].map((V) => make({ V, channels: true, T: V < 8 ? 60 : 4 })),
  make({ channels: true, B: 3, Hk: 2, H: 4, state: false }),
];

const SEQUENCES: Case[] = [
  ...[
    [0, 15],
    [0, 15, 15, 100, 300],
    [0, 64, 128],
    [0, 0, 20],
    [0, 20, 20],
    [0, 1, 2, 33],
  ].flatMap((cu) => [
    make(packed(cu)),
    make({ ...packed(cu), state: false, channels: true, K: 8, V: 9 }, { stateLayout: "kv" }),
  ]),
  inPlace(make(packed([0, 0, 5, 6, 6]))),
  inPlace(make({ ...packed([0, 0, 5, 6, 6]), V: 35 }, { stateLayout: "kv" })),
  without(make(packed([0, 2, 2, 7]))),
  // More boundaries than a simdgroup has lanes.
  make({ ...packed(Array.from({ length: 71 }, (_, i) => Math.floor((i * i) / 100))), H: 1, K: 8, V: 5 }),
  ...[1, 2, 3].flatMap((B) => [
    make({ B, masked: true, T: 13 }),
    make({ B, masked: true, T: 13, channels: true, state: false, V: 33 }, { stateLayout: "kv" }),
  ]),
  make({ B: 2, masked: true, T: 1, V: 300 }),
];

const STATES: Case[] = [
  ...[1, 3, 7, 20].map((snapshotEvery) => make({ ...keep("snapshots"), T: 20 }, { snapshotEvery })),
  make({ ...keep("snapshots"), ...packed([0, 2, 2, 9, 20]), V: 33 }, { snapshotEvery: 3 }),
  without(make({ ...keep("snapshots"), B: 2, T: 11, masked: true, V: 19 }, { snapshotEvery: 4, stateLayout: "kv" })),
  ...[1, 8, 9, 10, 64].flatMap((lastTokens) => [
    make({ ...keep("lastStates", "log") }, { lastTokens }),
    make({ ...keep("lastStates", "log"), channels: true, B: 2, Hk: 2, V: 17 }, { lastTokens, stateLayout: "kv" }),
  ]),
  make({ ...keep("lastStates") }, { lastTokens: 12 }),
  make({ ...keep("log"), Hk: 2, H: 6, V: 35 }, { lastTokens: 4, gqa: "tiled" }),
  make({ ...keep("log"), Hk: 2, H: 6, V: 35, state: false }, { lastTokens: 4 }),
  without(make({ ...keep("lastStates", "log"), masked: true, B: 2, channels: true }, { lastTokens: 11 })),
  ...[
    [0, 4, 4, 20],
    [0, 0, 5, 7],
    [0, 6, 6],
  ].flatMap((cu) => [
    make({ ...keep("lastStates", "log", "snapshots"), ...packed(cu) }, { lastTokens: 5, snapshotEvery: 2 }),
    make(
      { ...keep("lastStates", "log", "snapshots"), ...packed(cu), channels: true, Hk: 2, K: 33 },
      { lastTokens: 5, snapshotEvery: 3, stateLayout: "kv", gate: "linear" },
    ),
  ]),
  inPlace(make({ ...keep("lastStates", "log"), V: 33 }, { lastTokens: 3 })),
];

export const suite: Suite = {
  op: gatedDeltaRuleRecurrent,
  errorClass: ruleClasses(),
  reference: sequentialReference,
  cases: [
    ...cases,
    { ...ruleCase({ ...BASE, T: 1 }, 5), inPlace: { finalState: "initialState" } },
    { ...ruleCase({ ...BASE, T: 9, V: 33 }, 6), inPlace: { finalState: "initialState" } },
    { ...ruleCase({ ...BASE, T: 9, V: 33 }, 7), ask: {} },
    { ...ruleCase({ ...BASE, T: 9, state: false }, 8), ask: {} },
    // Decays of exactly 0, and snapshots that no sequence has where its tokens lie in the row.
    make({ gate: "one -1000", T: 20 }, { gate: "linear" }),
    make({ ...keep("snapshots"), ...packed([0, 7, 7, 12, 20]) }, { snapshotEvery: 4 }),
    // One dtype each: the next has the next one.
    ...[...CONVENTIONS, ...CHANNELS, ...SEQUENCES, ...STATES].map((c, i) => ({
      ...c,
      dtypes: FLOATS.slice(i % FLOATS.length).slice(0, 1),
    })),
  ],
};
