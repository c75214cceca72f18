// The ops in plain f64: what every device is compared with, and the documentation of the mathematics.
import type { GateSpace, RuleOptions } from "./options.ts";

/** Gates of rows of `aLog.length` heads, each with as many channels as `dtBias` has for it; and beta. */
export function deltaGatesReference(
  a: Float64Array,
  b: Float64Array,
  aLog: Float64Array,
  dtBias: Float64Array,
  betaScale: number,
  lowerBound?: number,
): { g: Float64Array; beta: Float64Array } {
  const heads = aLog.length;
  const channels = dtBias.length / heads;
  const g = a.map((value, i) => {
    const rate = Math.exp(aLog[Math.floor(i / channels) % heads] as number);
    const x = value + (dtBias[i % dtBias.length] as number);
    const softplus = x > 20 ? x : Math.log1p(Math.exp(x));
    return lowerBound === undefined ? -rate * softplus : lowerBound / (1 + Math.exp(-rate * x));
  });
  return { g, beta: b.map((x) => betaScale / (1 + Math.exp(-x))) };
}

/** `R` rows of state, at least W − 1. */
export interface ConvDims {
  N: number;
  T: number;
  C: number;
  W: number;
  R: number;
}

export interface ConvInputs {
  x: Float64Array;
  weight: Float64Array;
  bias?: Float64Array | undefined;
  initialState?: Float64Array | undefined;
  cuSeqlens?: Float64Array | undefined;
  mask?: Float64Array | undefined;
}

/** x [N, T, C], weight [C, W], bias [C], initialState [N, R, C] or one for each packed sequence → y and the state after it. */
export function causalConv1dReference(
  { N, T, C, W, R }: ConvDims,
  { x, weight, bias, initialState, cuSeqlens, mask }: ConvInputs,
  activation: "none" | "silu",
): { y: Float64Array; finalState: Float64Array } {
  const bounds = cuSeqlens ? Array.from(cuSeqlens) : Array.from({ length: N + 1 }, (_, n) => n * T);
  const y = new Float64Array(N * T * C);
  const finalState = new Float64Array((bounds.length - 1) * R * C);
  bounds.slice(1).forEach((end, s) => {
    const begin = bounds[s] as number;
    for (let c = 0; c < C; c++) {
      const inputs = Array.from({ length: R }, (_, i) => initialState?.[(s * R + i) * C + c] ?? 0);
      for (let t = begin; t < end; t++) inputs.push(mask?.[t] === 0 ? 0 : (x[t * C + c] as number));
      for (let t = begin; t < end; t++) {
        let sum = bias?.[c] ?? 0;
        for (let i = 0; i < W; i++)
          sum += (weight[c * W + i] as number) * (inputs[R - W + 1 + t - begin + i] as number);
        y[t * C + c] = activation === "silu" ? sum / (1 + Math.exp(-sum)) : sum;
      }
      for (let i = 0; i < R; i++) finalState[(s * R + i) * C + c] = inputs[end - begin + i] as number;
    }
  });
  return { y, finalState };
}

export interface RuleShape {
  B: number;
  T: number;
  Hk: number;
  H: number;
  K: number;
  V: number;
}

export interface RuleInputs {
  q: Float64Array;
  k: Float64Array;
  v: Float64Array;
  /** [B, T, H], or [B, T, H, K]. */
  g: Float64Array;
  beta: Float64Array;
  initialState?: Float64Array | undefined;
  cuSeqlens?: Float64Array | undefined;
  mask?: Float64Array | undefined;
}

/** As the ops have them, with their defaults. */
export type RuleReferenceOptions = Pick<RuleOptions, "scale"> & Partial<RuleOptions>;

/** What the last tokens leave. */
export interface RuleLog {
  logState: Float64Array;
  logKeys: Float64Array;
  logDeltas: Float64Array;
  logGates: Float64Array;
}

