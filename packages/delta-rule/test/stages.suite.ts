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
import * as reference from "../src/reference_chunk.ts";
import { ruleCase } from "./rule_cases.ts";

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
}
const SETTINGS: readonly Setting[] = [
  { B: 1, T: 1, Hk: 2, H: 4, K: 64, V: 96, BT: 64 },
  { B: 2, T: 17, Hk: 1, H: 3, K: 24, V: 33, BT: 16 },
  { B: 1, T: 70, Hk: 2, H: 2, K: 32, V: 130, BT: 32 },
  { B: 2, T: 64, Hk: 1, H: 1, K: 64, V: 64, BT: 64 },
  { B: 1, T: 131, Hk: 1, H: 2, K: 40, V: 20, BT: 64 },
  // More columns than a GPU stages at once, in each dtype, and more chunks than it has buffers.
  { B: 2, T: 40, Hk: 2, H: 2, K: 104, V: 40, BT: 16, decay: 0.1 },
  { B: 1, T: 75, Hk: 1, H: 2, K: 136, V: 72, BT: 64, decay: 0.1 },
];

const size = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
const make = (dtype: Dtype | "act", shape: readonly number[], data = random.normals(size(shape))) => ({
  dtype,
  shape,
  data,
});

/** Inputs of every stage: random, but of the form and size that the stages before it give. */
function stageInputs({ B, T, Hk, H, K, V, BT, decay = 2 }: Setting) {
  const NT = Math.ceil(T / BT);
  const tokens = [B, T, H];
  const g = random.uniforms(B * T * H, -decay, 0);
  const dims = { B, T, Hk, H, K, V, BT };
  const G = reference.chunkCumsumReference(dims, g);
  const lower = (scale: number) => {
    const A = random.normals(B * T * H * BT, scale);
    for (let i = 0; i < A.length; i++) {
      const row = (Math.floor(i / BT / H) % T) % BT;
      if (i % BT >= row) A[i] = 0;
    }
    return A;
  };
  const A = lower(0.2);
  const X = lower(0.2);
  for (let i = 0; i < X.length; i++) if (i % BT === (Math.floor(i / BT / H) % T) % BT) X[i] = 1;
  return {
    q: make("act", [B, T, Hk, K], random.normals(B * T * Hk * K, K ** -0.5)),
    k: make("act", [B, T, Hk, K], random.normals(B * T * Hk * K, K ** -0.5)),
    v: make("act", [B, T, H, V]),
    beta: make("f32", tokens, random.uniforms(B * T * H)),
    g: make("f32", tokens, g),
    G: make("f32", tokens, G),
    GLow: make("f32", tokens, random.uniforms(B * T * H, -1e-3, 1e-3)),
    A: make("f32", [B, T, H, BT], A),
    X: make("f32", [B, T, H, BT], X),
    w: make("act", [B, T, H, K], random.normals(B * T * H * K, K ** -0.5)),
    u: make("act", [B, T, H, V]),
    vNew: make("act", [B, T, H, V]),
    h: make("act", [B, NT, H, V, K]),
    initialState: make("f32", [B, H, V, K]),
  };
}
type Name = keyof ReturnType<typeof stageInputs>;
const all = SETTINGS.map((setting) => ({ setting, inputs: stageInputs(setting) }));

function cases(names: readonly Name[], options: Record<string, unknown> = {}, pair = true): Case[] {
  return all.flatMap(({ setting, inputs }) =>
    (pair ? [names, [...names, "GLow" as const]] : [names]).map((chosen) => ({
      name: `${JSON.stringify(setting)} ${chosen.length}`,
      inputs: Object.fromEntries(chosen.map((name) => [name, inputs[name]])),
      options: { chunkLength: setting.BT, ...options },
    })),
  );
}

