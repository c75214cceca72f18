// The plain ops in f64: what every device is compared with, and the documentation of the mathematics.

const sigmoid = (z: number) => 1 / (1 + Math.exp(-z));

export function addReference(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((v, i) => v + (b[i] as number));
}

/** `silu(gate) · up`. */
export function swigluReference(gate: Float64Array, up: Float64Array): Float64Array {
  return gate.map((v, i) => v * sigmoid(v) * (up[i] as number));
}

/** `x · σ(gate)`. */
export function sigmoidGateReference(x: Float64Array, gate: Float64Array): Float64Array {
  return x.map((v, i) => v * sigmoid(gate[i] as number));
}

/** Columns `begin` … `begin + size − 1` of rows of `dim`. */
export function sliceReference(x: Float64Array, dim: number, begin: number, size: number): Float64Array {
  const rows = x.length / dim;
  const out = new Float64Array(rows * size);
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < size; i++) out[row * size + i] = x[row * dim + begin + i] as number;
  return out;
}

/** `weight[ids]`, rows of `dim`. */
export function embeddingReference(ids: Float64Array, weight: Float64Array, dim: number): Float64Array {
  const out = new Float64Array(ids.length * dim);
  ids.forEach((id, token) => {
    for (let i = 0; i < dim; i++) out[token * dim + i] = weight[id * dim + i] as number;
  });
  return out;
}

/** Pairs of the leading 2·P elements of each head of `x` [tokens, heads, dim] rotated by position · frequency. */
export function ropeReference(
  x: Float64Array,
  positions: Float64Array,
  frequencies: Float64Array,
  dim: number,
  pairing: "half" | "interleaved",
): Float64Array {
  const pairs = frequencies.length;
  const heads = x.length / (positions.length * dim);
  const out = Float64Array.from(x);
  for (let token = 0; token < positions.length; token++)
    for (let head = 0; head < heads; head++)
      for (let i = 0; i < pairs; i++) {
        const angle = (positions[token] as number) * (frequencies[i] as number);
        const start = (token * heads + head) * dim;
        const first = start + (pairing === "half" ? i : 2 * i);
        const second = start + (pairing === "half" ? i + pairs : 2 * i + 1);
        const a = x[first] as number;
        const b = x[second] as number;
        out[first] = a * Math.cos(angle) - b * Math.sin(angle);
        out[second] = b * Math.cos(angle) + a * Math.sin(angle);
      }
  return out;
}

/** Index of the first largest element of each row of `dim`; NaN never wins, a row of NaN gives 0. */
export function argmaxReference(logits: Float64Array, dim: number): Float64Array {
  const out = new Float64Array(logits.length / dim);
  for (let row = 0; row < out.length; row++) {
    let best = Number.NaN;
    for (let i = 0; i < dim; i++) {
      const v = logits[row * dim + i] as number;
      if (v > best || (Number.isNaN(best) && !Number.isNaN(v))) {
        best = v;
        out[row] = i;
      }
    }
  }
  return out;
}
