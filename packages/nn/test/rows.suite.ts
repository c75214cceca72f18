import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { argmax, embedding, slice } from "../src/index.ts";
import { argmaxReference, embeddingReference, sliceReference } from "../src/reference.ts";

const random = new Random(5);
const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

// Slice: exact, any dtype.

const sliceCase = (
  shape: readonly number[],
  begin: number,
  size: number,
  dtype: "act" | "u8" | "i32" | "u16" = "act",
): Case => ({
  name: `${dtype} [${shape}] columns ${begin} + ${size}`,
  inputs: {
    x: { dtype, shape, data: dtype === "act" ? random.normals(product(shape)) : random.integers(product(shape), 200) },
  },
  options: { begin, size },
  ...(dtype === "act" ? {} : { dtypes: ["f32" as const] }),
});

const sliced =
  (f: (x: Float64Array, dim: number, begin: number, size: number) => Float64Array): ReferenceFunction =>
  ({ x }: Record<string, Reference64>, { begin, size }: Record<string, number>) => {
    const { shape, data } = x as Reference64;
    return {
      out: {
        shape: [...shape.slice(0, -1), size as number],
        data: f(data, shape[shape.length - 1] as number, begin as number, size as number),
      },
    };
  };

const sliceSuite: Suite = {
  op: slice,
  errorClass: "exact",
  reference: sliced(sliceReference),
  cases: [
    sliceCase([10], 0, 10),
    sliceCase([10], 9, 1),
    sliceCase([3, 7], 2, 4),
    sliceCase([2, 3, 5, 33], 16, 17),
    sliceCase([300, 129], 1, 64),
    sliceCase([2, 9000], 4095, 4500),
    sliceCase([5, 20000], 7, 19993),
    sliceCase([4, 33], 3, 21, "u8"),
    sliceCase([4, 33], 0, 21, "i32"),
    sliceCase([700, 65], 40, 25, "u16"),
  ],
  mutants: {
    "begin ignored": sliced((x, dim, _, size) => sliceReference(x, dim, 0, size)),
    "begin off by one": sliced((x, dim, begin, size) => sliceReference(x, dim, Math.max(0, begin - 1), size)),
    "rows strided by size": sliced((x, _, begin, size) => x.slice(begin, begin + (x.length / _) * size)),
    "last column not written": sliced((x, dim, begin, size) =>
      sliceReference(x, dim, begin, size).map((v, i) => (i % size === size - 1 ? Number.NaN : v)),
    ),
    "last rows not written": sliced((x, dim, begin, size) =>
      sliceReference(x, dim, begin, size).map((v, i, all) => (i < all.length - size ? v : Number.NaN)),
    ),
  },
};

// Embedding: exact, converted by one rounding.

const embeddingCase = (
  shape: readonly number[],
  vocabulary: number,
  dim: number,
  ids: "i32" | "u32",
  outDtype?: "f32" | "f16" | "bf16",
): Case => ({
  name: `${ids} [${shape}] of [${vocabulary}, ${dim}] as ${outDtype ?? "weight"}`,
  inputs: {
    ids: {
      dtype: ids,
      shape,
      data: random.integers(product(shape), vocabulary).map((v, i) => (i === 0 ? vocabulary - 1 : i === 1 ? 0 : v)),
    },
    weight: { dtype: "act", shape: [vocabulary, dim], data: random.normals(vocabulary * dim) },
  },
  ask: { out: { dtype: outDtype ?? "act", shape: [...shape, dim] } },
  ...(outDtype ? { options: { outDtype } } : {}),
});

const embedded =
  (f: (ids: Float64Array, weight: Float64Array, dim: number) => Float64Array): ReferenceFunction =>
  ({ ids, weight }: Record<string, Reference64>) => {
    const dim = (weight as Reference64).shape[1] as number;
    return {
      out: {
        shape: [...(ids as Reference64).shape, dim],
        data: f((ids as Reference64).data, (weight as Reference64).data, dim),
      },
    };
  };

