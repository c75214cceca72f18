// The stages of the chunked form in f64, with the roundings each of them states; `round` is to the activation dtype.
// With an identity for `round` the whole equals the sequential rule.
import { type RuleInputs, type RuleShape, sumEpsNorm } from "./reference.ts";

export type Round = (x: number) => number;

export interface ChunkShape extends RuleShape {
  BT: number;
}

/** Calls `body` for each chunk of each head: its tokens are `first`, first + 1, …, `n` of them. */
function forChunks(
  { B, T, Hk, H, BT }: ChunkShape,
  body: (place: { b: number; h: number; kh: number; chunk: number; first: number; n: number }) => void,
): void {
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++)
      for (let chunk = 0; chunk * BT < T; chunk++)
        body({
          b,
          h,
          kh: Math.floor(h / (H / Hk)),
          chunk,
          first: b * T + chunk * BT,
          n: Math.min(BT, T - chunk * BT),
        });
}

/** Row views of a tensor [tokens, heads, dim]. */
const rows =
  (data: Float64Array, heads: number, dim: number) =>
  (token: number, head: number): Float64Array =>
    data.subarray((token * heads + head) * dim, (token * heads + head + 1) * dim);

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

const scaled = (x: Float64Array, factor: number, round: Round): Float64Array => x.map((v) => round(factor * v));

/** to += factor · x. */
function addScaled(to: Float64Array, factor: number, x: Float64Array): void {
  for (let i = 0; i < to.length; i++) to[i] = (to[i] as number) + factor * (x[i] as number);
}

/** G [B, T, H]: gates summed within each chunk, one after the other; each sum is rounded. */
export function chunkCumsumReference(shape: ChunkShape, g: Float64Array, round: Round = (x) => x): Float64Array {
  const G = new Float64Array(g.length);
  forChunks(shape, ({ h, first, n }) => {
    let sum = 0;
    for (let i = 0; i < n; i++) {
      sum = round(sum + (g[(first + i) * shape.H + h] as number));
      G[(first + i) * shape.H + h] = sum;
    }
  });
  return G;
}

/** A [B, T, H, BT]. */
export function chunkKktReference(
  shape: ChunkShape,
  k: Float64Array,
  beta: Float64Array,
  G: Float64Array,
  round: Round,
): Float64Array {
  const { B, T, Hk, H, K, BT } = shape;
  const A = new Float64Array(B * T * H * BT);
  const key = rows(k, Hk, K);
  forChunks(shape, ({ h, kh, first, n }) => {
    for (let i = 0; i < n; i++) {
      const at = (first + i) * H + h;
      const left = scaled(key(first + i, kh), beta[at] as number, round);
      for (let j = 0; j < i; j++)
        A[at * BT + j] =
          dot(left, key(first + j, kh)) * Math.exp((G[at] as number) - (G[(first + j) * H + h] as number));
    }
  });
  return A;
}

/** X [B, T, H, BT] = (I + A)⁻¹ per chunk. */
export function chunkInverseReference(shape: ChunkShape, A: Float64Array): Float64Array {
  const X = new Float64Array(A.length);
  const { H, BT } = shape;
  const rowOf = rows(X, H, BT);
  forChunks(shape, ({ h, first, n }) => {
    for (let i = 0; i < n; i++) {
      const row = rowOf(first + i, h);
      for (let m = 0; m < i; m++) addScaled(row, -(A[((first + i) * H + h) * BT + m] as number), rowOf(first + m, h));
      row[i] = 1;
    }
  });
  return X;
}

/** w [B, T, H, K] and u [B, T, H, V]. */
export function chunkWuReference(
  shape: ChunkShape,
  k: Float64Array,
  v: Float64Array,
  beta: Float64Array,
  G: Float64Array,
  X: Float64Array,
  round: Round,
): { w: Float64Array; u: Float64Array } {
  const { B, T, Hk, H, K, V, BT } = shape;
  const w = new Float64Array(B * T * H * K);
  const u = new Float64Array(B * T * H * V);
  forChunks(shape, ({ h, kh, first, n }) => {
    const values: Float64Array[] = [];
    const keys: Float64Array[] = [];
    for (let i = 0; i < n; i++) {
      const at = (first + i) * H + h;
      values.push(scaled(rows(v, H, V)(first + i, h), beta[at] as number, round));
      keys.push(scaled(rows(k, Hk, K)(first + i, kh), (beta[at] as number) * Math.exp(G[at] as number), round));
    }
    for (let i = 0; i < n; i++) {
      const [wRow, uRow] = [rows(w, H, K)(first + i, h), rows(u, H, V)(first + i, h)];
      for (let j = 0; j <= i; j++) {
        const x = X[((first + i) * H + h) * BT + j] as number;
        addScaled(wRow, x, keys[j] as Float64Array);
        addScaled(uRow, x, values[j] as Float64Array);
      }
    }
  });
  return { w: w.map(round), u: u.map(round) };
}