export interface RuleResults extends Partial<RuleLog> {
  o: Float64Array;
  finalState: Float64Array;
  /** NaN where no sequence has one. */
  snapshots?: Float64Array;
  lastStates?: Float64Array;
}

/** Rows of `dim`, normalized. */
export function qkNormReference(
  x: Float64Array,
  dim: number,
  { qkNorm = "none", qkNormEps: eps = 1e-6 }: Pick<RuleReferenceOptions, "qkNorm" | "qkNormEps">,
): Float64Array {
  const length = {
    none: () => 1,
    "sum-eps": (sum: number) => Math.sqrt(sum + eps),
    "mean-eps": (sum: number) => Math.sqrt(sum / dim + eps) * Math.sqrt(dim),
    "max-eps": (sum: number) => Math.max(Math.sqrt(sum), eps),
  }[qkNorm];
  const out = new Float64Array(x.length);
  for (let row = 0; row < x.length; row += dim) {
    let sum = 0;
    for (let i = row; i < row + dim; i++) sum += (x[i] as number) ** 2;
    for (let i = row; i < row + dim; i++) out[i] = (x[i] as number) / length(sum);
  }
  return out;
}

const DECAYS: Record<GateSpace, (g: number) => number> = {
  ln: (g) => Math.exp(g),
  log2: (g) => 2 ** g,
  linear: (g) => g,
  "neg-ln": (g) => Math.exp(-g),
};

const keyHead = (h: number, { Hk, H }: Pick<RuleShape, "Hk" | "H">, gqa: RuleOptions["gqa"]): number =>
  gqa === "tiled" ? h % Hk : Math.floor(h / (H / Hk));

/** States of heads in a tensor of them, read and written as rows of K elements, V of them. */
function statesIn(data: Float64Array, { V, K }: Pick<RuleShape, "V" | "K">, layout: RuleOptions["stateLayout"]) {
  const place = (head: number, row: number, c: number) => head * V * K + (layout === "kv" ? c * V + row : row * K + c);
  return {
    get: (head: number) =>
      Array.from({ length: V }, (_, row) => Float64Array.from({ length: K }, (_, c) => data[place(head, row, c)] ?? 0)),
    set(head: number, state: readonly Float64Array[]) {
      for (let row = 0; row < V; row++)
        for (let c = 0; c < K; c++) data[place(head, row, c)] = (state[row] as Float64Array)[c] as number;
    },
  };
}

