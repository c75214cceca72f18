import type { FloatDtype } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { sample } from "../src/index.ts";
import { argmaxReference, philox, sampleReference, samplingSet } from "../src/reference.ts";

const random = new Random(7);

export interface Options {
  temperature: number;
  topK: number;
  topP: number;
  seed: number;
}

function makeCase(
  name: string,
  rows: number,
  dim: number,
  data: ArrayLike<number>,
  options: Partial<Options> = {},
  { step = 3, dtypes }: { step?: number; dtypes?: FloatDtype[] } = {},
): Case {
  return {
    name: `${name} [${rows}, ${dim}] step ${step} ${JSON.stringify(options)}`,
    inputs: {
      logits: { dtype: "act", shape: [rows, dim], data },
      step: { dtype: "u32", shape: [1], data: [step] },
    },
    options: { temperature: 1, seed: 42, ...options },
    ...(dtypes ? { dtypes } : {}),
  };
}

const normal = (rows: number, dim: number, options: Partial<Options> = {}, scale = 2, more: { step?: number } = {}) =>
  makeCase(`normal ×${scale}`, rows, dim, random.normals(rows * dim, scale), options, more);

const reference =
  (formula: (logits: Float64Array, dim: number, step: number, options: Options) => Float64Array): ReferenceFunction =>
  ({ logits, step }: Record<string, Reference64>, options: Partial<Options>) => {
    const { shape, data } = logits as Reference64;
    return {
      ids: {
        shape: [shape[0] as number],
        data: formula(data, shape[1] as number, (step as Reference64).data[0] as number, {
          temperature: 1,
          topK: 0,
          topP: 1,
          seed: 0,
          ...options,
        }),
      },
    };
  };
const changed = (change: (o: Options) => Partial<Options>) =>
  reference((logits, dim, step, options) => sampleReference(logits, dim, step, { ...options, ...change(options) }));
/** Each row by another rule from the uniform number of the row. */
const drawn = (rule: (row: Float64Array, u: number, options: Options) => number) =>
  reference((logits, dim, step, options) =>
    argmaxReference(logits, dim).map((best, row) => {
      if (options.temperature === 0) return best;
      const [low, high] = philox(options.seed, step, row);
      return rule(logits.subarray(row * dim, (row + 1) * dim), high / 2 ** 32 + low / 2 ** 64, options);
    }),
  );
const pick = ({ ids, probabilities }: ReturnType<typeof samplingSet>, u: number) => {
  let passed = 0;
  for (const [i, id] of ids.entries()) {
    passed += probabilities[i] as number;
    if (passed > u) return id;
  }
  return ids.at(-1) ?? 0;
};
/** top-p taken before top-k, or its shares not taken anew after top-k. */
const shareOfAll = (row: Float64Array, u: number, { temperature, topK, topP }: Options) => {
  const nucleus = new Set(samplingSet(row, temperature, 0, topP).ids);
  return pick(
    samplingSet(
      row.map((v, i) => (nucleus.has(i) ? v : Number.NEGATIVE_INFINITY)),
      temperature,
      topK,
      1,
    ),
    u,
  );
};

const inf = Number.POSITIVE_INFINITY;
const row = (dim: number, fill: number, ...at: [number, number][]) => {
  const out = new Float64Array(dim).fill(fill);
  for (const [i, v] of at) out[i] = v;
  return out;
};
const repeated = (rows: number, one: Float64Array) =>
  Float64Array.from({ length: rows * one.length }, (_, i) => one[i % one.length] as number);

