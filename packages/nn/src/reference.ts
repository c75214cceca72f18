// The plain ops in f64: what every device is compared with, and the documentation of the mathematics.

const sigmoid = (z: number) => 1 / (1 + Math.exp(-z));

export function addReference(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((v, i) => v + (b[i] as number));
}

/** `a · b`, element by element */
export function elementwiseMulReference(a: Float64Array, b: Float64Array): Float64Array {
  return a.map((v, i) => v * (b[i] as number));
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

/** Philox4x32-10 of counter (step, row, 0, 0) and key (seed, 0): the first two words. */
export function philox(seed: number, step: number, row: number): [number, number] {
  const mask = 0xffffffffn;
  let [a, b, c, d] = [BigInt(step), BigInt(row), 0n, 0n];
  let [k0, k1] = [BigInt(seed), 0n];
  for (let round = 0; round < 10; round++) {
    const p = a * 0xd2511f53n;
    const q = c * 0xcd9e8d57n;
    [a, b, c, d] = [(q >> 32n) ^ b ^ k0, q & mask, (p >> 32n) ^ d ^ k1, p & mask];
    k0 = (k0 + 0x9e3779b9n) & mask;
    k1 = (k1 + 0xbb67ae85n) & mask;
  }
  return [Number(a), Number(b)];
}

/** The ids that may be drawn from a row, in id order, with their probabilities. */
export function samplingSet(
  logits: Float64Array,
  temperature: number,
  topK: number,
  topP: number,
): { ids: number[]; probabilities: number[] } {
  let most = Number.NEGATIVE_INFINITY;
  const ids: number[] = [];
  logits.forEach((v, id) => {
    if (v > Number.NEGATIVE_INFINITY) ids.push(id);
    if (v > most) most = v;
  });
  const weightOf = (id: number) => {
    const v = logits[id] as number;
    return v === most ? 1 : Math.exp((v - most) / temperature);
  };
  let kept = ids;
  if (topK > 0 || topP < 1) {
    kept = ids.sort((a, b) => (logits[b] as number) - (logits[a] as number) || a - b);
    if (topK > 0) kept = kept.slice(0, topK);
    const share = topP * kept.reduce((sum, id) => sum + weightOf(id), 0);
    let reached = 0;
    if (topP < 1)
      kept = kept.filter((id) => {
        const wanted = reached < share;
        reached += weightOf(id);
        return wanted;
      });
    kept.sort((a, b) => a - b);
  }
  const weights = kept.map(weightOf);
  const total = weights.reduce((sum, w) => sum + w, 0);
  return { ids: kept, probabilities: weights.map((w) => w / total) };
}

/** One id per row of `dim`, where the running sum of probabilities passes u = (o₁·2³² + o₀) / 2⁶⁴. */
export function sampleReference(
  logits: Float64Array,
  dim: number,
  step: number,
  { temperature, topK, topP, seed }: { temperature: number; topK: number; topP: number; seed: number },
): Float64Array {
  const argmax = argmaxReference(logits, dim);
  if (temperature === 0) return argmax;
  return argmax.map((fallback, row) => {
    const { ids, probabilities } = samplingSet(logits.subarray(row * dim, (row + 1) * dim), temperature, topK, topP);
    const [low, high] = philox(seed, step, row);
    const u = high / 2 ** 32 + low / 2 ** 64;
    let passed = 0;
    for (const [i, id] of ids.entries()) {
      passed += probabilities[i] as number;
      if (passed > u) return id;
    }
    return ids.at(-1) ?? fallback;
  });
}
