import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { mlaQPrime } from "../src/index.ts";
import { foldedQueryReference } from "../src/reference.ts";
import { type Kind, kindName, makeWeight, type Read, SCALES, transposed, WRONG_READS, weightOf } from "./weights.ts";

const random = new Random(25);

interface Shape {
  N?: number;
  L?: number;
  H?: number;
  nope: number;
  v: number;
  R: number;
  /** Columns of q behind those that are read. */
  more?: number;
  weight?: Kind;
  /** As MLX stores it, without rows of values. */
  embedQ?: boolean;
}

function makeCase({ N = 1, L = 1, H = 1, nope, v, R, more = 0, weight = "act", embedQ = false }: Shape): Case {
  const D = nope + more;
  const name = embedQ ? "embedQ" : "kvB";
  const q = { dtype: "act", shape: [N, L, H, D], data: random.normals(N * L * H * D) } as const;
  const made = makeWeight(random, name, weight, embedQ ? [H, R, nope] : [H * (nope + v), R]);
  return {
    name: `N ${N} L ${L} H ${H} nope ${nope} of ${D} v ${v} R ${R} ${name} ${kindName(weight)}`,
    inputs: { q, ...made.inputs },
    options: { nope, ...made.options },
  };
}

type Sizes = Parameters<typeof foldedQueryReference>[2];
interface Problem {
  q: Float64Array;
  weight: Float64Array;
  sizes: Sizes;
}
const right = ({ q, weight, sizes }: Problem) => foldedQueryReference(q, weight, sizes);
const reference =
  (formula: (problem: Problem) => Float64Array, read?: Read): ReferenceFunction =>
  (inputs, options: { nope?: number }) => {
    const q = inputs.q as Reference64;
    const embedQ = weightOf(inputs, options, "embedQ", read);
    const weight = (embedQ ? transposed(embedQ) : weightOf(inputs, options, "kvB", read)) as Reference64;
    const [N, L, H, D] = q.shape as [number, number, number, number];
    const [rows, R] = weight.shape as [number, number];
    const sizes = { T: N * L, H, D, P: rows / H, R, first: 0, count: options.nope as number };
    return { out: { shape: [N, L, H, R], data: formula({ q: q.data, weight: weight.data, sizes }) } };
  };
const changed = (change: (problem: Problem) => Partial<Problem>) =>
  reference((problem) => right({ ...problem, ...change(problem) }));
const resized = (change: (sizes: Sizes) => Partial<Sizes>) =>
  changed(({ sizes }) => ({ sizes: { ...sizes, ...change(sizes) } }));
/** The weight with element (row, column) of each head from another place. */
const moved = (from: (sizes: Sizes, head: number, row: number) => number) =>
  changed(({ weight, sizes }) => {
    const { P, R } = sizes;
    return {
      weight: weight.map((_, i) => {
        const row = Math.floor(i / R);
        return weight[from(sizes, Math.floor(row / P), row % P) * R + (i % R)] as number;
      }),
    };
  });

/** Weights as MLX stores them, taken for something else. */
const embedQRead =
  (change: (embedQ: Reference64) => Reference64): ReferenceFunction =>
  (inputs, options, dtype) => {
    const embedQ = weightOf(inputs, options, "embedQ");
    return embedQ
      ? reference(right)({ q: inputs.q as Reference64, embedQ: change(embedQ) }, { nope: options.nope } as never, dtype)
      : reference(right)(inputs, options, dtype);
  };

/** Matrices whose columns fit the groups of `weight`: kv_b, and MLX's part. */
const QUANTIZED: Omit<Shape, "N" | "L">[] = [
  { H: 3, nope: 5, v: 3, R: 32, weight: { bits: 4, groupSize: 32 } },
  { H: 2, nope: 20, v: 9, R: 96, more: 2, weight: { bits: 8, groupSize: 32 } },
  { H: 2, nope: 12, v: 7, R: 192, weight: { bits: 4, groupSize: 64 } },
  { H: 2, nope: 33, v: 4, R: 64, more: 5, weight: { bits: 8, groupSize: 64 } },
  { H: 1, nope: 3, v: 5, R: 384, weight: { bits: 4, groupSize: 128 } },
  { H: 2, nope: 17, v: 16, R: 128, weight: { bits: 8, groupSize: 128 } },
  ...SCALES.map((weight) => ({ H: 2, nope: 6, v: 6, R: 160, weight })),
  { H: 2, nope: 6, v: 6, R: 288, weight: { bits: 4, groupSize: 32, scales: "bf16" } },
  { H: 2, nope: 7, v: 2, R: 224, weight: { bits: 4, groupSize: 32 } },
];
const asEmbedQ = ({ nope: R, R: nope, ...shape }: Omit<Shape, "N" | "L">) => ({ ...shape, nope, R, embedQ: true });