/** The gated delta rule, one token after the other. */
export function gatedDeltaRuleReference(
  shape: RuleShape,
  inputs: RuleInputs,
  options: RuleReferenceOptions,
): RuleResults {
  const { B, T, Hk, H, K, V } = shape;
  const { gate = "ln", gqa = "block", stateLayout = "vk", scale, snapshotEvery: every, lastTokens } = options;
  const { v, g, beta, mask, cuSeqlens } = inputs;
  const [q, k] = [qkNormReference(inputs.q, K, options), qkNormReference(inputs.k, K, options)];
  const channels = g.length / (B * T * H);
  const bounds = cuSeqlens ?? Float64Array.from({ length: B + 1 }, (_, b) => b * T);
  const N = bounds.length - 1;
  const n = lastTokens ?? 0;
  const o = new Float64Array(B * T * H * V);
  const states = (count: number) => new Float64Array(count * H * V * K);
  const finalState = states(N);
  const snapshots = states(every ? B * Math.floor(T / every) : 0).fill(Number.NaN);
  const lastStates = states(N * n);
  const log: RuleLog = {
    logState: states(n ? N : 0),
    logKeys: new Float64Array(N * n * Hk * K),
    logDeltas: new Float64Array(N * n * H * V),
    logGates: new Float64Array(N * n * H * channels).fill(gate === "linear" ? 1 : 0),
  };
  const into = (data: Float64Array) => statesIn(data, shape, stateLayout);
  const initial = into(inputs.initialState ?? new Float64Array());
  const kept = {
    final: into(finalState),
    snapshot: into(snapshots),
    last: into(lastStates),
    log: into(log.logState),
  };
  let taken = 0;
  for (let s = 0; s < N; s++) {
    const [begin, end] = [bounds[s] as number, bounds[s + 1] as number];
    for (let h = 0; h < H; h++) {
      const kh = keyHead(h, shape, gqa);
      const state = initial.get(s * H + h);
      for (let t = begin; t <= end; t++) {
        const [seen, left] = [t - begin, end - t];
        if (every && seen > 0 && seen % every === 0) kept.snapshot.set((taken + seen / every - 1) * H + h, state);
        if (left < n) kept.last.set((s * n + left) * H + h, state);
        if (n > 0 && left === Math.min(n, end - begin)) kept.log.set(s * H + h, state);
        if (t === end || mask?.[t] === 0) continue;
        const at = t * H + h;
        const key = k.subarray((t * Hk + kh) * K, (t * Hk + kh + 1) * K);
        const query = q.subarray((t * Hk + kh) * K, (t * Hk + kh + 1) * K);
        const gates = g.subarray(at * channels, (at + 1) * channels);
        const decay = Float64Array.from({ length: K }, (_, c) => DECAYS[gate](gates[c % channels] as number));
        const logged = left <= n ? s * n + n - left : undefined;
        if (logged !== undefined) {
          log.logKeys.set(key, (logged * Hk + kh) * K);
          log.logGates.set(gates, (logged * H + h) * channels);
        }
        for (const [r, row] of state.entries()) {
          let predicted = 0;
          for (let c = 0; c < K; c++) {
            row[c] = (decay[c] as number) * (row[c] as number);
            predicted += (row[c] as number) * (key[c] as number);
          }
          const delta = (beta[at] as number) * ((v[at * V + r] as number) - predicted);
          let out = 0;
          for (let c = 0; c < K; c++) {
            row[c] = (row[c] as number) + delta * (key[c] as number);
            out += (row[c] as number) * (query[c] as number);
          }
          o[at * V + r] = scale * out;
          if (logged !== undefined) log.logDeltas[(logged * H + h) * V + r] = delta;
        }
      }
      kept.final.set(s * H + h, state);
    }
    if (every) taken += Math.floor((end - begin) / every);
  }
  return { o, finalState, ...(every && { snapshots }), ...(n > 0 && { lastStates, ...log }) };
}

/** The state before the last `rejected[s]` tokens of each sequence: all updates of the log but those. */
export function gatedDeltaRollbackReference(
  shape: Pick<RuleShape, "Hk" | "H" | "K" | "V"> & { N: number; n: number },
  { logState, logKeys, logDeltas, logGates }: RuleLog,
  rejected: ArrayLike<number>,
  { gate = "ln", gqa = "block", stateLayout = "vk" }: Partial<Pick<RuleOptions, "gate" | "gqa" | "stateLayout">> = {},
): Float64Array {
  const { N, n, Hk, H, K, V } = shape;
  const channels = logGates.length / (N * n * H);
  const finalState = new Float64Array(N * H * V * K);
  const before = statesIn(logState, shape, stateLayout);
  const after = statesIn(finalState, shape, stateLayout);
  for (let s = 0; s < N; s++)
    for (let h = 0; h < H; h++) {
      const state = before.get(s * H + h);
      for (let i = s * n; i < s * n + n - (rejected[s] as number); i++) {
        const key = (i * Hk + keyHead(h, shape, gqa)) * K;
        for (const [r, row] of state.entries())
          for (let c = 0; c < K; c++)
            row[c] =
              DECAYS[gate](logGates[(i * H + h) * channels + (c % channels)] as number) * (row[c] as number) +
              (logDeltas[(i * H + h) * V + r] as number) * (logKeys[key + c] as number);
      }
      after.set(s * H + h, state);
    }
  return finalState;
}
