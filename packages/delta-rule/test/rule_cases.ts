// Cases of the delta rule that every form of it must pass, and its reference as suites want it.
import {
  type Case,
  type CaseInput,
  type ErrorClass,
  Random,
  type Reference64,
  type ReferenceFunction,
} from "@mlxts/core/testing";
import type { GateSpace } from "../src/options.ts";
import {
  gatedDeltaRuleReference,
  type RuleInputs,
  type RuleReferenceOptions,
  type RuleResults,
  type RuleShape,
} from "../src/reference.ts";

export type GateKind = "none" | "weak" | "sigmoid" | "strong" | "rare" | "all -50" | "half -50" | "one -1000";

/** Optional outputs beside the final state. */
export type Kept = "snapshots" | "lastStates" | "log";

export interface RuleSetting extends RuleShape {
  /** How strong the gates are; options.gate says in which space they are given. */
  gate?: GateKind;
  /** Each channel has its own gate. */
  channels?: boolean;
  /** All tokens, or every second one, share a key; beta is then this number. */
  repeated?: "all" | "half";
  beta?: number;
  state?: boolean;
  /** Passed to the op; q and k are drawn with this length where it matters to eps. */
  keyNorm?: number;
  qkNorm?: RuleReferenceOptions["qkNorm"];
  /** Where sequences begin and end in the one row. */
  packed?: readonly number[];
  /** About a third of the tokens are skipped, more in every second row; what they hold is NaN. */
  masked?: boolean;
  /** Asked for, with what options say of them. */
  keep?: readonly Kept[];
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

const IN_SPACE: Record<GateSpace, (ln: number) => number> = {
  ln: (g) => g,
  log2: (g) => g / Math.LN2,
  linear: Math.exp,
  "neg-ln": (g) => -g,
};

/** Not 0 for the tokens that count. */
function maskOf({ B, T }: RuleShape, random: Random): Float64Array {
  return Float64Array.from({ length: B * T }, (_, i) => {
    const padding = Math.floor(i / T) % 2 === 1 ? T / 2 : 1;
    return i % T < padding || random.uniform() < 0.3 ? 0 : i % 2 === 0 ? 1 : 255;
  });
}

/** What is asked for, with its shape. */
function asked(setting: RuleSetting): NonNullable<Case["ask"]> {
  const { B, T, Hk, H, K, V, packed, channels, keep = [], options = {} } = setting;
  const { stateLayout, snapshotEvery, lastTokens: n } = options as Partial<RuleReferenceOptions>;
  const N = packed ? packed.length - 1 : B;
  const state = [H, ...(stateLayout === "kv" ? [K, V] : [V, K])];
  const shapes: Record<string, readonly number[]> = {
    finalState: [N, ...state],
    ...(keep.includes("snapshots") && { snapshots: [B * Math.floor(T / (snapshotEvery as number)), ...state] }),
    ...(keep.includes("lastStates") && { lastStates: [N, n as number, ...state] }),
    ...(keep.includes("log") && {
      logState: [N, ...state],
      logKeys: [N, n as number, Hk, K],
      logDeltas: [N, n as number, H, V],
      logGates: [N, n as number, H, ...(channels ? [K] : [])],
    }),
  };
  return Object.fromEntries(Object.entries(shapes).map(([name, shape]) => [name, { dtype: "f32", shape }]));
}

/** Of the outputs; hard inputs have bars of their own. */
export const ruleClasses = (pipeline: "P" | "H" = "P"): Record<string, ErrorClass> => ({
  o: pipeline,
  finalState: pipeline,
  snapshots: pipeline,
  lastStates: pipeline,
  logState: pipeline,
  logKeys: "S",
  logDeltas: pipeline,
  logGates: "exact",
});

export function ruleCase(setting: RuleSetting, seed = 21): Case {
  const { B, T, Hk, H, K, V, gate = "sigmoid", repeated, beta, state = false, keyNorm, qkNorm = "sum-eps" } = setting;
  const { channels = false, packed, masked = false } = setting;
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
  const each = channels ? K : 1;
  const v = random.normals(tokens * V);
  const space = IN_SPACE[(setting.options?.gate ?? "ln") as GateSpace];
  const g = gates(gate, tokens * each, H * each, random).map(space);
  const betas = Float64Array.from({ length: tokens }, () => beta ?? 1 / (1 + Math.exp(-random.normal())));
  const ask = asked(setting);
  const stateShape = ask.finalState?.shape ?? [];
  const initial = random.normals(state ? stateShape.reduce((x, y) => x * y, 1) : 0);
  const mask = masked ? maskOf(setting, random) : undefined;
  for (const data of mask ? [q, k, v, g, betas] : [])
    for (let i = 0; i < data.length; i++) if (mask?.[Math.floor((i * B * T) / data.length)] === 0) data[i] = Number.NaN;
  const { B: _, ...named } = setting;
  const inputs: Record<string, CaseInput> = {
    q: { dtype: "act", shape: [B, T, Hk, K], data: q },
    k: { dtype: "act", shape: [B, T, Hk, K], data: k },
    v: { dtype: "act", shape: [B, T, H, V], data: v },
    g: { dtype: "f32", shape: [B, T, H, ...(channels ? [K] : [])], data: g },
    beta: { dtype: "f32", shape: [B, T, H], data: betas },
    ...(state && { initialState: { dtype: "f32", shape: stateShape, data: initial } }),
    ...(packed && { cuSeqlens: { dtype: "i32", shape: [packed.length], data: packed } }),
    ...(mask && { mask: { dtype: "u8", shape: [B, T], data: mask } }),
  };
  return {
    name: `B${B} ${JSON.stringify(named).replaceAll('"', "")}`,
    inputs,
    options: { scale: K ** -0.5, qkNorm, ...setting.options },
    ask,
    ...(repeated && { errorClass: ruleClasses("H") }),
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

export type RuleOptions = RuleReferenceOptions & {
  chunkLength?: 16 | 32 | 64;
  path?: "auto" | "recurrent" | "chunk";
};

export function shapeOf({ q, v }: Record<string, Reference64>): RuleShape {
  const [B, T, Hk, K] = (q as Reference64).shape as [number, number, number, number];
  const [, , H, V] = (v as Reference64).shape as [number, number, number, number];
  return { B, T, Hk, H, K, V };
}

/** The numbers of a case's inputs, as references want them. */
export const dataOf = (inputs: Record<string, Reference64>): RuleInputs =>
  Object.fromEntries(Object.entries(inputs).map(([name, { data }]) => [name, data])) as unknown as RuleInputs;

export type RuleFunction = (shape: RuleShape, inputs: RuleInputs, options: RuleOptions) => RuleResults;

const cache = new Map<string, Record<string, Reference64>>();

/** Tells inputs apart. */
export function fingerprint(inputs: Record<string, Reference64>): string {
  return Object.entries(inputs)
    .map(([name, { shape, data }]) => {
      let sum = 0;
      for (let i = 0; i < data.length; i++) {
        const x = data[i] as number;
        sum += (Number.isNaN(x) ? 1e-3 : x) * ((i % 1013) + 1);
      }
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
    const { B, Hk, H, K, V } = shape;
    const N = inputs.cuSeqlens ? inputs.cuSeqlens.data.length - 1 : B;
    const n = options.lastTokens ?? 0;
    const state = [H, ...(options.stateLayout === "kv" ? [K, V] : [V, K])];
    const gates = (inputs.g as Reference64).shape.slice(2);
    const shapes: Record<keyof RuleResults, (data: Float64Array) => readonly number[]> = {
      o: () => (inputs.v as Reference64).shape,
      finalState: () => [N, ...state],
      snapshots: ({ length }) => [length / (H * V * K), ...state],
      lastStates: () => [N, n, ...state],
      logState: () => [N, ...state],
      logKeys: () => [N, n, Hk, K],
      logDeltas: () => [N, n, H, V],
      logGates: () => [N, n, ...gates],
    };
    const results = Object.entries(rule(shape, dataOf(inputs), options)) as [keyof RuleResults, Float64Array][];
    const result = Object.fromEntries(results.map(([output, data]) => [output, { shape: shapes[output](data), data }]));
    cache.set(key, result);
    return result;
  };
}

/** The eps that is added to the sum of squares, where that is the kind of the norm. */
export const normEps = ({ qkNorm, qkNormEps = 1e-6 }: RuleOptions): number | undefined =>
  qkNorm === "sum-eps" ? qkNormEps : undefined;

export const sequentialReference = ruleReference("sequential", gatedDeltaRuleReference);