export const suite: Suite = {
  op: sample,
  errorClass: "exact",
  reference: reference(sampleReference),
  cases: [
    ...[1, 2, 3, 15, 16, 17, 31, 255, 256, 257, 511, 513, 1000].map((dim) => normal(24, dim)),
    normal(4, 5003),
    normal(1, 20000),
    ...[0, 1, 2, 4294967295].map((step) => normal(64, 100, {}, 1, { step })),
    ...[0, 1, 4294967295].map((seed) => normal(64, 100, { seed }, 1)),
    ...[0.1, 0.7, 1.3, 5].map((temperature) => normal(32, 300, { temperature })),
    normal(32, 300, { temperature: 1e-30 }),
    normal(32, 300, { temperature: 1e30 }),
    normal(16, 300, { temperature: 0 }),
    normal(16, 300, { temperature: 0, topK: 5, topP: 0.5 }),
    ...[1, 2, 3, 10, 50, 299, 300, 301, 100000].map((topK) => normal(32, 300, { topK }, 1)),
    ...[1, 7, 40, 200].map((topK) => normal(6, 3000, { topK }, 1)),
    ...[1e-9, 0.1, 0.5, 0.9, 0.99].map((topP) => normal(32, 300, { topP })),
    ...[0.3, 0.95].map((topP) => normal(6, 3000, { topP })),
    ...[0.3, 0.8, 0.95].map((topP) => normal(24, 1000, { topK: 40, topP, temperature: 0.8 }, 1)),
    // Logits that are few different numbers: ties at both thresholds.
    ...[3, 20, 100].map((topK) => makeCase("ties", 24, 600, random.integers(24 * 600, 5), { topK })),
    ...[0.2, 0.5, 0.8].map((topP) => makeCase("ties", 24, 600, random.integers(24 * 600, 5), { topP })),
    makeCase("ties", 24, 600, random.integers(24 * 600, 3), { topK: 150, topP: 0.6 }),
    makeCase("all equal", 24, 700, row(24 * 700, 1.5), { topK: 10, topP: 0.55 }),
    makeCase("negative", 24, 400, random.uniforms(24 * 400, -30, -26), { topK: 30 }),
    // Far apart and special logits.
    makeCase("one stands out", 8, 600, repeated(8, row(600, -40, [411, 60])), { topP: 0.9 }),
    makeCase("huge", 16, 40, random.uniforms(16 * 40, 3e4, 6e4), { temperature: 1e4 }),
    makeCase("−∞ left out", 32, 300, repeated(32, row(300, -inf, [7, 1], [150, 1.5], [299, 1.2])), {
      topK: 50,
      topP: 0.99,
    }),
    // One more than may be drawn.
    makeCase("−∞ left out", 32, 300, repeated(32, row(300, -inf, [7, 1], [150, 1.5], [299, 1.2])), { topK: 4 }),
    makeCase("NaN left out", 32, 300, repeated(32, row(300, Number.NaN, [7, 1], [150, 1.5], [280, 1.2])), {
      topP: 0.99,
    }),
    makeCase("+∞ takes all", 32, 300, repeated(32, row(300, 4, [7, inf], [150, 1.5], [280, inf])), { topP: 0.99 }),
    makeCase("all −∞", 2, 300, row(600, -inf), { topK: 5 }),
    makeCase("all NaN", 2, 300, row(600, Number.NaN)),
    makeCase("NaN and −∞", 1, 600, row(600, Number.NaN, [555, -inf])),
    // Ids of 17 bits.
    ...[{}, { topK: 50, topP: 0.9 }].map((options) => normal(1, 70001, options)),
    makeCase("ties", 1, 70001, random.integers(70001, 3), { topK: 20000, topP: 0.9 }),
  ],
  mutants: {
    "largest logit": reference((logits, dim) => argmaxReference(logits, dim)),
    "temperature ignored": changed(({ temperature }) => ({ temperature: temperature === 0 ? 0 : 1 })),
    "multiplied by the temperature": changed(({ temperature }) => ({
      temperature: temperature === 0 ? 0 : 1 / temperature,
    })),
    "temperature 0 as 1": changed(({ temperature }) => ({ temperature: temperature || 1 })),
    "seed ignored": changed(() => ({ seed: 0 })),
    "seed off by one": changed(({ seed }) => ({ seed: (seed + 1) % 2 ** 32 })),
    "step ignored": reference((logits, dim, _, options) => sampleReference(logits, dim, 0, options)),
    "same number for every row": reference((logits, dim, step, options) =>
      Float64Array.from(
        { length: logits.length / dim },
        (_, r) => sampleReference(logits.subarray(r * dim, (r + 1) * dim), dim, step, options)[0] as number,
      ),
    ),
    "top-k ignored": changed(() => ({ topK: 0 })),
    "top-k one short": changed(({ topK }) => ({ topK: topK > 1 ? topK - 1 : topK })),
    "top-k one over": changed(({ topK }) => ({ topK: topK > 0 ? topK + 1 : 0 })),
    "top-p ignored": changed(() => ({ topP: 1 })),
    "top-p without the one that crosses": drawn((logits, u, { temperature, topK, topP }) => {
      const all = samplingSet(logits, temperature, topK, 1);
      const order = all.ids
        .map((id, i) => ({ id, p: all.probabilities[i] as number }))
        .sort((a, b) => b.p - a.p || a.id - b.id);
      let reached = 0;
      const kept = order.filter(({ p }, i) => {
        reached += p;
        return i === 0 || topP === 1 || reached < topP;
      });
      kept.sort((a, b) => a.id - b.id);
      const total = kept.reduce((sum, { p }) => sum + p, 0);
      return pick({ ids: kept.map(({ id }) => id), probabilities: kept.map(({ p }) => p / total) }, u);
    }),
    "top-p before top-k": drawn(shareOfAll),
    "not normalized after the cuts": drawn((logits, u, { temperature, topK, topP }) => {
      const all = samplingSet(logits, temperature, 0, 1);
      const kept = new Set(samplingSet(logits, temperature, topK, topP).ids);
      return pick(
        { ids: all.ids, probabilities: all.probabilities.map((p, i) => (kept.has(all.ids[i] as number) ? p : 0)) },
        u,
      );
    }),
    "ties to the higher id": drawn((logits, u, { temperature, topK, topP }) => {
      const turned = samplingSet(logits.toReversed(), temperature, topK, topP);
      const ids = turned.ids.map((id) => logits.length - 1 - id).reverse();
      return pick({ ids, probabilities: turned.probabilities.toReversed() }, u);
    }),
    "all ties kept": drawn((logits, u, { temperature, topK, topP }) => {
      const lowest = samplingSet(logits, temperature, topK, topP).ids.reduce(
        (a, id) => Math.min(a, logits[id] as number),
        inf,
      );
      return pick(
        samplingSet(
          logits.map((v) => (v >= lowest ? v : -inf)),
          temperature,
          0,
          1,
        ),
        u,
      );
    }),
    "drawn from the other end": drawn((logits, u, { temperature, topK, topP }) =>
      pick(samplingSet(logits, temperature, topK, topP), 1 - u),
    ),
    "in the order of probability": drawn((logits, u, { temperature, topK, topP }) => {
      const { ids, probabilities } = samplingSet(logits, temperature, topK, topP);
      const order = ids.map((id, i) => ({ id, p: probabilities[i] as number })).sort((a, b) => b.p - a.p);
      return pick({ ids: order.map(({ id }) => id), probabilities: order.map(({ p }) => p) }, u);
    }),
    "probability of the square": drawn((logits, u, { temperature, topK, topP }) =>
      pick(samplingSet(logits, temperature / 2, topK, topP), u),
    ),
    "last block skipped": drawn((logits, u, { temperature, topK, topP }) =>
      pick(
        samplingSet(logits.subarray(0, Math.max(1, logits.length - (logits.length % 256))), temperature, topK, topP),
        u,
      ),
    ),
    "−∞ may be drawn": drawn((logits, u, { temperature, topK, topP }) =>
      pick(
        samplingSet(
          logits.map((v) => (v === -inf ? 1 : v)),
          temperature,
          topK,
          topP,
        ),
        u,
      ),
    ),
  },
};
