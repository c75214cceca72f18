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