const embeddingSuite: Suite = {
  op: embedding,
  errorClass: "exact",
  reference: embedded(embeddingReference),
  cases: [
    ...[1, 3, 16, 17, 64, 257].map((dim) => embeddingCase([5], 11, dim, dim % 2 ? "i32" : "u32")),
    embeddingCase([1], 7, 33, "u32"),
    embeddingCase([3, 4], 50, 100, "i32"),
    ...[1024, 1027, 2049].map((dim) => embeddingCase([2], 3, dim, "i32")),
    embeddingCase([2, 2, 2], 300, 8, "u32"),
    embeddingCase([70], 1, 19, "i32"),
    ...(["f32", "f16", "bf16"] as const).map((outDtype) => embeddingCase([9], 20, 77, "i32", outDtype)),
  ],
  mutants: {
    "id off by one": embedded((ids, weight, dim) =>
      embeddingReference(
        ids.map((v) => Math.max(0, v - 1)),
        weight,
        dim,
      ),
    ),
    "ids ignored": embedded((ids, weight, dim) =>
      embeddingReference(
        ids.map((_, i) => i % (weight.length / dim)),
        weight,
        dim,
      ),
    ),
    "first id for all": embedded((ids, weight, dim) =>
      embeddingReference(
        ids.map(() => ids[0] as number),
        weight,
        dim,
      ),
    ),
    "table transposed": embedded((ids, weight, dim) => {
      const vocabulary = weight.length / dim;
      return embeddingReference(
        ids,
        weight.map((_, i) => weight[(i % dim) * vocabulary + Math.floor(i / dim)] as number),
        dim,
      );
    }),
    "truncated, not rounded": embedded((ids, weight, dim) =>
      embeddingReference(ids, weight, dim).map((v) => Math.trunc(v * 2 ** 6) / 2 ** 6),
    ),
    "tail not written": embedded((ids, weight, dim) =>
      embeddingReference(ids, weight, dim).map((v, i) => (i % dim < dim - (dim % 4) ? v : Number.NaN)),
    ),
  },
};

// Argmax.

const argmaxCase = (name: string, shape: readonly number[], data: ArrayLike<number>): Case => ({
  name: `${name} [${shape}]`,
  inputs: { logits: { dtype: "act", shape, data } },
});
/** Row of −1s with a number at some places. */
const placed = (dim: number, fill: number, ...at: [number, number][]) => {
  const row = new Float64Array(dim).fill(fill);
  for (const [i, v] of at) row[i] = v;
  return row;
};
const ties = (dim: number) => random.integers(dim * 8, 5);

const best =
  (f: (logits: Float64Array, dim: number) => Float64Array): ReferenceFunction =>
  ({ logits }: Record<string, Reference64>) => {
    const { shape, data } = logits as Reference64;
    return {
      ids: { shape: shape.length > 1 ? shape.slice(0, -1) : [1], data: f(data, shape[shape.length - 1] as number) },
    };
  };
const perRow = (f: (row: Float64Array) => number) =>
  best((logits, dim) =>
    Float64Array.from({ length: logits.length / dim }, (_, r) => f(logits.subarray(r * dim, (r + 1) * dim))),
  );
const naive = (row: Float64Array, wins: (v: number, than: number) => boolean, start = 0) => {
  let at = start;
  row.forEach((v, i) => {
    if (wins(v, row[at] as number)) at = i;
  });
  return at;
};

