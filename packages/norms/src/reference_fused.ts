// Norms and what they are fused with, in plain f64. `round` is what the op does to intermediate results; the store at the
// end is the caller's.
import { rmsNormReference } from "./reference.ts";

const added = (a: Float64Array, b: Float64Array) => a.map((v, i) => v + (b[i] as number));
const multiplied = (a: Float64Array, b: Float64Array) => a.map((v, i) => v * (b[i] as number));

const exactly = (value: number) => value;

type Norm = (x: Float64Array, weight: Float64Array, eps: number, weightOffset: number) => Float64Array;

/** `norm(x) · (w + weightOffset) · factor` */
export function rmsNormMulReference(
  x: Float64Array,
  weight: Float64Array,
  factor: Float64Array,
  eps: number,
  weightOffset: number,
  norm: Norm = rmsNormReference,
): Float64Array {
  return multiplied(norm(x, weight, eps, weightOffset), factor);
}

/** `residual + norm(x) · (w + weightOffset)` */
export function rmsNormAddReference(
  x: Float64Array,
  weight: Float64Array,
  residual: Float64Array,
  eps: number,
  weightOffset: number,
  norm: Norm = rmsNormReference,
): Float64Array {
  return added(residual, norm(x, weight, eps, weightOffset));
}

/** `sum = a + b`, `out = norm(sum) · (w + weightOffset)` */
export function addRmsNormReference(
  a: Float64Array,
  b: Float64Array,
  weight: Float64Array,
  eps: number,
  weightOffset: number,
  norm: Norm = rmsNormReference,
): { sum: Float64Array; out: Float64Array } {
  const sum = added(a, b);
  return { sum, out: norm(sum, weight, eps, weightOffset) };
}

/** `x / √(Σx²/D + eps)` over rows of `dim`. */
export function rmsNormNoScaleReference(
  x: Float64Array,
  dim: number,
  eps: number,
  norm: Norm = rmsNormReference,
): Float64Array {
  return norm(x, new Float64Array(dim).fill(1), eps, 0);
}

/** Rows [token, head] of `dim` by [head, token]. */
export function byHeadReference(x: Float64Array, tokens: number, heads: number, dim: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let token = 0; token < tokens; token++)
    for (let head = 0; head < heads; head++) {
      const row = (token * heads + head) * dim;
      out.set(x.subarray(row, row + dim), (head * tokens + token) * dim);
    }
  return out;
}

/** `norm(x) · (w + weightOffset)` for each of the weights. */
export function rmsNormTripleReference(
  x: Float64Array,
  weights: readonly Float64Array[],
  eps: number,
  weightOffset: number,
  norm: Norm = rmsNormReference,
): Float64Array[] {
  return weights.map((weight) => norm(x, weight, eps, weightOffset));
}

/** `res = hidden + norm(attn) · weightPost`, and `norm(res) · weight` for each of the weights. */
export function fusedPostAttnTripleNormReference(
  hidden: Float64Array,
  attn: Float64Array,
  weightPost: Float64Array,
  weights: readonly Float64Array[],
  eps: number,
  weightOffset: number,
  norm: Norm = rmsNormReference,
  round: (value: number) => number = exactly,
): { res: Float64Array; outs: Float64Array[] } {
  const res = added(hidden, norm(attn, weightPost, eps, weightOffset).map(round)).map(round);
  return { res, outs: rmsNormTripleReference(res, weights, eps, weightOffset, norm) };
}

/** `m = attn + norm(x) · weight2`, `hidden = (residual + norm(m) · weight3) · scale`; a scale of one or of each column. */
export function fusedPostFfNorm2EndLayerReference(
  attn: Float64Array,
  x: Float64Array,
  residual: Float64Array,
  weight2: Float64Array,
  weight3: Float64Array,
  scale: Float64Array,
  eps: number,
  weightOffset: number,
  norm: Norm = rmsNormReference,
  round: (value: number) => number = exactly,
): { m: Float64Array; hidden: Float64Array } {
  const m = added(attn, norm(x, weight2, eps, weightOffset).map(round)).map(round);
  const sum = added(residual, norm(m, weight3, eps, weightOffset).map(round)).map(round);
  return { m, hidden: sum.map((v, i) => v * (scale[(i % weight2.length) % scale.length] as number)) };
}

/** `Σ_k routing[row, k] · experts[row, k]` */
export function expertSumReference(
  experts: Float64Array,
  routing: Float64Array,
  topK: number,
  dim: number,
): Float64Array {
  const out = new Float64Array(experts.length / topK);
  for (let i = 0; i < out.length; i++) {
    const row = Math.floor(i / dim);
    for (let k = 0; k < topK; k++)
      out[i] =
        (out[i] as number) +
        (routing[row * topK + k] as number) * (experts[(row * topK + k) * dim + (i % dim)] as number);
  }
  return out;
}
