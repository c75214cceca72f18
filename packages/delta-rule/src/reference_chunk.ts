// The stages of the chunked form in f64, with the roundings each of them states; `round` is to the activation dtype.
// With an identity for `round` the whole equals the sequential rule. Gates are [B, T, H], or [B, T, H, K] with one for
// each channel.
import type { GateSpace, RuleOptions } from "./options.ts";
import { qkNormReference, type RuleInputs, type RuleReferenceOptions, type RuleShape } from "./reference.ts";

export type Round = (x: number) => number;

export interface ChunkShape extends RuleShape {
  BT: number;
  gqa?: RuleOptions["gqa"] | undefined;
  stateLayout?: RuleOptions["stateLayout"] | undefined;
  cuSeqlens?: Float64Array | undefined;
}

interface Place {
  sequence: number;
  /** Tokens of the sequence before the chunk. */
  before: number;
  h: number;
  kh: number;
  /** Of `h`, the states. */
  slot: number;
  /** Its tokens are first, first + 1, …, `n` of them. */
  first: number;
  n: number;
}

/** Sequences as [first token, end, first slot], and slots of chunks in all. */
function sequencesOf({ B, T, BT, cuSeqlens }: ChunkShape): { all: [number, number, number][]; slots: number } {
  if (!cuSeqlens) {
    const NT = Math.ceil(T / BT);
    return { all: Array.from({ length: B }, (_, b) => [b * T, (b + 1) * T, b * NT]), slots: B * NT };
  }
  const N = cuSeqlens.length - 1;
  const all = Array.from({ length: N }, (_, s): [number, number, number] => {
    const [begin, end] = cuSeqlens.slice(s, s + 2) as unknown as [number, number];
    return [begin, end, Math.floor(begin / BT) + s];
  });
  return { all, slots: Math.floor(T / BT) + N };
}

/** Chunks of all sequences, those of packed ones that lie beyond their ends included. */
export const chunkSlots = (shape: ChunkShape): number => sequencesOf(shape).slots;

/** Calls `body` for each chunk of each head. */
function forChunks(shape: ChunkShape, body: (place: Place) => void): void {
  const { Hk, H, BT, gqa } = shape;
  for (const [sequence, [begin, end, firstSlot]] of sequencesOf(shape).all.entries())
    for (let h = 0; h < H; h++)
      for (let first = begin; first < end; first += BT)
        body({
          sequence,
          before: first - begin,
          h,
          kh: gqa === "tiled" ? h % Hk : Math.floor(h / (H / Hk)),
          slot: firstSlot + (first - begin) / BT,
          first,
          n: Math.min(BT, end - first),
        });
}

/** Row views of a tensor [tokens, heads, dim]. */
const rows =
  (data: Float64Array, heads: number, dim: number) =>
  (token: number, head: number): Float64Array =>
    data.subarray((token * heads + head) * dim, (token * heads + head + 1) * dim);

/** Gates of one token and head: as many as there are channels, or one. */
const gatesOf = ({ B, T, H }: ChunkShape, G: Float64Array) => rows(G, H, G.length / (B * T * H));

/** exp of the sums, or of their differences. */
const exps = (a: Float64Array, b?: Float64Array): Float64Array =>
  a.map((x, c) => Math.exp(b ? x - (b[c] as number) : x));

const each = (factors: Float64Array, c: number): number => factors[factors.length === 1 ? 0 : c] as number;

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}

/** Σ a·b·factor, with one factor for all or one for each. */
const weightedDot = (a: Float64Array, b: Float64Array, factors: Float64Array): number =>
  factors.length === 1
    ? dot(a, b) * (factors[0] as number)
    : a.reduce((sum, x, c) => sum + x * (b[c] as number) * (factors[c] as number), 0);

const scaled = (x: Float64Array, factor: number, round: Round): Float64Array => x.map((v) => round(factor * v));

/** to += factor · x. */
function addScaled(to: Float64Array, factor: number, x: Float64Array): void {
  for (let i = 0; i < to.length; i++) to[i] = (to[i] as number) + factor * (x[i] as number);
}