const argmaxSuite: Suite = {
  op: argmax,
  errorClass: "exact",
  reference: best(argmaxReference),
  cases: [
    ...[1, 2, 3, 15, 16, 17, 63, 64, 65, 127, 2047, 2048, 2049, 4096, 5003].map((dim) =>
      argmaxCase("random", [7, dim], random.normals(7 * dim)),
    ),
    argmaxCase("one row", [1000], random.normals(1000)),
    argmaxCase("ranks", [2, 3, 4, 20], random.normals(480)),
    ...[5, 40, 3000].map((dim) => argmaxCase("ties", [8, dim], ties(dim))),
    argmaxCase("negative", [6, 2500], random.uniforms(15000, -9, -1)),
    argmaxCase("largest last", [2100], placed(2100, -1, [2099, 3])),
    argmaxCase(
      "around 2048 and 4096",
      [6, 5000],
      placed(30000, -1, ...[2047, 2048, 2049, 4095, 4096, 4097].map((at, r): [number, number] => [r * 5000 + at, 3])),
    ),
    argmaxCase("equal in two blocks", [5000], placed(5000, -1, [4990, 3], [2500, 3])),
    // Rows that a GPU searches in pieces.
    ...[16385, 18433, 70001].map((dim) => argmaxCase("random", [2, dim], random.normals(2 * dim))),
    argmaxCase(
      "equal in two pieces",
      [2, 20000],
      placed(40000, -1, ...[2047, 2048, 19999, 20000, 39999].map((at): [number, number] => [at, 3])),
    ),
    argmaxCase("all NaN", [20000], placed(20000, Number.NaN)),
    argmaxCase(
      "NaN and −∞",
      [20000],
      placed(20000, Number.NaN, [9000, Number.NEGATIVE_INFINITY], [19000, Number.NEGATIVE_INFINITY]),
    ),
    argmaxCase("zeros of both signs", [40], placed(40, -1, [20, -0], [30, 0])),
    argmaxCase("NaN first", [100], placed(100, -1, [0, Number.NaN], [50, 2])),
    argmaxCase("NaN before a tie", [100], placed(100, 1, [0, Number.NaN], [64, Number.NaN])),
    argmaxCase("all NaN", [70], placed(70, Number.NaN)),
    argmaxCase(
      "NaN and −∞",
      [3000],
      placed(3000, Number.NaN, [2999, Number.NEGATIVE_INFINITY], [2000, Number.NEGATIVE_INFINITY]),
    ),
    argmaxCase("all −∞", [2, 70], placed(140, Number.NEGATIVE_INFINITY)),
    argmaxCase("−∞ and one number", [2500], placed(2500, Number.NEGATIVE_INFINITY, [2400, -3e4])),
    argmaxCase("+∞", [90], placed(90, 5, [80, Number.POSITIVE_INFINITY], [33, Number.POSITIVE_INFINITY])),
  ],
  mutants: {
    "last of equal maxima": perRow((row) => naive(row, (v, than) => v >= than || Number.isNaN(than))),
    "NaN wins": perRow((row) => naive(row, (v, than) => v > than || (Number.isNaN(v) && !Number.isNaN(than)))),
    "NaN in front blocks": perRow((row) => naive(row, (v, than) => v > than)),
    smallest: perRow((row) => naive(row, (v, than) => v < than)),
    magnitude: perRow((row) => naive(row, (v, than) => Math.abs(v) > Math.abs(than))),
    "starts from 0": perRow((row) => {
      let largest = 0;
      let at = 0;
      row.forEach((v, i) => {
        if (v > largest) {
          largest = v;
          at = i;
        }
      });
      return at;
    }),
    "tail skipped": perRow((row) =>
      naive(row.subarray(0, Math.max(1, row.length - (row.length % 16))), (v, than) => v > than || Number.isNaN(than)),
    ),
    "index within the block": perRow((row) => (argmaxReference(row, row.length)[0] as number) % 2048),
    "0 for a row without numbers above −∞": perRow((row) =>
      row.some((v) => v > Number.NEGATIVE_INFINITY) ? (argmaxReference(row, row.length)[0] as number) : 0,
    ),
    "first row for all": best((logits, dim) => {
      const first = argmaxReference(logits.subarray(0, dim), dim)[0] as number;
      return new Float64Array(logits.length / dim).fill(first);
    }),
  },
};

export const suites: readonly Suite[] = [sliceSuite, embeddingSuite, argmaxSuite];
