import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { kvCacheAppend } from "../src/index.ts";
import { kvCacheAppendReference } from "../src/reference_matmul.ts";

const random = new Random(11);

interface Shape {
  T: number;
  Hkv: number;
  D: number;
  capacity: number;
  start: readonly number[];
  cache?: CaseInput["dtype"];
  data?: (n: number) => ArrayLike<number>;
}

function makeCase({ T, Hkv, D, capacity, start, cache = "act", data = (n) => random.normals(n) }: Shape): Case {
  const B = start.length;
  const size = B * T * Hkv * D;
  const output = { dtype: cache, shape: [B, Hkv, capacity, D] };
  return {
    name: `T ${T} Hkv ${Hkv} D ${D} capacity ${capacity} start ${start} cache ${cache}`,
    inputs: {
      k: { dtype: "act", shape: [B, T, Hkv, D], data: data(size) },
      v: { dtype: "act", shape: [B, T, Hkv, D], data: data(size) },
      start: { dtype: "i32", shape: [B], data: start },
    },
    options: {},
    ask: { kCache: output, vCache: output },
  };
}

type Sizes = [number, number, number, number];
/** The caches of the suite are full of NaN, and rows that are not appended must stay so. */
const reference =
  (
    append: (cache: Float64Array, x: Float64Array, start: Float64Array, sizes: Sizes, capacity: number) => Float64Array,
    capacityOf: (sizes: Sizes, start: Float64Array) => number,
    both: (k: Float64Array, v: Float64Array) => [Float64Array, Float64Array] = (k, v) => [k, v],
  ): ReferenceFunction =>
  (inputs) => {
    const { k, v, start } = inputs as Record<"k" | "v" | "start", Reference64>;
    const sizes = k.shape as Sizes;
    const [B, , Hkv, D] = sizes;
    const capacity = capacityOf(sizes, start.data);
    const empty = new Float64Array(B * Hkv * capacity * D).fill(Number.NaN);
    const shape = [B, Hkv, capacity, D];
    const [forK, forV] = both(k.data, v.data);
    return {
      kCache: { shape, data: append(empty, forK, start.data, sizes, capacity) },
      vCache: { shape, data: append(empty, forV, start.data, sizes, capacity) },
    };
  };

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
  { T: 1, Hkv: 2, D: 64, capacity: 9, start: [0] },
  { T: 1, Hkv: 1, D: 5, capacity: 1, start: [0] },
  { T: 3, Hkv: 2, D: 33, capacity: 8, start: [5, 0, 2] },
  { T: 8, Hkv: 3, D: 128, capacity: 8, start: [0, 0] },
  { T: 2, Hkv: 19, D: 30, capacity: 3, start: [1] },
  { T: 1, Hkv: 2, D: 1101, capacity: 2, start: [1] },
  { T: 1, Hkv: 1, D: 6, capacity: 70, start: Array.from({ length: 70 }, (_, b) => b) },
  ...(["f32", "f16", "bf16"] as const).flatMap((cache): Shape[] => [
    { T: 5, Hkv: 2, D: 36, capacity: 12, start: [7, 1], cache },
    {
      T: 2,
      Hkv: 3,
      D: 50,
      capacity: 4,
      start: [1],
      cache,
      data: (n) => Float64Array.from({ length: n }, (_, i) => SPECIAL[i % SPECIAL.length] as number),
    },
  ]),
];
// References see tensors only, and the capacity is that of an output.
const key = (sizes: readonly number[], start: Iterable<number>) => JSON.stringify([sizes, [...start]]);
const capacities = new Map(
  SHAPES.map(({ T, Hkv, D, capacity, start }) => [key([start.length, T, Hkv, D], start), capacity]),
);
const capacityOf = (sizes: Sizes, start: Float64Array) => capacities.get(key(sizes, start)) as number;

export const suite: Suite = {
  op: kvCacheAppend,
  errorClass: "exact",
  reference: reference(kvCacheAppendReference, capacityOf),
  cases: SHAPES.map(makeCase),
  mutants: {
    "one row late": reference(
      (cache, x, start, sizes, capacity) =>
        kvCacheAppendReference(
          cache,
          x,
          start.map((s) => Math.min(s + 1, capacity - sizes[1])),
          sizes,
          capacity,
        ),
      capacityOf,
    ),
    "start of sequence 0 for all": reference(
      (cache, x, start, sizes, capacity) =>
        kvCacheAppendReference(
          cache,
          x,
          start.map(() => Math.min(start[0] as number, capacity - sizes[1])),
          sizes,
          capacity,
        ),
      capacityOf,
    ),
    "start ignored": reference(
      (cache, x, start, sizes, capacity) =>
        kvCacheAppendReference(
          cache,
          x,
          start.map(() => 0),
          sizes,
          capacity,
        ),
      capacityOf,
    ),
    "keys and values swapped": reference(kvCacheAppendReference, capacityOf, (k, v) => [v, k]),
    "tokens and heads not exchanged": reference((cache, x, start, [B, T, Hkv, D], capacity) => {
      const out = kvCacheAppendReference(cache, x, start, [B, T, Hkv, D], capacity);
      for (let b = 0; b < B; b++)
        for (let h = 0; h < Hkv; h++) {
          const at = ((b * Hkv + h) * capacity + (start[b] as number)) * D;
          out.set(x.subarray((b * Hkv + h) * T * D, (b * Hkv + h + 1) * T * D), at);
        }
      return out;
    }, capacityOf),
    "last token not written": reference((cache, x, start, [B, T, Hkv, D], capacity) => {
      const out = kvCacheAppendReference(cache, x, start, [B, T, Hkv, D], capacity);
      for (let at = 0; at < out.length; at += capacity * D)
        out.fill(Number.NaN, at + ((start[0] as number) + T - 1) * D, at + ((start[0] as number) + T) * D);
      return out;
    }, capacityOf),
    "other rows cleared": reference(
      (cache, x, start, sizes, capacity) =>
        kvCacheAppendReference(cache, x, start, sizes, capacity).map((v, i) =>
          i % 2 === 0 && Number.isNaN(v) ? 0 : v,
        ),
      capacityOf,
    ),
  },
};
