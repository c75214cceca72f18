import { type Dtype, type FloatDtype, roundTo } from "@mlxts/core";
import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { chunkCumsum, chunkInverse, chunkKkt, chunkOutput, chunkState, chunkWu } from "../src/index.ts";
import type { GateSpace } from "../src/options.ts";
import * as reference from "../src/reference_chunk.ts";
import { fingerprint, ruleCase } from "./rule_cases.ts";

const random = new Random(31);

interface Setting {
  B: number;
  T: number;
  Hk: number;
  H: number;
  K: number;
  V: number;
  BT: 16 | 32 | 64;
  /** Of a token at most: −g. */
  decay?: number;
  channels?: boolean;
  gqa?: "tiled";
  stateLayout?: "kv";
  gate?: GateSpace;
  packed?: readonly number[];
  masked?: boolean;
  every?: number;
  only?: "cuda";
}
const packed = (cu: readonly number[]) => ({ B: 1, T: cu.at(-1) as number, packed: cu });
const SETTINGS: readonly Setting[] = [
  { B: 1, T: 1, Hk: 2, H: 4, K: 64, V: 96, BT: 64 },
  { B: 2, T: 17, Hk: 1, H: 3, K: 24, V: 33, BT: 16 },
  { B: 1, T: 70, Hk: 2, H: 2, K: 32, V: 130, BT: 32 },
  { B: 2, T: 64, Hk: 1, H: 1, K: 64, V: 64, BT: 64 },
  { B: 1, T: 131, Hk: 1, H: 2, K: 40, V: 20, BT: 64 },
  // More columns than a GPU stages at once, in each dtype, and more chunks than it has buffers.
  { B: 2, T: 40, Hk: 2, H: 2, K: 104, V: 40, BT: 16, decay: 0.1 },
  { B: 1, T: 75, Hk: 1, H: 2, K: 136, V: 72, BT: 64, decay: 0.1 },
  { B: 2, T: 35, Hk: 2, H: 6, K: 16, V: 24, BT: 16, gqa: "tiled", stateLayout: "kv", gate: "log2" },
  { ...packed([0, 15]), Hk: 1, H: 2, K: 24, V: 33, BT: 16 },
  { ...packed([0, 15, 15, 100, 300]), Hk: 1, H: 2, K: 16, V: 12, BT: 32, every: 32, decay: 0.2 },
  { ...packed([0, 64, 128]), Hk: 1, H: 2, K: 32, V: 40, BT: 64, every: 64, decay: 0.1 },
  { ...packed([0, 0, 20, 45, 45]), Hk: 2, H: 4, K: 24, V: 17, BT: 16, gqa: "tiled", stateLayout: "kv", every: 16 },
  { B: 2, T: 70, Hk: 1, H: 2, K: 24, V: 70, BT: 16, stateLayout: "kv", every: 32, decay: 0.1 },
  { B: 2, T: 45, Hk: 1, H: 2, K: 32, V: 24, BT: 32, masked: true, gate: "linear" },
  { B: 1, T: 70, Hk: 1, H: 2, K: 8, V: 20, BT: 64, channels: true },
  { B: 2, T: 33, Hk: 2, H: 4, K: 24, V: 33, BT: 16, channels: true, gqa: "tiled", every: 16, decay: 0.1 },
  { B: 1, T: 64, Hk: 1, H: 1, K: 256, V: 40, BT: 64, channels: true, decay: 0.1 },
  { B: 1, T: 49, Hk: 1, H: 1, K: 136, V: 72, BT: 32, channels: true, decay: 20, stateLayout: "kv", every: 32 },
  { ...packed([0, 15, 15, 60, 79]), Hk: 1, H: 2, K: 40, V: 20, BT: 64, channels: true, decay: 0.2 },
  { B: 2, T: 40, Hk: 1, H: 2, K: 16, V: 12, BT: 16, channels: true, masked: true, gate: "neg-ln" },
  // More rows than two: each begins where its own tokens and chunks do.
  { B: 3, T: 33, Hk: 1, H: 2, K: 24, V: 20, BT: 16 },
  // More blocks of state rows than a GPU has room for side by side, the last one of a head without a pair.
  { B: 2, T: 20, Hk: 1, H: 6, K: 8, V: 200, BT: 16 },
  // So many blocks of state rows that warpgroups of NVIDIA's GPUs pass over them.
  { B: 1, T: 37, Hk: 2, H: 30, K: 104, V: 72, BT: 16, decay: 0.1, only: "cuda" },
];

