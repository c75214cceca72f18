import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { mlaDecode } from "../src/index.ts";
import { columnsReference, mlaCacheAppendReference } from "../src/reference.ts";
import { type DecompressedAttention, decompressedReference } from "../src/reference_attention.ts";
import { comb, TREE, type Tree, treeMask, treeOf } from "./trees.ts";
import { type Kind, kindName, makeWeight, type Read, transposed, WRONG_READS, weightOf } from "./weights.ts";

const random = new Random(29);

// A suite's caches are full of NaN, so here all rows are new; pipeline.test.ts goes on from rows that are there.
const MORE = 3; // rows of the caches behind those of the tokens

export interface Shape {
  N?: number;
  L: number;
  H: number;
  nope: number;
  rope: number;
  v: number;
  R: number;
  /** Columns of q behind those that are read. */
  more?: number;
  causal?: boolean;
  /** Dtype of the caches. */
  cache?: CaseInput["dtype"];
  /** Of kv_b; or of the parts that MLX stores. */
  weights?: Kind;
  parts?: { embedQ: Kind; unembedOut: Kind };
  tree?: Tree;
  name?: string;
  /** Changes the finished inputs. */
  edit?: (data: Record<"q" | "qPe" | "latent" | "kPe", Float64Array>) => void;
}

export function makeCase(shape: Shape, others: Case["options"] = {}): Case {
  const { N = 1, L, H, nope, rope, v, R, more = 0, causal, cache = "act", weights = "act", parts, tree } = shape;
  const D = nope + more;
  const normals = (...shape: number[]) => random.normals(shape.reduce((a, b) => a * b, 1));
  // What every dtype holds, where the cache has another one than q.
  const cached = (...shape: number[]) => normals(...shape).map((x) => (cache === "act" ? x : Math.round(x * 8) / 8));
  const made = parts
    ? [
        makeWeight(random, "embedQ", parts.embedQ, [H, R, nope], R ** -0.5),
        makeWeight(random, "unembedOut", parts.unembedOut, [H, v, R], R ** -0.5),
      ]
    : [makeWeight(random, "kvB", weights, [H * (nope + v), R], R ** -0.5)];
  const data = {
    q: normals(N, L, H, D),
    qPe: normals(N, L, H, rope),
    latent: cached(N, L, R),
    kPe: cached(N, L, rope),
  };
  shape.edit?.(data);
  return {
    name: `N ${N} L ${L} H ${H} nope ${nope} of ${D} rope ${rope} v ${v} R ${R} cache ${cache} ${causal ?? ""} ${JSON.stringify(others)} ${
      parts ? `embedQ ${kindName(parts.embedQ)} unembedOut ${kindName(parts.unembedOut)}` : kindName(weights)
    }${tree ? " tree" : ""} ${shape.name ?? ""}`,
    inputs: {
      q: { dtype: "act", shape: [N, L, H, D], data: data.q },
      qPe: { dtype: "act", shape: [N, L, H, rope], data: data.qPe },
      latent: { dtype: "act", shape: [N, L, R], data: data.latent },
      kPe: { dtype: "act", shape: [N, L, rope], data: data.kPe },
      ...Object.assign({}, ...made.map(({ inputs }) => inputs)),
      lengths: { dtype: "i32", shape: [N], data: new Int32Array(N).fill(L) },
      ...(tree ? { treeMask: treeMask(tree) } : {}),
    },
    options: {
      nope,
      softmaxScale: (nope + rope) ** -0.5,
      ...(causal === undefined ? {} : { causal }),
      ...Object.assign({}, ...made.map(({ options }) => options)),
      ...others,
    },
    ask: {
      latentCache: { dtype: cache, shape: [N, L + MORE, R] },
      kPeCache: { dtype: cache, shape: [N, L + MORE, rope] },
    },
  };
}

/** kv_b as the inputs have it, or put together from its parts. */
function headsWeight(inputs: Record<string, Reference64>, options: Record<string, unknown>, read?: Read): Reference64 {
  const kvB = weightOf(inputs, options, "kvB", read);
  if (kvB) return kvB;
  const keys = transposed(weightOf(inputs, options, "embedQ", read) as Reference64);
  const values = weightOf(inputs, options, "unembedOut", read) as Reference64;
  const [H = 1, v = 1, R = 1] = values.shape;
  const nope = (keys.shape[0] as number) / H;
  const data = Array.from({ length: H }, (_, h) => [
    ...keys.data.subarray(h * nope * R, (h + 1) * nope * R),
    ...values.data.subarray(h * v * R, (h + 1) * v * R),
  ]).flat();
  return { shape: [H * (nope + v), R], data: Float64Array.from(data) };
}

