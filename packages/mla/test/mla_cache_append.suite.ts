import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { mlaCacheAppend } from "../src/index.ts";
import { mlaCacheAppendReference } from "../src/reference.ts";

const random = new Random(23);

interface Shape {
  L: number;
  R: number;
  rope: number;
  capacity: number;
  start: readonly number[];
  cache?: CaseInput["dtype"];
  data?: (n: number) => ArrayLike<number>;
}

function makeCase({ L, R, rope, capacity, start, cache = "act", data = (n) => random.normals(n) }: Shape): Case {
  const N = start.length;
  return {
    name: `L ${L} R ${R} rope ${rope} capacity ${capacity} start ${start} cache ${cache}`,
    inputs: {
      latent: { dtype: "act", shape: [N, L, R], data: data(N * L * R) },
      kPe: { dtype: "act", shape: [N, L, rope], data: data(N * L * rope) },
      start: { dtype: "i32", shape: [N], data: start },
    },
    options: {},
    ask: {
      latentCache: { dtype: cache, shape: [N, capacity, R] },
      kPeCache: { dtype: cache, shape: [N, capacity, rope] },
    },
  };
}

const SPECIAL = [
  0,
  -0,
  1e-39,
  -1e-39,
  6e-8,
  65519,
  65520,
  3.4e38,
  Number.NaN,
  Number.POSITIVE_INFINITY,
  1.00390625,
  -1,
];
const SHAPES: Shape[] = [
  { L: 1, R: 512, rope: 64, capacity: 9, start: [0] },
  { L: 1, R: 5, rope: 2, capacity: 1, start: [0] },
  { L: 3, R: 33, rope: 6, capacity: 8, start: [5, 0, 2] },
  { L: 8, R: 128, rope: 32, capacity: 8, start: [0, 0] },
  { L: 2, R: 1101, rope: 30, capacity: 3, start: [1] },
  { L: 1, R: 3, rope: 700, capacity: 2, start: [1] },
  { L: 1, R: 6, rope: 4, capacity: 70, start: Array.from({ length: 70 }, (_, n) => n) },
  ...(["f32", "f16", "bf16"] as const).flatMap((cache): Shape[] => [
    { L: 5, R: 36, rope: 10, capacity: 12, start: [7, 1], cache },
    {
      L: 2,
      R: 50,
      rope: 14,
      capacity: 4,
      start: [1],
      cache,
      data: (n) => Float64Array.from({ length: n }, (_, i) => SPECIAL[i % SPECIAL.length] as number),
    },
  ]),
];
// References see tensors only, and the capacity is that of an output.
const key = (L: number, R: number, start: Iterable<number>) => JSON.stringify([L, R, ...start]);
const capacities = new Map(SHAPES.map(({ L, R, start, capacity }) => [key(L, R, start), capacity]));

interface Append {
  latent: Float64Array;
  kPe: Float64Array;
  start: Float64Array;
  sizes: Record<"N" | "L" | "R" | "rope" | "capacity", number>;
}
type Caches = [latents: Float64Array, keys: Float64Array];

/** The caches of the suite are full of NaN, and rows that are not appended must stay so. */
function right({ latent, kPe, start, sizes: { N, L, R, rope, capacity } }: Append): Caches {
  const empty = (columns: number) => new Float64Array(N * capacity * columns).fill(Number.NaN);
  return [
    mlaCacheAppendReference(empty(R), latent, start, [N, L, R]),
    mlaCacheAppendReference(empty(rope), kPe, start, [N, L, rope]),
  ];
}
const reference =
  (formula: (append: Append) => Caches): ReferenceFunction =>
  (inputs) => {
    const { latent, kPe, start } = inputs as Record<"latent" | "kPe" | "start", Reference64>;
    const [N, L, R] = latent.shape as [number, number, number];
    const rope = kPe.shape[2] as number;
    const capacity = capacities.get(key(L, R, start.data)) as number;
    const sizes = { N, L, R, rope, capacity };
    const [latents, keys] = formula({ latent: latent.data, kPe: kPe.data, start: start.data, sizes });
    return {
      latentCache: { shape: [N, capacity, R], data: latents },
      kPeCache: { shape: [N, capacity, rope], data: keys },
    };
  };
const started = (change: (start: Float64Array, room: number) => Float64Array) =>
  reference((a) => right({ ...a, start: change(a.start, a.sizes.capacity - a.sizes.L) }));

export const suite: Suite = {
  op: mlaCacheAppend,
  errorClass: "exact",
  reference: reference(right),
  cases: SHAPES.map(makeCase),
  mutants: {
    "one row late": started((start, room) => start.map((s) => Math.min(s + 1, room))),
    "start of sequence 0 for all": started((start, room) => start.map(() => Math.min(start[0] as number, room))),
    "start ignored": started((start) => start.map(() => 0)),
    "rows of the rope cache as far apart as those of the latents": reference((a) => {
      const { R, rope } = a.sizes;
      const [latents, keys] = right(a);
      return [latents, keys.map((_, i) => keys[Math.floor(i / rope) * R + (i % rope)] ?? Number.NaN)];
    }),
    "last token not written": reference((a) => {
      const { L, R, capacity } = a.sizes;
      return right(a).map((cache, which) => {
        const columns = which === 0 ? R : a.sizes.rope;
        const row = (a.start[0] as number) + L - 1;
        return cache.map((v, i) => (Math.floor(i / columns) % capacity === row ? Number.NaN : v));
      }) as Caches;
    }),
    "other rows cleared": reference(
      (a) => right(a).map((cache) => cache.map((v, i) => (Number.isNaN(v) && i % 2 ? 0 : v))) as Caches,
    ),
    "rope key not appended": reference((a) => {
      const [latents, keys] = right(a);
      return [latents, keys.fill(Number.NaN)];
    }),
  },
};