const size = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
const make = (dtype: Dtype | "act", shape: readonly number[], data = random.normals(size(shape))): CaseInput => ({
  dtype,
  shape,
  data,
});

/** For each token its row in its chunk. */
function chunkRows({ B, T, BT, packed: cu }: Setting): number[] {
  const begins = cu ?? Array.from({ length: B }, (_, b) => b * T);
  return Array.from({ length: B * T }, (_, t) => (t - Math.max(...begins.filter((begin) => begin <= t))) % BT);
}

const IN_SPACE: Record<GateSpace, (ln: number) => number> = {
  ln: (g) => g,
  log2: (g) => g / Math.LN2,
  linear: Math.exp,
  "neg-ln": (g) => -g,
};

/** Inputs of every stage: random, but of the form and size that the stages before it give. */
function stageInputs(setting: Setting) {
  const { B, T, Hk, H, K, V, BT, decay = 2, channels, gate = "ln", packed: cu, masked, stateLayout } = setting;
  const cuSeqlens = cu && Float64Array.from(cu);
  const N = cu ? cu.length - 1 : B;
  const each = channels ? [K] : [];
  const tokens = [B, T, H];
  const gates = [...tokens, ...each];
  const rows = chunkRows(setting);
  const dims = { B, T, Hk, H, K, V, BT, cuSeqlens };
  const ln = random.uniforms(size(gates), -decay, 0);
  const mask = masked ? random.uniforms(B * T).map((x) => (x < 0.3 ? 0 : 1)) : undefined;
  const skipped = (data: Float64Array) =>
    data.map((x, i) => (mask?.[Math.floor((i * B * T) / data.length)] === 0 ? Number.NaN : x));
  const G = reference.chunkCumsumReference(dims, ln, { mask });
  /** A chunk's matrices: below the diagonal random, on it and above it what is given. */
  const lower = (diagonal: number, above: number) =>
    random.normals(B * T * H * BT, 0.2).map((x, i) => {
      const row = rows[Math.floor(i / BT / H)] as number;
      return i % BT < row ? x : i % BT === row ? diagonal : above;
    });
  const state = [H, ...(stateLayout === "kv" ? [K, V] : [V, K])];
  const slots = reference.chunkSlots(dims) / B;
  const q = random.normals(B * T * Hk * K, K ** -0.5);
  return {
    q: make("act", [B, T, Hk, K], skipped(q)),
    k: make("act", [B, T, Hk, K], random.normals(B * T * Hk * K, K ** -0.5)),
    v: make("act", [B, T, H, V]),
    beta: make("f32", tokens, random.uniforms(B * T * H)),
    g: make("f32", gates, skipped(ln.map(IN_SPACE[gate]))),
    G: make("f32", gates, G),
    GLow: make("f32", gates, random.uniforms(size(gates), -1e-3, 1e-3)),
    // Nothing but what is below the diagonal is read.
    A: make("f32", [B, T, H, BT], lower(Number.NaN, Number.NaN)),
    X: make("f32", [B, T, H, BT], lower(1, 0)),
    w: make("act", [B, T, H, K], random.normals(B * T * H * K, K ** -0.5)),
    u: make("act", [B, T, H, V]),
    vNew: make("act", [B, T, H, V]),
    h: make("act", [B, slots, H, V, K]),
    initialState: make("f32", [N, ...state]),
    ...(cu && { cuSeqlens: make("i32", [cu.length], cuSeqlens) }),
    ...(mask && { mask: make("u8", [B, T], mask) }),
  };
}
type Inputs = ReturnType<typeof stageInputs>;
type Name = Exclude<keyof Inputs, "cuSeqlens" | "mask">;
const all = SETTINGS.map((setting) => ({ setting, inputs: stageInputs(setting) }));

interface Wanted {
  /** Settings that this stage has as options. */
  options?: readonly ("gqa" | "stateLayout" | "gate")[];
  fixed?: Record<string, unknown>;
  /** Once more with GLow. */
  gateLow?: boolean;
  mask?: boolean;
  /** Asks for the states at the end and between. */
  states?: boolean;
}

