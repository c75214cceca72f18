import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { moeRoute } from "../src/index.ts";
import { bestFirst, type RouteOptions, routeReference } from "../src/reference.ts";

const random = new Random(11);

type Logits = ArrayLike<number> | "normal" | "ties";

interface Setting extends RouteOptions {
  N?: number;
  E: number;
  logits?: Logits;
  bias?: ArrayLike<number> | "normal";
}

const dataOf = (what: Logits, count: number) =>
  what === "normal" ? random.normals(count) : what === "ties" ? random.integers(count, 3) : what;

const routeCase = (name: string, { N = 7, E, logits = "normal", bias, ...options }: Setting): Case => ({
  name: `${name} [${N}, ${E}] ${JSON.stringify(options)}${bias ? " bias" : ""}`,
  inputs: {
    logits: { dtype: "act", shape: [N, E], data: dataOf(logits, N * E) },
    ...(bias ? { bias: { dtype: "f32" as const, shape: [E], data: dataOf(bias, E) } } : {}),
  },
  options,
});

const DEEPSEEK = { score: "sigmoid", normalize: true, scale: 2.5, groups: 8, topGroups: 4, topK: 8 } as const;
const QWEN = { score: "softmax", normalize: true, topK: 8 } as const;

type Row = (
  logits: Float64Array,
  bias: Float64Array | undefined,
  options: RouteOptions,
) => { indices: number[]; weights: number[] };

const rows =
  (route: Row): ReferenceFunction =>
  ({ logits, bias }: Record<string, Reference64>, options) => {
    const [N = 0, E = 0] = (logits as Reference64).shape;
    const given = options as unknown as RouteOptions;
    const all = Array.from({ length: N }, (_, n) =>
      route((logits as Reference64).data.subarray(n * E, (n + 1) * E), bias?.data, given),
    );
    const shape = [N, given.topK];
    return {
      indices: { shape, data: Float64Array.from(all.flatMap(({ indices }) => indices)) },
      weights: { shape, data: Float64Array.from(all.flatMap(({ weights }) => weights)) },
    };
  };

/** A row whose entries are `fill` but for some. */
const row = (E: number, fill: number, ...at: [number, number][]) => {
  const data = new Float64Array(E).fill(fill);
  for (const [e, value] of at) data[e] = value;
  return data;
};

/** The right indices with other weights. */
const weighted = (weights: (chosen: number[], options: RouteOptions) => number[]): ReferenceFunction =>
  rows((logits, bias, options) => {
    const { indices } = routeReference(logits, bias, options);
    const { weights: scores } = routeReference(logits, bias, { ...options, normalize: false, scale: 1 });
    return { indices, weights: weights(scores, options) };
  });
const total = (values: readonly number[]) => values.reduce((a, b) => a + b, 0);

