// Attention over latents in f64, written for reading: folded, and with decompressed keys and values.

/** Which rows of the cache the L new tokens see. */
interface Sight {
  lengths: ArrayLike<number>;
  /** Default: true. */
  causal?: boolean;
  /** Whether new token i sees new token j, in place of `causal`. */
  tree?: ((i: number, j: number) => boolean) | undefined;
  /** What wrong implementations change: where the rows that a token sees end, and those that are left out. */
  visible?: (length: number, L: number, i: number, causal: boolean) => number;
  skip?: (t: number, visible: number, length: number) => boolean;
}

export interface LatentAttention extends Sight {
  /** [N, L, H, R] and [N, L, H, rope]. */
  queries: Float64Array;
  qPe: Float64Array;
  /** [N, capacity, R] and [N, capacity, rope]. */
  latents: Float64Array;
  keys: Float64Array;
  sizes: Record<"N" | "L" | "H" | "R" | "rope" | "capacity", number>;
  scale: number;
  /** What wrong implementations change: the softmax's base, of a row of queries and its highest score. */
  base?: (top: number, row: number) => number;
  multiplyAll?: boolean;
}

/** Rows of the cache that token i sees: one flag for each. */
function seenRows(
  { causal = true, tree, visible, skip }: Sight,
  { L, capacity }: { L: number; capacity: number },
  length: number,
  i: number,
) {
  const prefix = causal && !tree ? length - L + i + 1 : length;
  const count = visible ? visible(length, L, i, causal) : prefix;
  return Array.from({ length: Math.min(capacity, Math.max(0, count)) }, (_, t) => {
    const other = t - (length - L);
    return !(tree && other >= 0 && !tree(i, other)) && !skip?.(t, count, length);
  });
}

/** vc [N, L, H, R] and lse [N, L, H]; rows that a token does not see are not read. */
export function mlaAttentionReference(problem: LatentAttention): { vc: Float64Array; lse: Float64Array } {
  const { queries, qPe, latents, keys, lengths, scale, sizes, base = (top: number) => top } = problem;
  const { N, L, H, R, rope, capacity } = sizes;
  const vc = new Float64Array(queries.length);
  const lse = new Float64Array(N * L * H).fill(Number.NEGATIVE_INFINITY);
  const dot = (a: Float64Array, at: number, b: Float64Array, bt: number, size: number) => {
    let sum = 0;
    for (let d = 0; d < size; d++) sum += (a[at + d] as number) * (b[bt + d] as number);
    return sum;
  };
  for (let row = 0; row < N * L * H; row++) {
    const n = Math.floor(row / (L * H));
    const seen = seenRows(problem, sizes, lengths[n] as number, Math.floor(row / H) % L);
    if (!seen.includes(true)) continue;
    const scores = seen.map((sees, t) =>
      sees
        ? scale *
          (dot(queries, row * R, latents, (n * capacity + t) * R, R) +
            dot(qPe, row * rope, keys, (n * capacity + t) * rope, rope))
        : Number.NEGATIVE_INFINITY,
    );
    const top = base(
      scores.reduce((a, s) => Math.max(a, s), Number.NEGATIVE_INFINITY),
      row,
    );
    const total = scores.reduce((a, s) => a + Math.exp(s - top), 0);
    lse[row] = top + Math.log(total);
    for (let t = 0; t < (problem.multiplyAll ? capacity : scores.length); t++) {
      const weight = Math.exp((scores[t] ?? Number.NEGATIVE_INFINITY) - top) / total;
      if (weight === 0 && !problem.multiplyAll) continue;
      for (let c = 0; c < R; c++)
        vc[row * R + c] = (vc[row * R + c] as number) + weight * (latents[(n * capacity + t) * R + c] as number);
    }
  }
  return { vc, lse };
}

export interface DecompressedAttention extends Sight {
  /** [N, L, H, nope] and [N, L, H, rope], rotated. */
  qNope: Float64Array;
  qPe: Float64Array;
  latents: Float64Array;
  keys: Float64Array;
  /** [H · (nope + v), R]: for each head rows of keys, then of values. */
  weight: Float64Array;
  sizes: LatentAttention["sizes"] & Record<"nope" | "v", number>;
  scale: number;
}

/**
 * Attention with the keys and values of each head, made of every latent: `k_t = Wk · c_t` and `v_t = Wv · c_t`. What
 * mlaQPrime, mlaAttention and mlaOut together must give, [N, L, H, v]. Rows that a token does not see are not read for it.
 */
export function decompressedReference(problem: DecompressedAttention): Float64Array {
  const { qNope, qPe, latents, keys, weight, lengths, scale, sizes } = problem;
  const { N, L, H, R, rope, capacity, nope, v } = sizes;
  const P = nope + v;
  const out = new Float64Array(N * L * H * v);
  for (let n = 0; n < N; n++)
    for (let h = 0; h < H; h++) {
      const length = lengths[n] as number;
      /** Row i of the head's weight times latent t. */
      const decompressed = (t: number) =>
        Float64Array.from({ length: P }, (_, i) => {
          let sum = 0;
          for (let c = 0; c < R; c++)
            sum += (weight[(h * P + i) * R + c] as number) * (latents[(n * capacity + t) * R + c] as number);
          return sum;
        });
      const seen = Array.from({ length: L }, (_, i) => seenRows(problem, sizes, length, i));
      const most = Math.max(...seen.map((rows) => rows.length));
      const rows = Array.from({ length: most }, (_, t) => decompressed(t));
      for (const [i, sees] of seen.entries()) {
        const row = (n * L + i) * H + h;
        const scores = sees.map((visible, t) => {
          if (!visible) return Number.NEGATIVE_INFINITY;
          const key = rows[t] as Float64Array;
          let sum = 0;
          for (let d = 0; d < nope; d++) sum += (qNope[row * nope + d] as number) * (key[d] as number);
          for (let d = 0; d < rope; d++)
            sum += (qPe[row * rope + d] as number) * (keys[(n * capacity + t) * rope + d] as number);
          return scale * sum;
        });
        const top = scores.reduce((a, s) => Math.max(a, s), Number.NEGATIVE_INFINITY);
        const total = scores.reduce((a, s) => a + Math.exp(s - top), 0);
        for (const [t, s] of scores.entries())
          for (let f = 0; f < v && sees[t]; f++)
            out[row * v + f] =
              (out[row * v + f] as number) +
              (Math.exp(s - top) / total) * ((rows[t] as Float64Array)[nope + f] as number);
      }
    }
  return out;
}
