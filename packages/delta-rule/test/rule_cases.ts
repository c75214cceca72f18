// Cases of the delta rule that every form of it must pass, and its reference as suites want it.
import { type Case, Random, type Reference64, type ReferenceFunction } from "@mlxts/core/testing";
import { gatedDeltaRuleReference, type RuleInputs, type RuleShape } from "../src/reference.ts";

export type GateKind = "none" | "weak" | "sigmoid" | "strong" | "rare" | "all -50" | "half -50" | "one -1000";

export interface RuleSetting extends RuleShape {
  gate?: GateKind;
  /** All tokens, or every second one, share a key; beta is then this number. */
  repeated?: "all" | "half";
  beta?: number;
  state?: boolean;
  /** Passed to the op; q and k are drawn with this length where it matters to eps. */
  keyNorm?: number;
  qkNorm?: "none" | "sum-eps";
  options?: Record<string, unknown>;
}

const logSigmoid = (x: number) => -Math.log1p(Math.exp(-x));

function gates(kind: GateKind, count: number, heads: number, random: Random): Float64Array {
  const draw: Record<GateKind, (token: number) => number> = {
    none: () => 0,
    weak: () => -0.05 * random.uniform(),
    sigmoid: () => logSigmoid(random.normal()),
    strong: () => -20 * random.uniform(),
    rare: () => (random.uniform() < 0.1 ? -20 : 0),
    "all -50": () => -50,
    "half -50": () => (random.uniform() < 0.5 ? -50 : -0.05),
    "one -1000": (token) => (token % 16 === 5 ? -1000 : -0.05),
  };
  return Float64Array.from({ length: count }, (_, i) => draw[kind](Math.floor(i / heads)));
}

export function ruleCase(setting: RuleSetting, seed = 21): Case {
  const { B, T, Hk, H, K, V, gate = "sigmoid", repeated, beta, state = false, keyNorm, qkNorm = "sum-eps" } = setting;
  const random = new Random(seed);
  const vectors = () => {
    const data = random.normals(B * T * Hk * K);
    if (qkNorm === "none" || keyNorm !== undefined)
      for (let row = 0; row < data.length; row += K) {
        const length = Math.hypot(...data.subarray(row, row + K));
        for (let i = row; i < row + K; i++) data[i] = ((data[i] as number) * (keyNorm ?? 1)) / length;
      }
    return data;
  };
  const q = vectors();
  const k = vectors();
  if (repeated)
    for (let row = 0; row < B * T; row++)
      if (repeated === "all" || row % 2 === 0) k.copyWithin(row * Hk * K, 0, Hk * K);
  const tokens = B * T * H;
  const { B: _, ...named } = setting;
  return {
    name: `B${B} ${JSON.stringify(named).replaceAll('"', "")}`,
    inputs: {
      q: { dtype: "act", shape: [B, T, Hk, K], data: q },
      k: { dtype: "act", shape: [B, T, Hk, K], data: k },
      v: { dtype: "act", shape: [B, T, H, V], data: random.normals(tokens * V) },
      g: { dtype: "f32", shape: [B, T, H], data: gates(gate, tokens, H, random) },
      beta: {
        dtype: "f32",
        shape: [B, T, H],
        data: Float64Array.from({ length: tokens }, () => beta ?? 1 / (1 + Math.exp(-random.normal()))),
      },
      ...(state && { initialState: { dtype: "f32", shape: [B, H, V, K], data: random.normals(B * H * V * K) } }),
    },
    options: { scale: K ** -0.5, qkNorm, ...setting.options },
    ask: { finalState: { dtype: "f32", shape: [B, H, V, K] } },
    ...(repeated && { errorClass: "H" }),
  };
}

/** The fixtures F1 and F2: strong and weak gates. */
export const F1: RuleSetting = { B: 1, T: 200, Hk: 2, H: 4, K: 128, V: 128, gate: "sigmoid", state: true };
export const F2: RuleSetting = { ...F1, gate: "weak" };

const SMALL: RuleSetting = { B: 1, T: 100, Hk: 1, H: 2, K: 64, V: 32, state: true };
/** The settings on which mistakes are proved to show; every path of the op runs all of them. */
export const FIXTURES = {
  F1,
  F2,
  "small keys": { ...SMALL, keyNorm: 0.003 },
  "short keys": { ...SMALL, keyNorm: 0.01 },
  "repeated keys": { ...SMALL, T: 128, gate: "weak", repeated: "all", beta: 1.9 },
  "no decay": { ...SMALL, gate: "none" },
  "strong decay": { ...SMALL, gate: "strong" },
  batch: { ...SMALL, B: 2 },
} satisfies Record<string, RuleSetting>;

export interface RuleOptions {
  scale: number;
  qkNorm?: "none" | "sum-eps";
  qkNormEps?: number;
  chunkLength?: 16 | 32 | 64;
  path?: "auto" | "recurrent" | "chunk";
}

export function shapeOf({ q, v }: Record<string, Reference64>): RuleShape {
  const [B, T, Hk, K] = (q as Reference64).shape as [number, number, number, number];
  const [, , H, V] = (v as Reference64).shape as [number, number, number, number];
  return { B, T, Hk, H, K, V };
}

export type RuleFunction = (
  shape: RuleShape,
  inputs: RuleInputs,
  options: RuleOptions,
) => { o: Float64Array; finalState: Float64Array };

const cache = new Map<string, Record<string, Reference64>>();

function fingerprint(inputs: Record<string, Reference64>): string {
  return Object.entries(inputs)
    .map(([name, { shape, data }]) => {
      let sum = 0;
      for (let i = 0; i < data.length; i++) sum += (data[i] as number) * ((i % 1013) + 1);
      return `${name}[${shape}]${sum}`;
    })
    .join();
}

/** A rule as a suite's reference. Results are kept: every level, thread count and mutant asks again. */
export function ruleReference(name: string, rule: RuleFunction): ReferenceFunction {
  return (inputs, given) => {
    const options = given as unknown as RuleOptions;
    const key = `${name} ${JSON.stringify(options)} ${fingerprint(inputs)}`;
    const known = cache.get(key);
    if (known) return known;
    const shape = shapeOf(inputs);
    const { B, H, K, V } = shape;
    const data = Object.fromEntries(Object.entries(inputs).map(([input, { data: numbers }]) => [input, numbers]));
    const { o, finalState } = rule(shape, data as unknown as RuleInputs, options);
    const result = {
      o: { shape: (inputs.v as Reference64).shape, data: o },
      finalState: { shape: [B, H, V, K], data: finalState },
    };
    cache.set(key, result);
    return result as Record<string, Reference64>;
  };
}

export const normEps = ({ qkNorm, qkNormEps = 1e-6 }: RuleOptions): number | undefined =>
  qkNorm === "sum-eps" ? qkNormEps : undefined;

export const sequentialReference = ruleReference("sequential", (shape, inputs, options) =>
  gatedDeltaRuleReference(shape, inputs, options.scale, normEps(options)),
);