const problemOf = (
  inputs: Record<string, Reference64>,
  options: { nope?: number; softmaxScale?: number; causal?: boolean },
  read?: Read,
): DecompressedAttention => {
  const { q, qPe, latent, kPe, lengths } = inputs as Record<"q" | "qPe" | "latent" | "kPe" | "lengths", Reference64>;
  const weight = headsWeight(inputs, options, read);
  const [N, L, H, D] = q.shape as [number, number, number, number];
  const [rope, R, nope] = [qPe.shape[3] as number, latent.shape[2] as number, options.nope as number];
  const capacity = L + MORE;
  const cached = (x: Reference64, columns: number) =>
    mlaCacheAppendReference(new Float64Array(N * capacity * columns).fill(Number.NaN), x.data, new Float64Array(N), [
      N,
      L,
      columns,
    ]);
  return {
    qNope: columnsReference(q.data, D, 0, nope),
    qPe: qPe.data,
    latents: cached(latent, R),
    keys: cached(kPe, rope),
    weight: weight.data,
    lengths: lengths.data,
    sizes: { N, L, H, R, rope, capacity, nope, v: (weight.shape[0] as number) / H - nope },
    scale: options.softmaxScale as number,
    causal: options.causal ?? true,
    ...(inputs.treeMask ? { tree: treeOf(inputs.treeMask) } : {}),
  };
};
/** The op in f64, of a problem that has been changed. */
export const layerReference =
  (change: (problem: DecompressedAttention) => Partial<DecompressedAttention>, read?: Read): ReferenceFunction =>
  (inputs, options) => {
    const given = problemOf(inputs, options, read);
    const problem = { ...given, ...change(given) };
    const { N, L, H, R, rope, capacity, v } = given.sizes;
    return {
      out: { shape: [N, L, H, v], data: decompressedReference(problem) },
      latentCache: { shape: [N, capacity, R], data: problem.latents },
      kPeCache: { shape: [N, capacity, rope], data: problem.keys },
    };
  };
const swapped = ({ weight, sizes: { H, R, nope, v } }: DecompressedAttention) =>
  weight.map((_, i) => {
    const [row, head] = [Math.floor(i / R) % (nope + v), Math.floor(i / R / (nope + v)) % H];
    return weight[(head * (nope + v) + ((row + v) % (nope + v))) * R + (i % R)] as number;
  });

/** Columns i of each row of queries, of the head that `from` names. */
const ofHead = (x: Float64Array, columns: number, H: number, from: (head: number) => number) =>
  x.map((_, i) => {
    const head = Math.floor(i / columns) % H;
    return x[i + (from(head) - head) * columns] as number;
  });
const unwritten: ReferenceFunction = (...args) => {
  const given = layerReference(() => ({}))(...args);
  return { ...given, out: { ...(given.out as Reference64), data: (given.out as Reference64).data.fill(Number.NaN) } };
};