/** h [B, NT, H, V, K], vNew [B, T, H, V] and the final state [B, H, V, K]. */
export function chunkStateReference(
  shape: ChunkShape,
  k: Float64Array,
  w: Float64Array,
  u: Float64Array,
  G: Float64Array,
  initialState: Float64Array | undefined,
  round: Round,
): { h: Float64Array; vNew: Float64Array; finalState: Float64Array } {
  const { B, T, Hk, H, K, V, BT } = shape;
  const NT = Math.ceil(T / BT);
  const states = new Float64Array(B * NT * H * V * K);
  const vNew = new Float64Array(B * T * H * V);
  const finalState = initialState ? initialState.slice() : new Float64Array(B * H * V * K);
  forChunks(shape, ({ b, h, kh, chunk, first, n }) => {
    const G_at = (i: number) => G[(first + i) * H + h] as number;
    const state = finalState.subarray((b * H + h) * V * K, (b * H + h + 1) * V * K);
    states.set(state.map(round), ((b * NT + chunk) * H + h) * V * K);
    for (let r = 0; r < V; r++) {
      const row = state.subarray(r * K, (r + 1) * K);
      const next = row.map((s) => s * Math.exp(G_at(n - 1)));
      for (let i = 0; i < n; i++) {
        const cell = ((first + i) * H + h) * V + r;
        const d = (u[cell] as number) - dot(rows(w, H, K)(first + i, h), row);
        vNew[cell] = round(d);
        addScaled(next, round(d * Math.exp(G_at(n - 1) - G_at(i))), rows(k, Hk, K)(first + i, kh));
      }
      row.set(next);
    }
  });
  return { h: states, vNew, finalState };
}

/** o [B, T, H, V]. */
export function chunkOutputReference(
  shape: ChunkShape,
  q: Float64Array,
  k: Float64Array,
  vNew: Float64Array,
  states: Float64Array,
  G: Float64Array,
  scale: number,
  round: Round,
): Float64Array {
  const { B, T, Hk, H, K, V, BT } = shape;
  const NT = Math.ceil(T / BT);
  const o = new Float64Array(B * T * H * V);
  forChunks(shape, ({ b, h, kh, chunk, first, n }) => {
    const state = states.subarray(((b * NT + chunk) * H + h) * V * K);
    for (let i = 0; i < n; i++) {
      const at = (first + i) * H + h;
      const query = rows(q, Hk, K)(first + i, kh);
      const out = rows(o, H, V)(first + i, h);
      for (let r = 0; r < V; r++) out[r] = Math.exp(G[at] as number) * dot(query, state.subarray(r * K, (r + 1) * K));
      for (let j = 0; j <= i; j++) {
        const decay = Math.exp((G[at] as number) - (G[(first + j) * H + h] as number));
        addScaled(out, round(dot(query, rows(k, Hk, K)(first + j, kh)) * decay), rows(vNew, H, V)(first + j, h));
      }
    }
  });
  return o.map((x) => scale * x);
}

/** Every intermediate tensor of the chunked form; o is not rounded. */
export function chunkPipelineReference(
  shape: ChunkShape,
  { q, k, v, g, beta, initialState }: RuleInputs,
  scale: number,
  normEps: number | undefined,
  round: Round,
) {
  const unit = (x: Float64Array) => (normEps === undefined ? x : sumEpsNorm(x, shape.K, normEps).map(round));
  const qUnit = unit(q);
  const kUnit = unit(k);
  const G = chunkCumsumReference(shape, g);
  const A = chunkKktReference(shape, kUnit, beta, G, round);
  const X = chunkInverseReference(shape, A);
  const { w, u } = chunkWuReference(shape, kUnit, v, beta, G, X, round);
  const { h, vNew, finalState } = chunkStateReference(shape, kUnit, w, u, G, initialState, round);
  const o = chunkOutputReference(shape, qUnit, kUnit, vNew, h, G, scale, round);
  return { qUnit, kUnit, G, A, X, w, u, h, vNew, finalState, o };
}
