// Attention over a cache in plain f64.

export interface AttentionSizes {
  B: number;
  T: number;
  H: number;
  Hkv: number;
  D: number;
  capacity: number;
}

/** q [B, T, H, D], caches [B, Hkv, capacity, D] → [B, T, H, D]; rows that a query does not see are not read. */
export function sdpaReference(
  q: Float64Array,
  kCache: Float64Array,
  vCache: Float64Array,
  lengths: ArrayLike<number>,
  { B, T, H, Hkv, D, capacity }: AttentionSizes,
  { scale = D ** -0.5, causal = true }: { scale?: number; causal?: boolean },
): Float64Array {
  const out = new Float64Array(q.length);
  for (let b = 0; b < B; b++)
    for (let i = 0; i < T; i++)
      for (let h = 0; h < H; h++) {
        const length = lengths[b] as number;
        const visible = causal ? length - T + i + 1 : length;
        if (visible <= 0) continue;
        const row = ((b * T + i) * H + h) * D;
        const cache = (b * Hkv + Math.floor((h * Hkv) / H)) * capacity * D;
        const scores = new Float64Array(visible);
        for (let t = 0; t < visible; t++) {
          let sum = 0;
          for (let d = 0; d < D; d++) sum += (q[row + d] as number) * (kCache[cache + t * D + d] as number);
          scores[t] = sum * scale;
        }
        const top = scores.reduce((a, s) => Math.max(a, s), Number.NEGATIVE_INFINITY);
        const weights = scores.map((s) => Math.exp(s - top));
        const total = weights.reduce((a, w) => a + w, 0);
        for (let t = 0; t < visible; t++)
          for (let d = 0; d < D; d++)
            out[row + d] =
              (out[row + d] as number) + ((weights[t] as number) / total) * (vCache[cache + t * D + d] as number);
      }
  return out;
}
