import type { FloatDtype } from "@mlxts/core";
import { Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { rmsNorm } from "../src/index.ts";
import { rmsNormReference } from "../src/reference.ts";
import { paddedSquares, sumInF16 } from "./wrong_sums.ts";

const DIMS = [
  1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000,
  1023, 1024, 1025, 2048, 3584, 4096, 4099, 5120, 7168, 8160, 8164, 8192, 16384,
];

const random = new Random(1);

function makeCase(
  rows: readonly number[],
  dim: number,
  options: Record<string, unknown> = {},
  rms = 1,
  weightDtype: "act" | "f32" = "act",
) {
  const count = rows.reduce((a, b) => a * b, 1);
  return {
    name: `[${[...rows, dim]}] rms ${rms} weight ${weightDtype} ${JSON.stringify(options)}`,
    inputs: {
      x: { dtype: "act" as const, shape: [...rows, dim], data: random.normals(count * dim, rms) },
      weight: { dtype: weightDtype, shape: [dim], data: random.normals(dim, 0.2, options.weightOffset === 1 ? 0 : 1) },
    },
    options,
    errorClass: options.rounding === "before-weight" ? ("S2" as const) : ("S" as const),
  };
}

type Options = { eps?: number; weightOffset?: number };
const reference =
  (formula: (x: Float64Array, weight: Float64Array, eps: number, offset: number) => Float64Array): ReferenceFunction =>
  ({ x, weight }: Record<string, Reference64>, options: Options) => ({
    out: {
      shape: (x as Reference64).shape,
      data: formula(
        (x as Reference64).data,
        (weight as Reference64).data,
        options.eps ?? 1e-6,
        options.weightOffset ?? 0,
      ),
    },
  });

/** A wrong norm: each row through `row`, with the row's numbers, the weight and the options. */
const rowMutant = (
  row: (
    x: Float64Array,
    w: Float64Array,
    eps: number,
    offset: number,
    index: number,
    all: Float64Array,
  ) => Float64Array,
) =>
  reference((x, w, eps, offset) => {
    const out = new Float64Array(x.length);
    for (let r = 0; r * w.length < x.length; r++)
      out.set(row(x.subarray(r * w.length, (r + 1) * w.length), w, eps, offset, r, x), r * w.length);
    return out;
  });

const meanSquare = (x: Float64Array) => x.reduce((a, v) => a + v * v, 0) / x.length;
const scaled = (inverse: (x: Float64Array, eps: number) => number) =>
  rowMutant((x, w, eps, offset) => {
    const inv = inverse(x, eps);
    return x.map((v, i) => v * inv * ((w[i] as number) + offset));
  });

/** `wrong` where `where` holds, the right norm elsewhere: what must fail it is there. */
const onlyAt =
  (where: (dim: number, dtype: FloatDtype) => boolean, wrong: ReferenceFunction): ReferenceFunction =>
  (inputs, options, dtype) =>
    (where(inputs.weight?.shape[0] as number, dtype) ? wrong : reference(rmsNormReference))(inputs, options, dtype);

export const suite: Suite = {
  op: rmsNorm,
  errorClass: "S",
  reference: reference(rmsNormReference),
  cases: [
    // Few elements make a chance of rms(err): at least 256 of them.
    ...DIMS.map((dim) => makeCase([Math.max(3, Math.ceil(256 / dim))], dim)),
    ...[1, 2, 7, 64, 257].map((rows) => makeCase([rows], 260)),
    makeCase([2, 3, 5], 40),
    ...[1e-3, 1e3].flatMap((rms) => [1e-6, 1e-5, 0.1].map((eps) => makeCase([3], 128, { eps }, rms))),
    ...[1, 5, 64, 1025].flatMap((dim) => [
      makeCase([300], dim, { weightOffset: 1 }),
      makeCase([300], dim, { rounding: "before-weight" }),
      makeCase([300], dim, {}, 1, "f32"),
      makeCase([300], dim, { weightOffset: 1, rounding: "before-weight" }, 1, "f32"),
    ]),
    { ...makeCase([3], 67), inPlace: { out: "x" } },
  ],
  mutants: {
    "weight ignored": rowMutant((x, _, eps) => x.map((v) => v / Math.sqrt(meanSquare(x) + eps))),
    "1 + w for w": reference((x, w, eps, offset) => rmsNormReference(x, w, eps, offset === 0 ? 1 : offset)),
    "w for 1 + w": reference((x, w, eps) => rmsNormReference(x, w, eps, 0)),
    "mean subtracted": scaled((x, eps) => {
      const mean = x.reduce((a, b) => a + b, 0) / x.length;
      return 1 / Math.sqrt(meanSquare(x) - mean * mean + eps);
    }),
    "l2 instead of rms": scaled((x, eps) => 1 / Math.sqrt(meanSquare(x) * x.length + eps)),
    "divides by D - 1": scaled((x, eps) => 1 / Math.sqrt((meanSquare(x) * x.length) / Math.max(1, x.length - 1) + eps)),
    "divides by a padded D": scaled(
      (x, eps) => 1 / Math.sqrt((meanSquare(x) * x.length) / (Math.ceil(x.length / 32) * 32) + eps),
    ),
    "eps 1e-5 for 1e-6": scaled((x, eps) => 1 / Math.sqrt(meanSquare(x) + (eps === 1e-6 ? 1e-5 : eps))),
    "eps ignored": scaled((x) => 1 / Math.sqrt(meanSquare(x))),
    "eps outside the root": scaled((x, eps) => 1 / (Math.sqrt(meanSquare(x)) + eps)),
    "tail of D % 4 skipped": scaled(
      (x, eps) => 1 / Math.sqrt(meanSquare(x.subarray(0, x.length - (x.length % 4))) + eps),
    ),
    "tail not written": rowMutant((x, w, eps, offset) =>
      rmsNormReference(x, w, eps, offset).map((v, i) => (i < x.length - (x.length % 4) ? v : Number.NaN)),
    ),
    "sum is 0 for D ≤ 16": scaled((x, eps) => 1 / Math.sqrt((x.length <= 16 ? 0 : meanSquare(x)) + eps)),
    "rows strided by D + 1": reference((x, w, eps, offset) =>
      rmsNormReference(
        x.map((_, i) => x[Math.min(x.length - 1, i + Math.floor(i / w.length))] as number),
        w,
        eps,
        offset,
      ),
    ),
    "weight indexed by flat index": rowMutant((x, w, eps, offset, row) =>
      rmsNormReference(
        x,
        w.map((_, i) => w[(i + row) % w.length] as number),
        eps,
        offset,
      ),
    ),
    "sum of squares in f16 at D ≥ 2048": onlyAt(
      (dim, dtype) => dim >= 2048 && dtype === "f16",
      scaled((x, eps) => 1 / Math.sqrt(sumInF16(x) / x.length + eps)),
    ),
    "lanes beyond D not zeroed": rowMutant((x, w, eps, offset, row, all) => {
      const inv = 1 / Math.sqrt(paddedSquares(all, row, x.length) / x.length + eps);
      return x.map((v, i) => v * inv * ((w[i] as number) + offset));
    }),
    "output left unwritten": reference((x) => x.map(() => Number.NaN)),
  },
};
