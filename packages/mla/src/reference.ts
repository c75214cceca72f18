// The plain ops in f64, written for reading.

/** Columns `begin` … `end` − 1 of each row of `dim`. */
export function columnsReference(x: Float64Array, dim: number, begin: number, end: number): Float64Array {
  return x.filter((_, i) => i % dim >= begin && i % dim < end);
}

/** Pairs among `2 · pairs` columns from `first` on, turned by the cosines and sines of each row of x. */
export function ropeYarnReference(
  x: Float64Array,
  dim: number,
  first: number,
  pairs: number,
  pairing: "interleaved" | "half",
  cosine: (row: number, pair: number) => number,
  sine: (row: number, pair: number) => number,
): Float64Array {
  const rows = x.length / dim;
  const out = new Float64Array(rows * 2 * pairs);
  for (let row = 0; row < rows; row++)
    for (let i = 0; i < pairs; i++) {
      const [at, behind] = pairing === "half" ? [i, i + pairs] : [2 * i, 2 * i + 1];
      const a = x[row * dim + first + at] as number;
      const b = x[row * dim + first + behind] as number;
      out[row * 2 * pairs + at] = a * cosine(row, i) - b * sine(row, i);
      out[row * 2 * pairs + behind] = a * sine(row, i) + b * cosine(row, i);
    }
  return out;
}

/** Rows x [N, L, D] written into cache [N, capacity, D] from row start[n] on. */
export function mlaCacheAppendReference(
  cache: Float64Array,
  x: Float64Array,
  start: ArrayLike<number>,
  [N, L, D]: readonly [number, number, number],
): Float64Array {
  const out = Float64Array.from(cache);
  const capacity = cache.length / (N * D);
  for (let n = 0; n < N; n++)
    out.set(x.subarray(n * L * D, (n + 1) * L * D), (n * capacity + (start[n] as number)) * D);
  return out;
}

/** `out[t, h] = Σ_i x[t, h, i] · weight[h · P + first + i]` for x [T, H, D], of which `count` columns count. */
export function foldedQueryReference(
  x: Float64Array,
  weight: Float64Array,
  { T, H, D, P, R, first, count }: Record<"T" | "H" | "D" | "P" | "R" | "first" | "count", number>,
): Float64Array {
  const out = new Float64Array(T * H * R);
  for (let row = 0; row < T * H; row++)
    for (let i = 0; i < count; i++) {
      const a = x[row * D + i] as number;
      const from = ((row % H) * P + first + i) * R;
      for (let c = 0; c < R; c++) out[row * R + c] = (out[row * R + c] as number) + a * (weight[from + c] as number);
    }
  return out;
}

/** `out[t, h, f] = vc[t, h] · weight[h · P + first + f]` for vc [T, H, R]. */
export function headValuesReference(
  vc: Float64Array,
  weight: Float64Array,
  { T, H, P, R, first, count }: Record<"T" | "H" | "P" | "R" | "first" | "count", number>,
): Float64Array {
  const out = new Float64Array(T * H * count);
  for (let row = 0; row < T * H; row++)
    for (let f = 0; f < count; f++) {
      const from = ((row % H) * P + first + f) * R;
      let sum = 0;
      for (let c = 0; c < R; c++) sum += (vc[row * R + c] as number) * (weight[from + c] as number);
      out[row * count + f] = sum;
    }
  return out;
}