const suite: Suite = {
  op: moeRoute,
  errorClass: { indices: "exact", weights: "R" },
  reference: rows(routeReference),
  cases: [
    ...[1, 2, 8, 60, 64, 128, 256, 512].map((E, i) =>
      routeCase("softmax", {
        E,
        N: [1, 2, 7, 64][i % 4] as number,
        score: "softmax",
        topK: Math.min(E, [1, 2, 6, 8, 10][i % 5] as number),
        normalize: i % 2 === 0,
      }),
    ),
    ...[1, 2, 8, 60, 64, 128, 256, 512].map((E, i) =>
      routeCase("sigmoid", {
        E,
        N: [64, 1, 2, 7][i % 4] as number,
        score: "sigmoid",
        topK: Math.min(E, [10, 8, 6, 2, 1][i % 5] as number),
        normalize: i % 2 === 1,
        scale: 1.5,
        bias: "normal",
      }),
    ),
    routeCase("many tokens", { ...QWEN, N: 257, E: 60 }),
    routeCase("DeepSeek-V3", { ...DEEPSEEK, N: 7, E: 256, bias: "normal" }),
    routeCase("DeepSeek-V3 without bias", { ...DEEPSEEK, N: 64, E: 64 }),
    routeCase("DeepSeek-V2", {
      score: "softmax",
      groups: 8,
      topGroups: 3,
      groupScore: "max",
      topK: 6,
      scale: 16,
      E: 160,
    }),
    routeCase("groups of one", { ...DEEPSEEK, groups: 16, topGroups: 9, E: 16, bias: "normal" }),
    routeCase("all experts of the kept groups", { ...DEEPSEEK, groups: 4, topGroups: 2, E: 16, bias: "normal" }),
    routeCase("two good ones against one best", {
      score: "sigmoid",
      topK: 2,
      groups: 2,
      topGroups: 1,
      N: 1,
      E: 4,
      logits: [3, -4, 1, 1],
    }),
    routeCase("choices of the kept groups below 0", {
      score: "sigmoid",
      topK: 3,
      groups: 2,
      topGroups: 1,
      N: 1,
      E: 6,
      logits: [1, 0.5, 0, -1, -2, -3],
      bias: [-5, -5, -5, -6, -6, -6],
    }),
    routeCase("all experts", { score: "softmax", topK: 60, E: 60 }),
    routeCase("ties everywhere", { ...QWEN, E: 128, logits: "ties" }),
    routeCase("equal logits", { ...DEEPSEEK, N: 2, E: 64, logits: new Float64Array(128) }),
    routeCase("ties of groups", { ...DEEPSEEK, E: 64, logits: "ties" }),
    routeCase("logits of ±1e4", { ...QWEN, N: 1, E: 64, logits: row(64, -1e4, [3, 1e4], [40, 9999], [41, 1e4]) }),
    routeCase("saturated", {
      ...DEEPSEEK,
      N: 1,
      E: 64,
      logits: row(64, 1e4, [9, -1e4]),
      bias: row(64, 0.5, [50, 0.75]),
    }),
    routeCase("one finite logit", {
      ...QWEN,
      N: 1,
      E: 32,
      logits: row(32, Number.NEGATIVE_INFINITY, [20, 1], [21, 0.5]),
    }),
    routeCase("nothing but −∞", { ...QWEN, N: 1, E: 40, logits: row(40, Number.NEGATIVE_INFINITY) }),
    routeCase("+∞", { ...QWEN, N: 1, E: 40, logits: row(40, 1, [30, Number.POSITIVE_INFINITY]) }),
    routeCase("NaN in one row of two", { ...QWEN, N: 2, E: 40, logits: row(80, 1, [33, Number.NaN], [70, 2]) }),
    routeCase("NaN", { ...DEEPSEEK, N: 1, E: 64, logits: row(64, 1, [40, Number.NaN]), bias: "normal" }),
    routeCase("biases of ±∞", {
      ...DEEPSEEK,
      topK: 4,
      N: 1,
      E: 64,
      bias: row(64, Number.NEGATIVE_INFINITY, [2, Number.POSITIVE_INFINITY], [9, 1], [17, 3], [25, 2], [33, 0]),
    }),
  ],
  mutants: {
    "weights of biased scores": rows((logits, bias, options) => {
      const { indices } = routeReference(logits, bias, options);
      const biased = indices.map((e) => 1 / (1 + Math.exp(-(logits[e] as number))) + (bias?.[e] ?? 0));
      const divisor = options.normalize ? total(biased) : 1;
      return { indices, weights: biased.map((w) => (w / divisor) * (options.scale ?? 1)) };
    }),
    "bias ignored": rows((logits, _, options) => routeReference(logits, undefined, options)),
    "groups by their best alone": rows((logits, bias, options) =>
      routeReference(logits, bias, { ...options, groupScore: "max" }),
    ),
    "groups by their two best, where the best counts": rows((logits, bias, options) =>
      routeReference(logits, bias, { ...options, groupScore: "top2" }),
    ),
    "groups ignored": rows((logits, bias, options) =>
      routeReference(logits, bias, { ...options, groups: 1, topGroups: 1 }),
    ),
    "0 for experts of dropped groups": rows((logits, bias, options) => {
      const { groups = 1, topK } = options;
      if (groups === 1 || options.score === "softmax") return routeReference(logits, bias, options);
      const size = logits.length / groups;
      const all = routeReference(logits, bias, { ...options, topK: size * (options.topGroups ?? 1) }).indices;
      const kept = new Set(all.map((e) => Math.floor(e / size)));
      const choices = logits.map((x, e) =>
        kept.has(Math.floor(e / size)) ? 1 / (1 + Math.exp(-x)) + (bias?.[e] ?? 0) : 0,
      );
      return { indices: bestFirst(choices).slice(0, topK), weights: routeReference(logits, bias, options).weights };
    }),
    "softmax over the chosen": rows((logits, bias, options) => {
      const { indices, weights } = routeReference(logits, bias, options);
      return options.score === "softmax"
        ? { indices, weights: weights.map((w) => w / total(weights)) }
        : { indices, weights };
    }),
    "not normalized": weighted((chosen, { scale = 1 }) => chosen.map((w) => w * scale)),
    "normalized before the choice": rows((logits, bias, options) => {
      const one = { ...options, normalize: false };
      const { indices, weights } = routeReference(logits, bias, one);
      const all = routeReference(logits, bias, { ...one, groups: 1, topGroups: 1, topK: logits.length, scale: 1 });
      return { indices, weights: options.normalize ? weights.map((w) => w / total(all.weights)) : weights };
    }),
    "scale before normalizing": weighted((chosen, { scale = 1, normalize }) =>
      chosen.map((w) => (normalize ? w / total(chosen) : w * scale)),
    ),
    "no scale": weighted((chosen, { normalize }) => chosen.map((w) => (normalize ? w / total(chosen) : w))),
    "the guard of the sum multiplied": weighted((chosen, { scale = 1, normalize }) =>
      chosen.map((w) => (normalize ? (w / (total(chosen) * 1e-20)) * scale : w * scale)),
    ),
    "of equal scores the last": rows((logits, bias, options) => {
      const last = logits.length - 1;
      const { indices, weights } = routeReference(logits.slice().reverse(), bias?.slice().reverse(), options);
      return { indices: indices.map((e) => last - e), weights };
    }),
    ascending: rows((logits, bias, options) => {
      const { indices, weights } = routeReference(logits, bias, options);
      return { indices: indices.reverse(), weights: weights.reverse() };
    }),
    "numbers where NaN was": rows((logits, bias, options) =>
      routeReference(
        logits.map((x) => (Number.isNaN(x) ? -1e4 : x)),
        bias,
        options,
      ),
    ),
  },
};

export const suites: readonly Suite[] = [suite];
