import { FLOATS } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { deltaGatesRule } from "../src/index.ts";
import { deltaGatesReference, gatedDeltaRuleReference } from "../src/reference.ts";
import { type Kept, type RuleSetting, ruleCase, ruleClasses, ruleReference } from "./rule_cases.ts";

interface GateOptions {
  betaScale?: number;
  lowerBound?: number;
}

/** A case of the rule with the projections that its gates are made of. */
function gatedCase(setting: RuleSetting, more: GateOptions = {}, seed = 23): Case {
  const made = ruleCase({ ...setting, options: { ...setting.options, ...more } }, seed);
  const { g, beta: _, ...inputs } = made.inputs;
  const random = new Random(seed);
  const shape = (g as { shape: readonly number[] }).shape;
  const [B, T, H] = shape as [number, number, number];
  const mask = inputs.mask?.data;
  const drawn = (scale: number) =>
    random.normals(B * T * H, scale).map((x, i) => (mask?.[Math.floor(i / H)] === 0 ? Number.NaN : x));
  return {
    ...made,
    inputs: {
      ...inputs,
      a: { dtype: "act", shape, data: drawn(2) },
      b: { dtype: "act", shape, data: drawn(1.5) },
      aLog: { dtype: "f32", shape: [H], data: random.uniforms(H, -2, 1) },
      dtBias: { dtype: "f32", shape: [H], data: random.normals(H) },
    },
  };
}

const data = (inputs: Record<string, Reference64>, name: string) => (inputs[name] as Reference64).data;

type Gates = typeof deltaGatesReference;

/** The rule on gates from a formula. */
const withGates =
  (name: string, formula: Gates): ReferenceFunction =>
  (inputs, options, dtype) => {
    const { betaScale = 1, lowerBound } = options as GateOptions;
    const { shape } = inputs.a as Reference64;
    const [a, b, aLog, dtBias] = ["a", "b", "aLog", "dtBias"].map((each) => data(inputs, each)) as [
      Float64Array,
      Float64Array,
      Float64Array,
      Float64Array,
    ];
    const { g, beta } = formula(a, b, aLog, dtBias, betaScale, lowerBound);
    const gates = { g: { shape, data: g }, beta: { shape, data: beta } };
    return ruleReference(name, gatedDeltaRuleReference)({ ...inputs, ...gates }, options, dtype);
  };

const FEW: RuleSetting = { B: 1, T: 9, Hk: 1, H: 2, K: 40, V: 18, state: true };
const packed = (cu: readonly number[]) => ({ packed: cu, T: cu.at(-1) as number });
const kept = (...keep: Kept[]) => ({ keep });
const inPlace = (c: Case): Case => ({ ...c, inPlace: { finalState: "initialState" } });

const SEVERAL: Case[] = [
  ...[1, 2, 3, 7].map((T) => inPlace(gatedCase({ ...FEW, T, H: 6, Hk: 2 }))),
  ...[1, 8, 33, 64, 128, 256].map((K) => gatedCase({ ...FEW, K, T: K < 8 ? 60 : 5, options: { path: "recurrent" } })),
  ...[1, 5, 33, 64, 100].map((V) => gatedCase({ ...FEW, V, T: V < 8 ? 60 : 3, options: { path: "recurrent" } })),
  gatedCase({ ...FEW, T: 40 }, { betaScale: 2, lowerBound: -5 }),
  gatedCase({ ...FEW, T: 20, options: { path: "recurrent" } }, { betaScale: 1.5 }),
  gatedCase({ ...FEW, T: 20, options: { path: "recurrent" } }, { lowerBound: -0.5 }),
  gatedCase({ ...FEW, B: 3, T: 20, masked: true, options: { path: "recurrent" } }),
  gatedCase({ ...FEW, B: 2, T: 40, masked: true, options: { path: "chunk", chunkLength: 16 } }),
  gatedCase({ ...FEW, ...packed([0, 2, 2, 9]), options: { path: "recurrent", stateLayout: "kv" } }),
  gatedCase({ ...FEW, ...packed([0, 15, 15, 60]), options: { path: "chunk", chunkLength: 16 } }),
  gatedCase({
    ...FEW,
    ...kept("snapshots", "lastStates", "log"),
    ...packed([0, 4, 4, 20]),
    options: { path: "recurrent", chunkLength: 16, lastTokens: 5, snapshotEvery: 16 },
  }),
  gatedCase({
    ...FEW,
    ...kept("snapshots", "lastStates", "log"),
    T: 70,
    options: { path: "chunk", chunkLength: 16, lastTokens: 5, snapshotEvery: 16 },
  }),
  gatedCase({ ...FEW, ...kept("log"), Hk: 2, H: 6, V: 35, options: { lastTokens: 4, gqa: "tiled" } }),
];

export const suite: Suite = {
  op: deltaGatesRule,
  errorClass: { ...ruleClasses(), logGates: "S" },
  reference: withGates("sequential", deltaGatesReference),
  cases: [
    gatedCase({ ...FEW, T: 12, options: { path: "recurrent" } }),
    gatedCase({ ...FEW, T: 100, options: { path: "chunk" } }),
    // One dtype each: the next has the next one.
    ...SEVERAL.map((c, i) => ({ ...c, dtypes: FLOATS.slice(i % FLOATS.length).slice(0, 1) })),
  ],
  mutants: {
    "a and b swapped": withGates("swapped", (a, b, ...rest) => deltaGatesReference(b, a, ...rest)),
    "dtBias ignored": withGates("unbiased", (a, b, aLog, dtBias, ...rest) =>
      deltaGatesReference(
        a,
        b,
        aLog,
        dtBias.map(() => 0),
        ...rest,
      ),
    ),
    "parameters of the next head": withGates("next", (a, b, aLog, dtBias, ...rest) => {
      const next = (of: Float64Array) => of.map((_, h) => of[(h + 1) % of.length] as number);
      return deltaGatesReference(a, b, next(aLog), next(dtBias), ...rest);
    }),
    "A_log not exponentiated": withGates("rate", (a, b, aLog, ...rest) =>
      deltaGatesReference(
        a,
        b,
        aLog.map((x) => Math.log(Math.max(x, 1e-9))),
        ...rest,
      ),
    ),
    "betaScale ignored": withGates("scale", (a, b, aLog, dtBias, _, lowerBound) =>
      deltaGatesReference(a, b, aLog, dtBias, 1, lowerBound),
    ),
    "lowerBound ignored": withGates("bound", (a, b, aLog, dtBias, betaScale) =>
      deltaGatesReference(a, b, aLog, dtBias, betaScale),
    ),
    "sign of g": withGates("sign", (...given) => {
      const { g, beta } = deltaGatesReference(...given);
      return { g: g.map((x) => -x), beta };
    }),
    "the decay of the token before": withGates("late", (...given) => {
      const { g, beta } = deltaGatesReference(...given);
      const heads = given[2].length;
      return { g: g.map((_, i) => g[Math.max(i - heads, i % heads)] as number), beta };
    }),
  },
};
