// The dense product and the cache append in plain f64.

/** `x · Wᵀ + bias` (`transpose`) or `x · W + bias`; x [m, k], W [n, k] or [k, n], bias [n]. */
export function matmulReference(
  x: Float64Array,
  weight: Float64Array,
  bias: Float64Array | undefined,
  { m, n, k, transpose }: { m: number; n: number; k: number; transpose: boolean },
): Float64Array {
  const out = new Float64Array(m * n);
  for (let i = 0; i < m; i++)
    for (let j = 0; j < n; j++) {
      let sum = 0;
      for (let l = 0; l < k; l++)
        sum += (x[i * k + l] as number) * (weight[transpose ? j * k + l : l * n + j] as number);
      out[i * n + j] = sum + (bias?.[j] ?? 0);
    }
  return out;
}

/** A cache [B, Hkv, capacity, D] with the rows `start[b]` … `start[b] + T − 1` taken from x [B, T, Hkv, D]. */
export function kvCacheAppendReference(
  cache: Float64Array,
  x: Float64Array,
  start: ArrayLike<number>,
  [B, T, Hkv, D]: readonly [number, number, number, number],
  capacity: number,
): Float64Array {
  const out = cache.slice();
  for (let b = 0; b < B; b++)
    for (let t = 0; t < T; t++)
      for (let h = 0; h < Hkv; h++)
        for (let d = 0; d < D; d++)
          out[((b * Hkv + h) * capacity + (start[b] as number) + t) * D + d] = x[
            ((b * T + t) * Hkv + h) * D + d
          ] as number;
  return out;
}
