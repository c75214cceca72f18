import { FLOATS, type FloatDtype } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { mlaOut } from "../src/index.ts";
import { headValuesReference } from "../src/reference.ts";
import { type Kind, kindName, makeWeight, type Read, SCALES, WRONG_READS, weightOf } from "./weights.ts";

const random = new Random(26);

interface Shape {
  N?: number;
  L?: number;
  H?: number;
  nope: number;
  v: number;
  R: number;
  weight?: Kind;
  /** As MLX stores it, without rows of keys. */
  unembedOut?: boolean;
}

/** A case for each dtype of the result. */
const makeCases = ({ N = 1, L = 1, H = 1, nope, v, R, weight = "act", unembedOut = false }: Shape): Case[] => {
  const name = unembedOut ? "unembedOut" : "kvB";
  const vc = { dtype: "f32", shape: [N, L, H, R], data: random.normals(N * L * H * R) } as const;
  const made = makeWeight(random, name, weight, unembedOut ? [H, v, R] : [H * (nope + v), R]);
  return FLOATS.map((dtype: FloatDtype) => ({
    name: `N ${N} L ${L} H ${H} nope ${nope} v ${v} R ${R} ${name} ${kindName(weight)} to ${dtype}`,
    inputs: { vc, ...made.inputs },
    options: { v, ...made.options, ...(dtype !== "f32" && { outDtype: dtype }) },
    dtypes: [dtype],
  }));
};

type Sizes = Parameters<typeof headValuesReference>[2];
interface Problem {
  vc: Float64Array;
  weight: Float64Array;
  sizes: Sizes;
}
const right = ({ vc, weight, sizes }: Problem) => headValuesReference(vc, weight, sizes);
const reference =
  (formula: (problem: Problem) => Float64Array, read?: Read): ReferenceFunction =>
  (inputs, options: { v?: number }) => {
    const vc = inputs.vc as Reference64;
    const [N, L, H, R] = vc.shape as [number, number, number, number];
    const weight = (weightOf(inputs, options, "unembedOut", read) ??
      weightOf(inputs, options, "kvB", read)) as Reference64;
    const P = weight.data.length / R / H;
    const count = options.v as number;
    const sizes = { T: N * L, H, P, R, first: P - count, count };
    return { out: { shape: [N, L, H, count], data: formula({ vc: vc.data, weight: weight.data, sizes }) } };
  };
const changed = (change: (problem: Problem) => Partial<Problem>) =>
  reference((problem) => right({ ...problem, ...change(problem) }));
const resized = (change: (sizes: Sizes) => Partial<Sizes>) =>
  changed(({ sizes }) => ({ sizes: { ...sizes, ...change(sizes) } }));
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
const column = (change: (value: number, c: number, R: number) => number) =>
  changed(({ vc, sizes: { R } }) => ({ vc: vc.map((v, i) => change(v, i % R, R)) }));

const QUANTIZED: Omit<Shape, "N" | "L">[] = [
  { H: 3, nope: 5, v: 35, R: 32, weight: { bits: 4, groupSize: 32 } },
  { H: 2, nope: 2, v: 41, R: 96, weight: { bits: 8, groupSize: 32 } },
  { H: 2, nope: 12, v: 39, R: 192, weight: { bits: 4, groupSize: 64 } },
  { H: 2, nope: 1, v: 33, R: 64, weight: { bits: 8, groupSize: 64 } },
  { H: 2, nope: 3, v: 37, R: 384, weight: { bits: 4, groupSize: 128 } },
  { H: 2, nope: 17, v: 48, R: 128, weight: { bits: 8, groupSize: 128 } },
  ...SCALES.map((weight, i) => ({ H: 2, nope: 6, v: i % 2 ? 70 : 38, R: 160, weight })),
  { H: 2, nope: 6, v: 38, R: 288, weight: { bits: 4, groupSize: 32, scales: "bf16" } },
  { H: 2, nope: 7, v: 36, R: 224, weight: { bits: 4, groupSize: 32 } },
];