export const layerSuite = {
  errorClass: { out: "A", latentCache: "exact", kPeCache: "exact" },
  reference: layerReference(() => ({})),
  mutants: {
    ...Object.fromEntries(Object.entries(WRONG_READS).map(([name, read]) => [name, layerReference(() => ({}), read)])),
    "scale missing": layerReference(() => ({ scale: 1 })),
    "scale of the columns without position alone": layerReference(({ sizes }) => ({ scale: sizes.nope ** -0.5 })),
    "not causal": layerReference(() => ({ causal: false })),
    "always causal": layerReference(() => ({ causal: true })),
    "rotated part dropped": layerReference(({ qPe }) => ({ qPe: qPe.map(() => 0) })),
    "keys and values of the weight swapped": layerReference((problem) => ({ weight: swapped(problem) })),
    "strict mask": layerReference(() => ({ visible: (length, L, i, causal) => (causal ? length - L + i : length) })),
    "mask one row late": layerReference(() => ({
      visible: (length, L, i, causal) => (causal ? Math.min(length, length - L + i + 2) : length),
    })),
    "first row skipped": layerReference(() => ({ skip: (t, visible) => t === 0 && visible > 1 })),
    "last row skipped": layerReference(() => ({ skip: (t, visible) => t === visible - 1 && visible > 1 })),
    "head h reads the rows of h + 1": layerReference(({ weight, sizes: { H, R, nope, v } }) => {
      const size = (nope + v) * R;
      return { weight: weight.map((_, i) => weight[(i + size) % (H * size)] as number) };
    }),
    "rows of a head as many as q has columns": layerReference(({ weight, sizes: { R, nope, rope, v } }) => ({
      weight: weight.map((_, i) => {
        const [head, at] = [Math.floor(i / R / (nope + v)), i % ((nope + v) * R)];
        return weight[head * (nope + rope) * R + at] ?? 0;
      }),
    })),
    "rows of keys of all heads, then those of values": layerReference(({ weight, sizes: { H, R, nope, v } }) => ({
      weight: weight.map((_, i) => {
        const [head, row] = [Math.floor(i / R / (nope + v)), Math.floor(i / R) % (nope + v)];
        const from = row < nope ? head * nope + row : H * nope + head * v + row - nope;
        return weight[from * R + (i % R)] as number;
      }),
    })),
    "rotated queries of the first head": layerReference(({ qPe, sizes: { H, rope } }) => ({
      qPe: ofHead(qPe, rope, H, () => 0),
    })),
    "rows of the rope cache as far apart as latents": layerReference(({ keys, sizes: { R, rope } }) => ({
      keys: keys.map((_, i) => keys[Math.floor(i / rope) * R + (i % rope)] ?? 0),
    })),
    "rows of the first sequence for all": layerReference(({ latents, sizes: { N } }) => ({
      latents: latents.map((_, i) => latents[i % (latents.length / N)] as number),
    })),
    "output of the previous token": (...args) => {
      const given = layerReference(() => ({}))(...args);
      const { shape, data } = given.out as Reference64;
      const row = (shape[2] as number) * (shape[3] as number);
      return { ...given, out: { shape, data: data.map((_, i) => data[Math.max(i - row, i % row)] as number) } };
    },
    "tree mask ignored": layerReference(() => ({ tree: undefined })),
    "tree mask transposed": layerReference(({ tree }) => (tree ? { tree: (i, j) => tree(j, i) } : {})),
    "tree mask of 32 tokens": layerReference(({ tree }) => (tree ? { tree: (i, j) => tree(i, j & 31) } : {})),
    "tree mask as well as causal": layerReference(({ tree }) =>
      tree ? { visible: (length, L, i) => length - L + i + 1 } : {},
    ),
    "bits of the tree mask behind the new tokens show rows": layerReference(({ tree }) =>
      tree ? { visible: (length) => length + 1 } : {},
    ),
    "output left unwritten": unwritten,
    "cache without the new rows": layerReference(({ latents, keys }) => ({
      latents: latents.map(() => Number.NaN),
      keys: keys.map(() => Number.NaN),
    })),
    "length of sequences without the new rows": layerReference(({ lengths }) => ({
      lengths: Array.from(lengths, () => 0),
    })),
  },
} as const satisfies Partial<Suite>;

const SMALL = { nope: 16, rope: 16, v: 16, R: 64 };
const TINY = { nope: 6, rope: 4, v: 5, R: 12 };
const backwards = TREE.toReversed().map((seen) => seen.map((j) => 4 - j));
const fillRow = (x: Float64Array, columns: number, row: number, value: number) =>
  x.fill(value, row * columns, (row + 1) * columns);

/** Trees, of which all rows are new, and rows that tokens do not see. */
export const layerCases = (make: (shape: Shape, options?: Case["options"]) => Case): Case[] => [
  make({ N: 2, L: 5, H: 3, ...TINY, tree: TREE }),
  make({ L: 5, H: 8, ...TINY, tree: backwards }),
  make({ L: 5, H: 2, ...TINY, tree: TREE, causal: false }),
  ...[33, 40].map((L) => make({ L, H: 2, ...TINY, tree: comb(L) })),
  make({ L: 3, H: 2, ...TINY, tree: [[], [1], [0, 2]], name: "nothing seen by a token" }),
  make({
    ...{ L: 40, H: 2, ...TINY, tree: comb(40).map((seen) => seen.filter((j) => j % 7 !== 2)) },
    name: "rows NaN that no token sees",
    edit({ latent, kPe }) {
      for (let row = 2; row < 40; row += 7) {
        fillRow(latent, 12, row, Number.NaN);
        fillRow(kPe, 4, row, Number.NaN);
      }
    },
  }),
];

