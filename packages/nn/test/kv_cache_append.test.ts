import { Device } from "@mlxts/core";
import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { testSuite } from "../../../scripts/test-suite.ts";
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
/** The suite hands in caches full of NaN: whatever is not appended must stay so. */
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

const suite: Suite = {
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

testSuite(suite);

describe("kvCacheAppend", () => {
  const device = Device.open("cpu", { threads: 2 });
  afterAll(() => device.dispose());
  const make = (start: number[], T = 5, capacity = 64) => {
    const B = start.length;
    const cache = () => device.tensor("f32", [B, 2, capacity, 4]);
    const k = device.tensor("f32", [B, T, 2, 4], random.normals(B * T * 8));
    return { k, v: k, start: device.tensor("i32", [B], start), kCache: cache(), vCache: cache() };
  };

  it.each([
    [60, "60"],
    [-1, "-1"],
    [0x7fffffff, "2147483647"],
    [-0x80000000, "-2147483648"],
  ])("fails on start %s and writes nothing", async (bad, shown) => {
    const tensors = make([3, bad, 0]);
    const encoder = device.encoder();
    kvCacheAppend(encoder, tensors);
    await expect(encoder.commit()).rejects.toThrow(
      `\`start\` must be at least 0 and leave room for 5 rows in a cache of 64, got ${shown} at sequence 1`,
    );
    expect(tensors.kCache.typedArray().every((v) => v === 0)).toBe(true);
    expect(tensors.vCache.typedArray().every((v) => v === 0)).toBe(true);
  });

  it("returns the caches it was given", async () => {
    const tensors = make([59]);
    const encoder = device.encoder();
    const out = kvCacheAppend(encoder, tensors);
    await encoder.commit();
    expect(out.kCache).toBe(tensors.kCache);
    expect(out.vCache).toBe(tensors.vCache);
    expect((await out.kCache.readNumbers()).slice(59 * 4, 60 * 4)).toEqual((await tensors.k.readNumbers()).slice(0, 4));
  });

  it("appends again when a recording is replayed with another start", async () => {
    const tensors = make([0], 1, 4);
    const encoder = device.encoder();
    kvCacheAppend(encoder, tensors);
    const recording = encoder.finish();
    for (const start of [2, 1]) {
      tensors.start.write([start]);
      await recording.replay();
    }
    recording.dispose();
    const row = [...(await tensors.k.read()).slice(0, 4)];
    const zeros = [0, 0, 0, 0];
    expect([...(await tensors.kCache.read()).slice(0, 16)]).toEqual([...zeros, ...row, ...row, ...zeros]);
  });

  it.each<[string, (t: ReturnType<typeof make>) => Record<string, unknown>, string]>([
    ["no cache", ({ kCache: _, ...rest }) => rest, "kvCacheAppend: `kCache` must be a Tensor, got undefined"],
    [
      "value cache of another dtype",
      (t) => ({ ...t, vCache: device.tensor("bf16", [1, 2, 64, 4]) }),
      "kvCacheAppend: `vCache` must have dtype f32, got bf16",
    ],
    [
      "values of another dtype",
      (t) => ({ ...t, v: device.tensor("f16", [1, 5, 2, 4]) }),
      "kvCacheAppend: `v` must have dtype f32, got f16",
    ],
    [
      "caches of different capacity",
      (t) => ({ ...t, vCache: device.tensor("f32", [1, 2, 63, 4]) }),
      "kvCacheAppend: `vCache` must have shape [1, 2, 64, 4], got [1, 2, 63, 4]",
    ],
    [
      "more rows than capacity",
      (t) => ({ ...t, kCache: device.tensor("f32", [1, 2, 4, 4]), vCache: device.tensor("f32", [1, 2, 4, 4]) }),
      "kvCacheAppend: `k` must have at most the cache's 4 rows, got 5",
    ],
    [
      "start of another length",
      (t) => ({ ...t, start: device.tensor("i32", [2]) }),
      "kvCacheAppend: `start` must have shape [1], got [2]",
    ],
    [
      "one cache for both",
      (t) => ({ ...t, vCache: t.kCache }),
      "kvCacheAppend: `vCache` must not overlap `kCache`, got overlapping views",
    ],
    [
      "a cache that overlaps the keys",
      (t) => ({
        ...t,
        kCache: device.tensor("f32", [1, 2, 5, 4]),
        vCache: (t.k as never as { reshape(s: number[]): unknown }).reshape([1, 2, 5, 4]),
      }),
      "kvCacheAppend: `vCache` must not overlap `k`, got overlapping views",
    ],
  ])("refuses %s", (_, change, message) => {
    const encoder = device.encoder();
    expect(() => kvCacheAppend(encoder, change(make([0])) as never)).toThrow(message);
  });
});