const TOKENS: [N: number, L: number][] = [
  [1, 1],
  [1, 3],
  [2, 4],
  [3, 3],
  [1, 70],
];

export const suite: Suite = {
  op: mlaOut,
  errorClass: "R",
  reference: reference(right),
  cases: [
    ...TOKENS.flatMap(([N, L]) =>
      [
        { N, L, H: 2, nope: 64, v: 64, R: 128 },
        { N, L, H: 3, nope: 16, v: 24, R: 64 },
        ...[1, 2, 3, 5, 31, 33, 65, 130].map((v) => ({ N, L, H: 2, nope: 3, v, R: 20 })),
        ...[1, 2, 3, 5, 15, 17, 33, 63, 65, 129, 260].map((R) => ({ N, L, H: 2, nope: 5, v: 6, R })),
        ...(["f32", "f16", "bf16"] as const).map((weight) => ({ N, L, H: 2, nope: 10, v: 21, R: 70, weight })),
      ].flatMap(makeCases),
    ),
    ...[
      { H: 16, nope: 128, v: 128, R: 512 },
      { L: 5, H: 2, nope: 192, v: 256, R: 512 },
      { L: 130, H: 1, nope: 128, v: 128, R: 512 },
      { L: 600, H: 1, nope: 8, v: 8, R: 16 },
      ...[6, 7, 8, 9, 10].map((L) => ({ L, H: 3, nope: 2, v: 10, R: 40 })),
      { L: 2, H: 128, nope: 16, v: 16, R: 16 },
    ].flatMap(makeCases),
    ...TOKENS.flatMap(([N, L]) =>
      [
        ...[31, 33].map((v) => ({ N, L, H: 2, nope: 0, v, R: 70, unembedOut: true })),
        ...QUANTIZED.flatMap((shape) => [
          { N, L, ...shape },
          { N, L, ...shape, unembedOut: true },
        ]),
      ].flatMap(makeCases),
    ),
    ...([4, 8] as const).flatMap((bits) => {
      const weight = { bits, groupSize: 64 } as const;
      return [
        { H: 16, nope: 128, v: 128, R: 512, weight },
        { L: 5, H: 2, nope: 192, v: 256, R: 512, unembedOut: true, weight },
        { L: 130, H: 1, nope: 128, v: 128, R: 512, weight },
      ].flatMap(makeCases);
    }),
  ],
  mutants: {
    ...Object.fromEntries(Object.entries(WRONG_READS).map(([name, read]) => [name, reference(right, read)])),
    "keys for values": resized(() => ({ first: 0 })),
    "one row early": resized(({ first }) => ({ first: first - 1 })),
    "rows of the next head": moved(({ H, P }, head, row) => ((head + 1) % H) * P + row),
    "rows of head 0 for all": moved((_, __, row) => row),
    "all keys, then all values": moved(({ H, first, count }, head, row) =>
      row < first ? head * first + row : H * first + head * count + row - first,
    ),
    "first column skipped": column((v, c) => (c === 0 ? 0 : v)),
    "last column skipped": column((v, c, R) => (c === R - 1 ? 0 : v)),
    "tail of the columns skipped": column((v, c, R) => (c >= R - (R % 4) ? 0 : v)),
    "last row skipped": reference((problem) =>
      right(problem).map((v, i) => (i % problem.sizes.count === problem.sizes.count - 1 ? 0 : v)),
    ),
    "last token skipped": reference((problem) =>
      right(problem).map((v, i, all) => (i < all.length - problem.sizes.H * problem.sizes.count ? v : Number.NaN)),
    ),
    "first token for all": changed(({ vc, sizes: { H, R } }) => ({ vc: vc.map((_, i) => vc[i % (H * R)] as number) })),
    "output left unwritten": reference((problem) => right(problem).fill(Number.NaN)),
  },
};