/** Scores far from those of random rows. */
export const scoreCases = (L: number, make: (shape: Shape, options?: Case["options"]) => Case): Case[] => [
  ...[0, L - 1].map((row) =>
    make(
      {
        ...{ L, H: 3, ...TINY, name: `row ${row} scores far above the rest` },
        edit({ qPe, kPe }) {
          for (let i = 0; i < qPe.length; i++) qPe[i] = 50 + (qPe[i] as number);
          fillRow(kPe, 4, row, 50);
        },
      },
      { softmaxScale: 1 },
    ),
  ),
  make({
    ...{ L, H: 3, ...TINY, name: "all scores equal" },
    edit: ({ latent, kPe }) => {
      latent.fill(1);
      kPe.fill(1);
    },
  }),
];

export const suite: Suite = {
  op: mlaDecode,
  ...layerSuite,
  cases: [
    ...layerCases(makeCase),
    ...[3, 20].flatMap((L) => scoreCases(L, makeCase)),
    // Tokens and heads.
    ...[2, 7, 8, 9, 16, 17, 31, 33].map((L) => makeCase({ L, H: 2, ...TINY })),
    makeCase({ L: 200, H: 1, ...TINY }),
    ...[1, 3].map((L) => makeCase({ L, H: 128, ...SMALL })),
    ...[1, 8, 9].map((N) => makeCase({ N, L: 1, H: 3, ...TINY })),
    // Dtypes of the caches and of weights.
    ...(["f32", "f16", "bf16"] as const).flatMap((cache, i) => [
      makeCase({ L: 3, H: 2, ...SMALL, cache, weights: (["f16", "bf16", "f32"] as const)[i] as Kind }),
      makeCase({ L: 16, H: 2, ...TINY, cache }),
      makeCase({ L: 2, H: 2, ...SMALL, cache, weights: { bits: i === 1 ? 8 : 4, groupSize: 64 } }),
      makeCase({ L: 12, H: 2, ...SMALL, cache, weights: { bits: i === 1 ? 4 : 8, groupSize: 32 } }),
    ]),
    makeCase({ L: 1, H: 16, nope: 128, rope: 64, v: 128, R: 512, more: 64 }),
    makeCase({ L: 6, H: 8, nope: 64, rope: 32, v: 64, R: 128, more: 32 }),
    makeCase({ L: 70, H: 2, nope: 64, rope: 32, v: 64, R: 128 }),
    makeCase({ N: 3, L: 2, H: 3, nope: 16, rope: 16, v: 16, R: 64 }),
    makeCase({ N: 2, L: 9, H: 3, nope: 10, rope: 6, v: 14, R: 40, more: 5 }),
    makeCase({ L: 3, H: 1, nope: 192, rope: 64, v: 256, R: 512 }),
    makeCase({ N: 2, L: 5, H: 4, nope: 7, rope: 2, v: 5, R: 20, causal: false }),
    makeCase({ N: 2, L: 40, H: 1, nope: 7, rope: 2, v: 5, R: 20, causal: false }),
    ...([4, 8] as const).flatMap((bits) => [
      makeCase({ L: 1, H: 16, nope: 128, rope: 64, v: 128, R: 512, more: 64, weights: { bits, groupSize: 64 } }),
      makeCase({ N: 2, L: 3, H: 3, nope: 64, rope: 32, v: 64, R: 128, weights: { bits, groupSize: 32 } }),
      makeCase({ L: 20, H: 2, nope: 64, rope: 32, v: 64, R: 128, weights: { bits, groupSize: 128, scales: "f32" } }),
      ...[2, 17].map((L) =>
        makeCase({
          ...{ L, H: 3, nope: 32, rope: 16, v: 16, R: 64 },
          parts: { embedQ: { bits, groupSize: 32 }, unembedOut: { bits, groupSize: 64, scales: "f16" } },
        }),
      ),
    ]),
    makeCase({ L: 2, H: 3, nope: 10, rope: 6, v: 14, R: 40, parts: { embedQ: "act", unembedOut: "act" } }),
    makeCase({
      L: 9,
      H: 2,
      nope: 10,
      rope: 6,
      v: 14,
      R: 64,
      parts: { embedQ: "f32", unembedOut: { bits: 4, groupSize: 32 } },
    }),
  ],
};
