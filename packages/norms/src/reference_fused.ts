// Norms and what they are fused with, in plain f64. Intermediate results are not rounded.
import { rmsNormReference } from "./reference.ts";

const added = (a: Float64Array, b: Float64Array) => a.map((v, i) => v + (b[i] as number));
const multiplied = (a: Float64Array, b: Float64Array) => a.map((v, i) => v * (b[i] as number));

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