function cases(
  names: readonly Name[],
  { options = [], fixed = {}, gateLow = true, mask = false, states = false }: Wanted = {},
): Case[] {
  return all.flatMap(({ setting, inputs }) =>
    (gateLow ? [names, [...names, "GLow" as const]] : [names]).map((chosen): Case => {
      const { every, BT, B, T, packed: cu, only } = setting;
      const state = inputs.initialState.shape;
      const f32 = (shape: readonly number[]) => ({ dtype: "f32" as const, shape });
      const given = options.filter((name) => setting[name] !== undefined).map((name) => [name, setting[name]]);
      return {
        name: `${JSON.stringify(setting)} ${chosen.length}`,
        inputs: {
          ...Object.fromEntries(chosen.map((name) => [name, inputs[name]])),
          ...(cu && { cuSeqlens: inputs.cuSeqlens as CaseInput }),
          ...(mask && setting.masked && { mask: inputs.mask as CaseInput }),
        },
        options: {
          chunkLength: BT,
          ...fixed,
          ...Object.fromEntries(given),
          ...(states && every && { snapshotEvery: every }),
        },
        ...(states && {
          ask: {
            finalState: f32(state),
            ...(every && { snapshots: f32([B * Math.floor(T / every), ...state.slice(1)]) }),
          },
        }),
        ...(only && { only, aligned: true, dtypes: ["bf16"] }),
      };
    }),
  );
}

type Data = Record<Name, Float64Array> & Partial<Record<"cuSeqlens" | "mask", Float64Array>>;
interface StageOptions {
  chunkLength: 16 | 32 | 64;
  scale: number;
  gqa?: "tiled";
  stateLayout?: "kv";
  gate?: GateSpace;
  snapshotEvery?: number;
}
/** A stage's reference as a suite wants it, with results kept; the dims that a stage does not see are 1. */
function stage(
  run: (
    shape: reference.ChunkShape,
    data: Data,
    round: reference.Round,
    options: StageOptions,
  ) => Record<string, [shape: readonly number[], data: Float64Array] | undefined>,
): ReferenceFunction {
  const known = new Map<string, Record<string, Reference64>>();
  return (inputs, given, dtype: FloatDtype) => {
    const options = given as unknown as StageOptions;
    const key = `${dtype} ${JSON.stringify(options)} ${fingerprint(inputs)}`;
    const before = known.get(key);
    if (before) return before;
    const tensors = inputs as Record<Name, Reference64 | undefined>;
    const at = (name: Name, axis: number) => tensors[name]?.shape[axis];
    const [B, T, H] = ((tensors.G ?? tensors.g ?? tensors.A) as Reference64).shape as [number, number, number];
    const keys = at("k", 3) ?? 1;
    const values = at("v", 3) ?? at("u", 3) ?? at("vNew", 3) ?? 1;
    const data = Object.fromEntries(Object.entries(inputs).map(([name, { data: d }]) => [name, d])) as Data;
    const { chunkLength: BT, gqa, stateLayout } = options;
    const { cuSeqlens } = data;
    const shape = { B, T, Hk: at("k", 2) ?? 1, H, K: keys, V: values, BT, gqa, stateLayout, cuSeqlens };
    if (data.GLow) data.G = data.G.map((g, i) => g + (data.GLow[i] as number));
    const results = Object.entries(run(shape, data, (x) => roundTo(dtype, x), options));
    const result = Object.fromEntries(
      results.flatMap(([name, result]) => (result ? [[name, { shape: result[0], data: result[1] }]] : [])),
    );
    known.set(key, result);
    return result;
  };
}

/** The shape of gates that a stage got: one a head, or one a channel. */
const gateShape = ({ B, T, H }: reference.ChunkShape, g: Float64Array) =>
  g.length === B * T * H ? [B, T, H] : [B, T, H, g.length / (B * T * H)];

/** Gates that cost G digits, in whole chunks and a short one. */
export const GATES = (["strong", "half -50", "one -1000"] as const).flatMap((gate) =>
  ([16, 64] as const).map((chunkLength) => {
    const { inputs } = ruleCase({ B: 2, T: 150, Hk: 1, H: 3, K: 8, V: 1, gate });
    return { name: `${gate} ${chunkLength}`, inputs: { g: inputs.g as CaseInput }, options: { chunkLength } };
  }),
);
const askLow = (c: Case): Case => ({
  ...c,
  name: `${c.name} with GLow`,
  ask: { GLow: { dtype: "f32", shape: (c.inputs.g as CaseInput).shape } },
});

