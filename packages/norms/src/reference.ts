// The norms in plain f64: what every device is compared with, and the documentation of the mathematics.

/** `x / √(Σx²/D + eps) · (w + weightOffset)` over rows of `weight.length`. */
export function rmsNormReference(
  x: Float64Array,
  weight: Float64Array,
  eps: number,
  weightOffset: number,
): Float64Array {
  const dim = weight.length;
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += dim) {
    let sum = 0;
    for (let i = 0; i < dim; i++) sum += (x[start + i] as number) ** 2;
    const inv = 1 / Math.sqrt(sum / dim + eps);
    for (let i = 0; i < dim; i++)
      out[start + i] = (x[start + i] as number) * inv * ((weight[i] as number) + weightOffset);
  }
  return out;
}

/** rmsNorm with `rounding` `before-weight`: `round(x / √(Σx²/D + eps)) · (w + weightOffset)`; the store is the caller's. */
export function beforeWeightReference(
  x: Float64Array,
  weight: Float64Array,
  eps: number,
  weightOffset: number,
  round: (value: number) => number,
): Float64Array {
  const ones = new Float64Array(weight.length).fill(1);
  return rmsNormReference(x, ones, eps, 0).map(
    (v, i) => round(v) * ((weight[i % weight.length] as number) + weightOffset),
  );
}

const sigmoid = (z: number) => 1 / (1 + Math.exp(-z));

const gateOf = (z: Float64Array, activation: "silu" | "sigmoid") =>
  z.map((v) => (activation === "silu" ? v * sigmoid(v) : sigmoid(v)));

/** `norm(x) · (w + weightOffset) · activation(z)`; with `gate-then-norm`: `norm(x · activation(z)) · (w + weightOffset)`. */
export function gatedRmsNormReference(
  x: Float64Array,
  z: Float64Array,
  weight: Float64Array,
  eps: number,
  weightOffset: number,
  activation: "silu" | "sigmoid",
  order: "norm-then-gate" | "gate-then-norm",
): Float64Array {
  const gate = gateOf(z, activation);
  const gated = (values: Float64Array) => values.map((v, i) => v * (gate[i] as number));
  return order === "norm-then-gate"
    ? gated(rmsNormReference(x, weight, eps, weightOffset))
    : rmsNormReference(gated(x), weight, eps, weightOffset);
}

/**
 * gatedRmsNorm with `rounding` `before-weight`: `roundProduct(round(norm(x)) · (w + weightOffset)) · activation(z)`; with
 * `gate-then-norm` `round(norm(x · activation(z))) · (w + weightOffset)`. `roundProduct` rounds where the weight has the dtype of x.
 */
export function gatedBeforeWeightReference(
  x: Float64Array,
  z: Float64Array,
  weight: Float64Array,
  eps: number,
  weightOffset: number,
  activation: "silu" | "sigmoid",
  order: "norm-then-gate" | "gate-then-norm",
  round: (value: number) => number,
  roundProduct: (value: number) => number,
): Float64Array {
  const gate = gateOf(z, activation);
  const gated = (values: Float64Array) => values.map((v, i) => v * (gate[i] as number));
  return order === "norm-then-gate"
    ? gated(beforeWeightReference(x, weight, eps, weightOffset, round).map(roundProduct))
    : beforeWeightReference(gated(x), weight, eps, weightOffset, round);
}

/** `x / √(Σx² + eps)`, `x / √(Σx²/D + eps) / √D` or `x / max(√Σx², eps)` over rows of `dim`. */
export function l2NormReference(
  x: Float64Array,
  dim: number,
  kind: "sum-eps" | "mean-eps" | "max-eps",
  eps: number,
): Float64Array {
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += dim) {
    let sum = 0;
    for (let i = 0; i < dim; i++) sum += (x[start + i] as number) ** 2;
    const norm =
      kind === "sum-eps"
        ? Math.sqrt(sum + eps)
        : kind === "mean-eps"
          ? Math.sqrt(sum / dim + eps) * Math.sqrt(dim)
          : Math.max(Math.sqrt(sum), eps);
    for (let i = 0; i < dim; i++) out[start + i] = (x[start + i] as number) / norm;
  }
  return out;
}