/** ln of the decay; of a decay of 0, what exp() takes to 0 in f32. */
const LN: Record<GateSpace, (g: number) => number> = {
  ln: (g) => g,
  log2: (g) => g * Math.LN2,
  linear: (g) => Math.max(Math.log(g), -104),
  "neg-ln": (g) => -g,
};

/** G: ln of the decays summed within each chunk, one after the other; each sum is rounded. Skipped tokens add nothing. */
export function chunkCumsumReference(
  shape: ChunkShape,
  g: Float64Array,
  { gate = "ln", mask }: { gate?: GateSpace | undefined; mask?: Float64Array | undefined } = {},
  round: Round = (x) => x,
): Float64Array {
  const G = new Float64Array(g.length);
  const [given, summed] = [gatesOf(shape, g), gatesOf(shape, G)];
  forChunks(shape, ({ h, first, n }) => {
    let sum = new Float64Array(given(first, h).length);
    for (let t = first; t < first + n; t++) {
      const gates = given(t, h);
      sum = sum.map((x, c) => round(x + (mask?.[t] === 0 ? 0 : LN[gate](gates[c] as number))));
      summed(t, h).set(sum);
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
  const [key, sums, row] = [rows(k, Hk, K), gatesOf(shape, G), rows(A, H, BT)];
  forChunks(shape, ({ h, kh, first, n }) => {
    for (let i = 0; i < n; i++) {
      const left = scaled(key(first + i, kh), beta[(first + i) * H + h] as number, round);
      for (let j = 0; j < i; j++)
        row(first + i, h)[j] = weightedDot(left, key(first + j, kh), exps(sums(first + i, h), sums(first + j, h)));
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
  const [key, value, sums] = [rows(k, Hk, K), rows(v, H, V), gatesOf(shape, G)];
  forChunks(shape, ({ h, kh, first, n }) => {
    const values: Float64Array[] = [];
    const keys: Float64Array[] = [];
    for (let i = 0; i < n; i++) {
      const factor = beta[(first + i) * H + h] as number;
      const decays = exps(sums(first + i, h));
      values.push(scaled(value(first + i, h), factor, round));
      keys.push(key(first + i, kh).map((x, c) => round(factor * each(decays, c) * x)));
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

/** States with their last two axes, of `rows` and `columns`, exchanged. */
function turned(states: Float64Array, rows: number, columns: number): Float64Array {
  const out = new Float64Array(states.length);
  for (let i = 0; i < out.length; i++) {
    const [row, column] = [Math.floor(i / columns) % rows, i % columns];
    out[i - row * columns - column + column * rows + row] = states[i] as number;
  }
  return out;
}

/** h [slots, H, V, K] (NaN where no chunk is), vNew [B, T, H, V], and the states [N, H, V, K] at the end and between. */
export function chunkStateReference(
  shape: ChunkShape,
  k: Float64Array,
  w: Float64Array,
  u: Float64Array,
  G: Float64Array,
  initialState: Float64Array | undefined,
  round: Round,
  every?: number,
): { h: Float64Array; vNew: Float64Array; finalState: Float64Array; snapshots?: Float64Array } {
  const { B, T, Hk, H, K, V, stateLayout } = shape;
  const { all, slots } = sequencesOf(shape);
  const size = V * K;
  const states = new Float64Array(slots * H * size).fill(Number.NaN);
  const vNew = new Float64Array(B * T * H * V);
  const snapshots = new Float64Array(every ? B * Math.floor(T / every) * H * size : 0).fill(Number.NaN);
  const taken = (sequence: number) =>
    all.slice(0, sequence).reduce((sum, [begin, end]) => sum + Math.floor((end - begin) / (every as number)), 0);
  let finalState = new Float64Array(all.length * H * size);
  if (initialState) finalState.set(stateLayout === "kv" ? turned(initialState, K, V) : initialState);
  const [key, sums] = [rows(k, Hk, K), gatesOf(shape, G)];
  forChunks(shape, ({ sequence, before, h, kh, slot, first, n }) => {
    const state = finalState.subarray((sequence * H + h) * size, (sequence * H + h + 1) * size);
    states.set(state.map(round), (slot * H + h) * size);
    const end = sums(first + n - 1, h);
    const decayed = Array.from({ length: n }, (_, i) => exps(end, sums(first + i, h)));
    const perChannel = end.length > 1;
    const keys = decayed.map((decays, i) =>
      perChannel ? key(first + i, kh).map((x, c) => round(x * each(decays, c))) : key(first + i, kh),
    );
    const kept = exps(end);
    for (let r = 0; r < V; r++) {
      const row = state.subarray(r * K, (r + 1) * K);
      const next = row.map((s, c) => s * each(kept, c));
      for (let i = 0; i < n; i++) {
        const cell = ((first + i) * H + h) * V + r;
        const d = (u[cell] as number) - dot(rows(w, H, K)(first + i, h), row);
        vNew[cell] = round(d);
        const gated = perChannel ? round(d) : round(d * each(decayed[i] as Float64Array, 0));
        addScaled(next, gated, keys[i] as Float64Array);
      }
      row.set(next);
    }
    if (every && (before + n) % every === 0)
      snapshots.set(state, ((taken(sequence) + (before + n) / every - 1) * H + h) * size);
  });
  const laidOut = (data: Float64Array) => (stateLayout === "kv" ? turned(data, V, K) : data);
  finalState = laidOut(finalState) as typeof finalState;
  return { h: states, vNew, finalState, ...(every && { snapshots: laidOut(snapshots) }) };
}

/** o [B, T, H, V]; 0 for the tokens that the mask skips. */
export function chunkOutputReference(
  shape: ChunkShape,
  q: Float64Array,
  k: Float64Array,
  vNew: Float64Array,
  states: Float64Array,
  G: Float64Array,
  { scale, mask }: { scale: number; mask?: Float64Array | undefined },
  round: Round,
): Float64Array {
  const { B, T, Hk, H, K, V } = shape;
  const o = new Float64Array(B * T * H * V);
  const [key, query, value] = [rows(k, Hk, K), rows(q, Hk, K), rows(vNew, H, V)];
  const sums = gatesOf(shape, G);
  forChunks(shape, ({ h, kh, slot, first, n }) => {
    const state = rows(states, 1, K);
    for (let i = first; i < first + n; i++) {
      if (mask?.[i] === 0) continue;
      const out = rows(o, H, V)(i, h);
      const decays = exps(sums(i, h));
      for (let r = 0; r < V; r++) out[r] = weightedDot(query(i, kh), state((slot * H + h) * V + r, 0), decays);
      for (let j = first; j <= i; j++)
        addScaled(out, round(weightedDot(query(i, kh), key(j, kh), exps(sums(i, h), sums(j, h)))), value(j, h));
    }
  });
  return o.map((x) => scale * x);
}

/** Every intermediate tensor of the chunked form; o is not rounded. */
export function chunkPipelineReference(
  dims: RuleShape & { BT: number },
  { q, k, v, g, beta, initialState, cuSeqlens, mask }: RuleInputs,
  options: RuleReferenceOptions,
  round: Round,
) {
  const { gate, gqa, stateLayout, scale, snapshotEvery } = options;
  const shape: ChunkShape = { ...dims, gqa, stateLayout, cuSeqlens };
  const { B, T, K } = dims;
  /** With zeros for the tokens that are skipped. */
  const present = (x: Float64Array) =>
    mask ? x.map((value, i) => (mask[Math.floor(i / (x.length / (B * T)))] === 0 ? 0 : value)) : x;
  const unit = (x: Float64Array) =>
    present(options.qkNorm === undefined || options.qkNorm === "none" ? x : qkNormReference(x, K, options).map(round));
  const [qUnit, kUnit, vKept, betaKept] = [unit(q), unit(k), present(v), present(beta)];
  const G = chunkCumsumReference(shape, g, { gate, mask });
  const A = chunkKktReference(shape, kUnit, betaKept, G, round);
  const X = chunkInverseReference(shape, A);
  const { w, u } = chunkWuReference(shape, kUnit, vKept, betaKept, G, X, round);
  const stages = chunkStateReference(shape, kUnit, w, u, G, initialState, round, snapshotEvery);
  const { h, vNew } = stages;
  const o = chunkOutputReference(shape, qUnit, kUnit, vNew, h, G, { scale, mask }, round);
  return { qUnit, kUnit, G, A, X, w, u, o, ...stages };
}