export const suites: readonly Suite[] = [
  {
    op: chunkCumsum,
    errorClass: "S",
    dtypes: ["f32"],
    reference: stage((s, { g, mask }, _, { gate }) => {
      const G = reference.chunkCumsumReference(s, g, { gate, mask });
      const stored = reference.chunkCumsumReference(s, g, { gate, mask }, Math.fround);
      const shape = gateShape(s, g);
      // Of other spaces the conversion is rounded too, as each device does it: G + GLow is to be right, see the test.
      const low = gate === undefined || gate === "neg-ln";
      return { G: [shape, G], GLow: low ? [shape, G.map((x, i) => x - (stored[i] as number))] : undefined };
    }),
    cases: [...cases(["g"], { options: ["gate"], gateLow: false, mask: true }), ...GATES].flatMap((c) => [
      c,
      askLow(c),
    ]),
    mutants: {
      "GLow is 0": stage((s, { g }) => ({
        GLow: [gateShape(s, g), new Float64Array(g.length)],
      })),
      "GLow of the last addition only": stage((s, { g }) => {
        const stored = reference.chunkCumsumReference(s, g, {}, Math.fround);
        const low = stored.map((sum, i) => {
          const row = Math.floor(i / s.H) % s.T;
          const before = row % s.BT === 0 ? 0 : (stored[i - s.H] as number);
          return before + (g[i] as number) - sum;
        });
        return { GLow: [gateShape(s, g), low] };
      }),
    },
  },
  {
    op: chunkKkt,
    errorClass: "R",
    reference: stage((s, { k, beta, G }, round) => ({
      A: [[s.B, s.T, s.H, s.BT], reference.chunkKktReference(s, k, beta, G, round)],
    })),
    cases: cases(["k", "beta", "G"], { options: ["gqa"] }),
  },
  {
    op: chunkInverse,
    errorClass: "R",
    dtypes: ["f32"],
    reference: stage((s, { A }) => ({ X: [[s.B, s.T, s.H, s.BT], reference.chunkInverseReference(s, A)] })),
    cases: [
      ...cases(["A"], { gateLow: false }),
      ...cases(["A"], { gateLow: false }).map((c) => ({ ...c, name: `${c.name} in place`, inPlace: { X: "A" } })),
    ],
  },
  {
    op: chunkWu,
    errorClass: "S",
    reference: stage((s, { k, v, beta, G, X }, round) => {
      const { w, u } = reference.chunkWuReference(s, k, v, beta, G, X, round);
      return { w: [[s.B, s.T, s.H, s.K], w], u: [[s.B, s.T, s.H, s.V], u] };
    }),
    cases: cases(["k", "v", "beta", "G", "X"], { options: ["gqa"] }),
  },
  {
    op: chunkState,
    errorClass: { h: "P", vNew: "P", finalState: "P", snapshots: "P" },
    reference: stage((s, { k, w, u, G, initialState }, round, { snapshotEvery }) => {
      const results = reference.chunkStateReference(s, k, w, u, G, initialState, round, snapshotEvery);
      const { h, vNew, finalState, snapshots } = results;
      const state = [s.H, ...(s.stateLayout === "kv" ? [s.K, s.V] : [s.V, s.K])];
      const size = s.H * s.V * s.K;
      return {
        h: [[s.B, reference.chunkSlots(s) / s.B, s.H, s.V, s.K], h],
        vNew: [[s.B, s.T, s.H, s.V], vNew],
        finalState: [[finalState.length / size, ...state], finalState],
        snapshots: snapshots && [[snapshots.length / size, ...state], snapshots],
      };
    }),
    cases: [
      ...cases(["k", "w", "u", "G", "initialState"], { options: ["gqa", "stateLayout"], states: true }),
      ...cases(["k", "w", "u", "G", "initialState"], { options: ["gqa", "stateLayout"] }).map((c) => ({
        ...c,
        name: `${c.name} in place`,
        inPlace: { finalState: "initialState", vNew: "u" },
      })),
      ...cases(["k", "w", "u", "G"], { options: ["gqa", "stateLayout"], gateLow: false }),
    ],
  },
  {
    op: chunkOutput,
    errorClass: "R",
    reference: stage((s, { q, k, vNew, h, G, mask }, round, { scale }) => {
      const o = reference.chunkOutputReference(s, q, k, vNew, h, G, { scale, mask }, round);
      return { o: [[s.B, s.T, s.H, s.V], o.map(round)] };
    }),
    cases: cases(["q", "k", "vNew", "h", "G"], { options: ["gqa"], fixed: { scale: 0.7 }, mask: true }),
  },
];
