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
}

export function makeCase(
  { N = 1, L, H, nope, rope, v, R, more = 0, causal, cache = "act", weights = "act", parts }: Shape,
  others: Case["options"] = {},
): Case {
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
  return {
    name: `N ${N} L ${L} H ${H} nope ${nope} of ${D} rope ${rope} v ${v} R ${R} cache ${cache} ${causal ?? ""} ${JSON.stringify(others)} ${
      parts ? `embedQ ${kindName(parts.embedQ)} unembedOut ${kindName(parts.unembedOut)}` : kindName(weights)
    }`,
    inputs: {
      q: { dtype: "act", shape: [N, L, H, D], data: normals(N, L, H, D) },
      qPe: { dtype: "act", shape: [N, L, H, rope], data: normals(N, L, H, rope) },
      latent: { dtype: "act", shape: [N, L, R], data: cached(N, L, R) },
      kPe: { dtype: "act", shape: [N, L, rope], data: cached(N, L, rope) },
      ...Object.assign({}, ...made.map(({ inputs }) => inputs)),
      lengths: { dtype: "i32", shape: [N], data: new Int32Array(N).fill(L) },
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
    "cache without the new rows": layerReference(({ latents, keys }) => ({
      latents: latents.map(() => Number.NaN),
      keys: keys.map(() => Number.NaN),
    })),
    "length of sequences without the new rows": layerReference(({ lengths }) => ({
      lengths: Array.from(lengths, () => 0),
    })),
  },
} as const satisfies Partial<Suite>;

export const suite: Suite = {
  op: mlaDecode,
  ...layerSuite,
  cases: [
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
