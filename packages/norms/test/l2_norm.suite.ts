import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { l2Norm } from "../src/index.ts";
import { l2NormReference } from "../src/reference.ts";
import { paddedSquares, sumInF16 } from "./wrong_sums.ts";

const DIMS = [
  1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 192, 255, 256, 257, 511, 512, 513,
  1000, 1023, 1024, 1025, 2048, 3584, 4096, 4099, 5120, 7168, 8160, 8164, 8192, 16384,
];

const random = new Random(6);

/** `norm`: the Euclidean norm of the rows; default √D. */
function makeCase(rows: readonly number[], dim: number, options: Record<string, unknown> = {}, norm?: number): Case {
  const count = rows.reduce((a, b) => a * b, 1);
  return {
    name: `[${[...rows, dim]}] norm ${norm ?? "√D"} ${JSON.stringify(options)}`,
    inputs: {
      x: {
        dtype: "act",
        shape: [...rows, dim],
        data: random.normals(count * dim, norm === undefined ? 1 : norm / Math.sqrt(dim)),
      },
    },
    options,
  };
}

const KINDS = ["sum-eps", "mean-eps", "max-eps"] as const;
type Kind = (typeof KINDS)[number];
type Arguments = { x: Float64Array; dim: number; kind: Kind; eps: number };

const reference =
  (formula: (a: Arguments) => Float64Array): ReferenceFunction =>
  ({ x }: Record<string, Reference64>, options: { kind?: Kind; eps?: number }) => {
    const { shape, data } = x as Reference64;
    return {
      out: {
        shape,
        data: formula({ kind: "sum-eps", eps: 1e-6, ...options, x: data, dim: shape[shape.length - 1] as number }),
      },
    };
  };
const right = ({ x, dim, kind, eps }: Arguments) => l2NormReference(x, dim, kind, eps);
const changed = (change: (a: Arguments) => Partial<Arguments>) => reference((a) => right({ ...a, ...change(a) }));
const swapped = (from: Kind, to: Kind) => changed(({ kind }) => ({ kind: kind === from ? to : kind }));
/** Each row scaled by something of its own; the other kinds are right, so that they cannot be what fails it. */
const scaled = (
  inverse: (row: Float64Array, eps: number, index: number, all: Float64Array) => number,
  wrongKind: Kind = "sum-eps",
) =>
  reference((a) => {
    const { x, dim, kind, eps } = a;
    if (kind !== wrongKind) return right(a);
    const out = new Float64Array(x.length);
    for (let start = 0; start < x.length; start += dim) {
      const row = x.subarray(start, start + dim);
      const inv = inverse(row, eps, start / dim, x);
      out.set(
        row.map((v) => v * inv),
        start,
      );
    }
    return out;
  });
/** mean-eps with a mean over something other than D. */
const meanOver = (count: (dim: number) => number) =>
  scaled((row, eps) => 1 / Math.sqrt((squares(row) / count(row.length) + eps) * row.length), "mean-eps");
const squares = (row: Float64Array) => row.reduce((a, v) => a + v * v, 0);

export const suite: Suite = {
  op: l2Norm,
  errorClass: "S",
  reference: reference(right),
  cases: [
    ...DIMS.map((dim) => makeCase([Math.max(2, Math.ceil(256 / dim))], dim)),
    ...[1, 2, 7, 31, 33, 257].map((rows) => makeCase([rows], 260)),
    makeCase([2, 3, 4], 128),
    // Norms near the root of eps, where the kinds part; .0005 is below both.
    ...KINDS.flatMap((kind) => [
      ...[0.0005, 0.003, 0.01, 1].map((norm) => makeCase([20], 128, { kind }, norm)),
      makeCase([20], 128, { kind, eps: 0.005 }, 0.003),
      makeCase([20], 67, { kind, eps: 0.1 }, 0.2),
      makeCase([64], 33, { kind }),
      makeCase([64], 33, { kind, eps: 0 }),
    ]),
    makeCase([20], 128, { eps: 1e-5 }, 0.003),
    {
      ...makeCase([2], 128),
      name: "zero rows",
      inputs: { x: { dtype: "act", shape: [2, 128], data: new Float64Array(256) } },
    },
    { ...makeCase([5], 67), inPlace: { out: "x" } },
  ],
  mutants: {
    "mean for sum": swapped("sum-eps", "mean-eps"),
    "max for sum": swapped("sum-eps", "max-eps"),
    "sum for mean": swapped("mean-eps", "sum-eps"),
    "max for mean": swapped("mean-eps", "max-eps"),
    "sum for max": swapped("max-eps", "sum-eps"),
    "mean for max": swapped("max-eps", "mean-eps"),
    "rms instead of l2": scaled((row, eps) => 1 / Math.sqrt(squares(row) / row.length + eps)),
    "not divided by √D again": reference((a) =>
      right(a).map((v) => (a.kind === "mean-eps" ? v * Math.sqrt(a.dim) : v)),
    ),
    "eps 1e-5 for 1e-6": changed(({ eps }) => ({ eps: eps === 1e-6 ? 1e-5 : eps })),
    "eps ignored": changed(() => ({ eps: 0 })),
    "eps outside the root": scaled((row, eps) => 1 / (Math.sqrt(squares(row)) + eps)),
    "eps squared": changed(({ eps }) => ({ eps: eps * eps })),
    "root forgotten": scaled((row, eps) => 1 / (squares(row) + eps)),
    "mean subtracted": scaled((row, eps) => {
      const mean = row.reduce((a, b) => a + b, 0) / row.length;
      return 1 / Math.sqrt(squares(row) - row.length * mean * mean + eps);
    }),
    "tail of D % 4 skipped": scaled(
      (row, eps) => 1 / Math.sqrt(squares(row.subarray(0, row.length - (row.length % 4))) + eps),
    ),
    "tail not written": reference((a) => right(a).map((v, i) => (i % a.dim < a.dim - (a.dim % 4) ? v : Number.NaN))),
    "last row not written": reference((a) => right(a).map((v, i) => (i < a.x.length - a.dim ? v : Number.NaN))),
    "rows strided by D + 1": changed(({ x, dim }) => ({
      x: x.map((_, i) => x[Math.min(x.length - 1, i + Math.floor(i / dim))] as number),
    })),
    "norm of the first row": reference(({ x, dim, eps }) => {
      const inv = 1 / Math.sqrt(squares(x.subarray(0, dim)) + eps);
      return x.map((v) => v * inv);
    }),
    "mean over D - 1": meanOver((dim) => Math.max(1, dim - 1)),
    "mean over a padded D": meanOver((dim) => Math.ceil(dim / 32) * 32),
    "sum is 0 for D ≤ 16": scaled((row, eps) => 1 / Math.sqrt((row.length <= 16 ? 0 : squares(row)) + eps)),
    "lanes beyond D not zeroed": scaled(
      (row, eps, index, all) => 1 / Math.sqrt(paddedSquares(all, index, row.length) + eps),
    ),
    "sum of squares in f16 at D ≥ 2048": (inputs, options, dtype) =>
      ((inputs.x?.shape.at(-1) as number) >= 2048 && dtype === "f16"
        ? scaled((row, eps) => 1 / Math.sqrt(sumInF16(row) + eps))
        : reference(right))(inputs, options, dtype),
  },
};
