// RMS norms as wrong kernels would compute them. Each op's suite puts them in the place of its own norm.
import { type FloatDtype, roundTo } from "@mlxts/core";
import type { ReferenceFunction } from "@mlxts/core/testing";
import { beforeWeightReference, rmsNormReference } from "../src/reference.ts";
import { paddedSquares, sumInF16 } from "./wrong_sums.ts";

/** A norm over rows of `weight.length`. */
export type Norm = (
  x: Float64Array,
  weight: Float64Array,
  eps: number,
  weightOffset: number,
  dtype: FloatDtype,
) => Float64Array;

const meanSquare = (x: Float64Array) => x.reduce((a, v) => a + v * v, 0) / x.length;

/** Each row through `row`, with its number and all of x. */
const byRow =
  (
    row: (
      x: Float64Array,
      w: Float64Array,
      eps: number,
      offset: number,
      index: number,
      all: Float64Array,
    ) => Float64Array,
  ): Norm =>
  (x, w, eps, offset) => {
    const out = new Float64Array(x.length);
    for (let r = 0; r * w.length < x.length; r++)
      out.set(row(x.subarray(r * w.length, (r + 1) * w.length), w, eps, offset, r, x), r * w.length);
    return out;
  };

/** Each row scaled by something of its own. */
const scaled = (inverse: (x: Float64Array, eps: number) => number) =>
  byRow((x, w, eps, offset) => {
    const inv = inverse(x, eps);
    return x.map((v, i) => v * inv * ((w[i] as number) + offset));
  });

const WRONG_SCALES: Record<string, Norm> = {
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
  "tail not written": byRow((x, w, eps, offset) =>
    rmsNormReference(x, w, eps, offset).map((v, i) => (i < x.length - (x.length % 4) ? v : Number.NaN)),
  ),
  "sum is 0 for D ≤ 16": scaled((x, eps) => 1 / Math.sqrt((x.length <= 16 ? 0 : meanSquare(x)) + eps)),
  "rows strided by D + 1": (x, w, eps, offset) =>
    rmsNormReference(
      x.map((_, i) => x[Math.min(x.length - 1, i + Math.floor(i / w.length))] as number),
      w,
      eps,
      offset,
    ),
  "sum of squares in f16 at D ≥ 2048": (x, w, eps, offset, dtype) =>
    (w.length >= 2048 && dtype === "f16"
      ? scaled((row, e) => 1 / Math.sqrt(sumInF16(row) / row.length + e))
      : rmsNormReference)(x, w, eps, offset, dtype),
  "lanes beyond D not zeroed": byRow((x, w, eps, offset, row, all) => {
    const inv = 1 / Math.sqrt(paddedSquares(all, row, x.length) / x.length + eps);
    return x.map((v, i) => v * inv * ((w[i] as number) + offset));
  }),
  "output left unwritten": (x) => x.map(() => Number.NaN),
};

const WRONG_WEIGHTS: Record<string, Norm> = {
  "weight ignored": byRow((x, _, eps) => x.map((v) => v / Math.sqrt(meanSquare(x) + eps))),
  "1 + w for w": (x, w, eps, offset) => rmsNormReference(x, w, eps, offset === 0 ? 1 : offset),
  "w for 1 + w": (x, w, eps) => rmsNormReference(x, w, eps, 0),
  "weight indexed by flat index": byRow((x, w, eps, offset, row) =>
    rmsNormReference(
      x,
      w.map((_, i) => w[(i + row) % w.length] as number),
      eps,
      offset,
    ),
  ),
};

const mutantsOf =
  (norms: Record<string, Norm>) =>
  (reference: (norm: Norm) => ReferenceFunction): Record<string, ReferenceFunction> =>
    Object.fromEntries(Object.entries(norms).map(([name, norm]) => [name, reference(norm)]));

/** The mutants of an op whose reference is made with a norm. */
export const normMutants = mutantsOf({ ...WRONG_SCALES, ...WRONG_WEIGHTS });
/** The same for a norm without weights. */
export const scaleMutants = mutantsOf(WRONG_SCALES);

/** A norm for references that round as the op does: the right one also before the weight, where the options say so. */
export const roundedNorm =
  (norm: Norm, rounding: string | undefined, dtype: FloatDtype) =>
  (x: Float64Array, w: Float64Array, eps: number, offset: number) =>
    norm === rmsNormReference && rounding === "before-weight"
      ? beforeWeightReference(x, w, eps, offset, (value) => roundTo(dtype, value))
      : norm(x, w, eps, offset, dtype);