const TOKENS: [N: number, L: number][] = [
  [1, 1],
  [1, 3],
  [2, 4],
  [3, 3],
  [1, 70],
];

export const suite: Suite = {
  op: mlaQPrime,
  errorClass: "R",
  reference: reference(right),
  cases: [
    ...TOKENS.flatMap(([N, L]) => [
      makeCase({ N, L, H: 2, nope: 64, v: 64, R: 128, more: 32 }),
      makeCase({ N, L, H: 3, nope: 16, v: 24, R: 64 }),
      ...[1, 2, 3, 5, 31, 33, 129, 140].map((nope) => makeCase({ N, L, H: 2, nope, v: 3, R: 20, more: 2 })),
      ...[1, 2, 3, 5, 15, 17, 33, 63, 65, 127, 130, 260].map((R) =>
        makeCase({ N, L, H: 2, nope: 6, v: 5, R, more: 1 }),
      ),
      ...(["f32", "f16", "bf16"] as const).map((weight) => makeCase({ N, L, H: 2, nope: 21, v: 10, R: 70, weight })),
    ]),
    makeCase({ H: 16, nope: 128, v: 128, R: 512, more: 64 }),
    makeCase({ L: 5, H: 2, nope: 192, v: 256, R: 512, more: 64 }),
    makeCase({ L: 130, H: 1, nope: 128, v: 128, R: 512, more: 64 }),
    makeCase({ L: 600, H: 1, nope: 8, v: 8, R: 16 }),
    ...[6, 7, 8, 9, 10].map((L) => makeCase({ L, H: 3, nope: 10, v: 2, R: 40 })),
    makeCase({ L: 2, H: 128, nope: 16, v: 16, R: 16 }),
    ...TOKENS.flatMap(([N, L]) => [
      ...[1, 3, 33, 140].map((nope) => makeCase({ N, L, H: 2, nope, v: 1, R: 20, more: 3, embedQ: true })),
      ...(["f32", "f16", "bf16"] as const).map((weight) =>
        makeCase({ N, L, H: 3, nope: 21, v: 1, R: 70, weight, embedQ: true }),
      ),
      ...QUANTIZED.flatMap((shape) => [makeCase({ N, L, ...shape }), makeCase({ N, L, ...asEmbedQ(shape) })]),
    ]),
    ...([4, 8] as const).flatMap((bits) => [
      makeCase({ H: 16, nope: 128, v: 128, R: 512, more: 64, weight: { bits, groupSize: 64 } }),
      makeCase({ L: 5, H: 2, nope: 192, v: 1, R: 512, embedQ: true, weight: { bits, groupSize: 64 } }),
      makeCase({ L: 130, H: 1, nope: 128, v: 128, R: 512, weight: { bits, groupSize: 64 } }),
      makeCase({ L: 130, H: 1, nope: 192, v: 1, R: 130, embedQ: true, weight: { bits, groupSize: 64 } }),
    ]),
    makeCase({ L: 9, H: 2, nope: 192, v: 1, R: 512, embedQ: true }),
  ],
  mutants: {
    ...Object.fromEntries(Object.entries(WRONG_READS).map(([name, read]) => [name, reference(right, read)])),
    "embedQ taken for [H, nope, R]": embedQRead(({ shape, data }) => {
      const [, R = 1, nope = 1] = shape;
      const from = (i: number) => i - (i % (R * nope)) + (i % nope) * R + (Math.floor(i / nope) % R);
      return { shape, data: data.map((_, i) => data[from(i)] as number) };
    }),
    "values for keys": resized(({ P, count }) => ({ first: P - count })),
    "rows of the next head": moved(({ H, P }, head, row) => ((head + 1) % H) * P + row),
    "rows of head 0 for all": moved((_, __, row) => row),
    "all keys, then all values": moved(({ H, P, count }, head, row) =>
      row < count ? head * count + row : H * count + head * (P - count) + row - count,
    ),
    "first row skipped": resized(({ count }) => ({ count: Math.max(1, count - 1), first: count > 1 ? 1 : 0 })),
    "last row skipped": resized(({ count }) => ({ count: count - 1 })),
    "columns of q as if none were left out": resized(({ count }) => ({ D: count })),
    "last column skipped": reference((problem) =>
      right(problem).map((v, i) => (i % problem.sizes.R === problem.sizes.R - 1 ? 0 : v)),
    ),
    "last token skipped": reference((problem) =>
      right(problem).map((v, i, all) => (i < all.length - problem.sizes.H * problem.sizes.R ? v : Number.NaN)),
    ),
    "first token for all": changed(({ q, sizes: { H, D } }) => ({ q: q.map((_, i) => q[i % (H * D)] as number) })),
    "output left unwritten": reference((problem) => right(problem).fill(Number.NaN)),
  },
};