type Data = Record<Name, Float64Array>;
/** A stage's reference as a suite wants it; the dims that a stage does not see are 1. */
function stage(
  run: (
    shape: reference.ChunkShape,
    data: Data,
    round: reference.Round,
    scale: number,
  ) => Record<string, [shape: readonly number[], data: Float64Array]>,
): ReferenceFunction {
  return (inputs, given, dtype: FloatDtype) => {
    const options = given as unknown as { chunkLength: number; scale: number };
    const tensors = inputs as Record<Name, Reference64 | undefined>;
    const at = (name: Name, axis: number) => tensors[name]?.shape[axis];
    const [B, T, H] = ((tensors.G ?? tensors.g ?? tensors.A) as Reference64).shape as [number, number, number];
    const keys = at("k", 3) ?? 1;
    const values = at("v", 3) ?? at("u", 3) ?? at("vNew", 3) ?? 1;
    const shape = { B, T, Hk: at("k", 2) ?? 1, H, K: keys, V: values, BT: options.chunkLength };
    const data = Object.fromEntries(Object.entries(inputs).map(([name, { data: d }]) => [name, d])) as Data;
    if (data.GLow) data.G = data.G.map((g, i) => g + (data.GLow[i] as number));
    const results = run(shape, data, (x) => roundTo(dtype, x), options.scale);
    return Object.fromEntries(Object.entries(results).map(([name, [s, d]]) => [name, { shape: s, data: d }]));
  };
}

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
    reference: stage((s, { g }) => {
      const G = reference.chunkCumsumReference(s, g);
      const stored = reference.chunkCumsumReference(s, g, {}, Math.fround);
      const shape = [s.B, s.T, s.H];
      return { G: [shape, G], GLow: [shape, G.map((x, i) => x - (stored[i] as number))] };
    }),
    cases: [...cases(["g"], {}, false), ...GATES].flatMap((c) => [c, askLow(c)]),
    mutants: {
      "GLow is 0": stage((s, { g }) => ({
        GLow: [[s.B, s.T, s.H], new Float64Array(g.length)],
      })),
      "GLow of the last addition only": stage((s, { g }) => {
        const stored = reference.chunkCumsumReference(s, g, {}, Math.fround);
        const low = stored.map((sum, i) => {
          const row = Math.floor(i / s.H) % s.T;
          const before = row % s.BT === 0 ? 0 : (stored[i - s.H] as number);
          return before + (g[i] as number) - sum;
        });
        return { GLow: [[s.B, s.T, s.H], low] };
      }),
    },
  },
  {
    op: chunkKkt,
    errorClass: "R",
    reference: stage((s, { k, beta, G }, round) => ({
      A: [[s.B, s.T, s.H, s.BT], reference.chunkKktReference(s, k, beta, G, round)],
    })),
    cases: cases(["k", "beta", "G"]),
  },
  {
    op: chunkInverse,
    errorClass: "R",
    dtypes: ["f32"],
    reference: stage((s, { A }) => ({ X: [[s.B, s.T, s.H, s.BT], reference.chunkInverseReference(s, A)] })),
    cases: [
      ...cases(["A"], {}, false),
      ...cases(["A"], {}, false).map((c) => ({ ...c, name: `${c.name} in place`, inPlace: { X: "A" } })),
    ],
  },
  {
    op: chunkWu,
    errorClass: "S",
    reference: stage((s, { k, v, beta, G, X }, round) => {
      const { w, u } = reference.chunkWuReference(s, k, v, beta, G, X, round);
      return { w: [[s.B, s.T, s.H, s.K], w], u: [[s.B, s.T, s.H, s.V], u] };
    }),
    cases: cases(["k", "v", "beta", "G", "X"]),
  },
  {
    op: chunkState,
    errorClass: { h: "P", vNew: "P", finalState: "P" },
    reference: stage((s, { k, w, u, G, initialState }, round) => {
      const { h, vNew, finalState } = reference.chunkStateReference(s, k, w, u, G, initialState, round);
      return {
        h: [[s.B, Math.ceil(s.T / s.BT), s.H, s.V, s.K], h],
        vNew: [[s.B, s.T, s.H, s.V], vNew],
        finalState: [[s.B, s.H, s.V, s.K], finalState],
      };
    }),
    cases: [
      ...cases(["k", "w", "u", "G", "initialState"]).map((c) => ({
        ...c,
        ask: { finalState: { dtype: "f32" as const, shape: c.inputs.initialState?.shape ?? [] } },
      })),
      ...cases(["k", "w", "u", "G", "initialState"]).map((c) => ({
        ...c,
        name: `${c.name} in place`,
        inPlace: { finalState: "initialState", vNew: "u" },
      })),
      ...cases(["k", "w", "u", "G"], {}, false),
    ],
  },
  {
    op: chunkOutput,
    errorClass: "R",
    reference: stage((s, { q, k, vNew, h, G }, round, scale) => ({
      o: [[s.B, s.T, s.H, s.V], reference.chunkOutputReference(s, q, k, vNew, h, G, { scale }, round)],
    })),
    cases: cases(["q", "k", "vNew", "h", "G"], { scale: 0.7 }),
  },
];
