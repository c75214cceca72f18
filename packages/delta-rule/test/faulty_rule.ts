// The chunked form written once more, for one head at a time, with a switch for each plausible mistake. Without a
// mistake it equals the reference; test/mutants.test.ts proves that, and that every mistake is seen.
import { roundTo } from "@mlxts/core";
import type { RuleInputs, RuleShape } from "../src/reference.ts";

export type Fault =
  | "cumsum across chunks"
  | "exclusive cumsum"
  | "no cumsum"
  | "kkt mask inclusive"
  | "output mask strict"
  | "kkt without beta"
  | "beta on the column key"
  | "kkt without decay"
  | "inverse is I - A"
  | "product-form inverse in f32"
  | "vNew stored gated"
  | "u used for vNew"
  | "v used for vNew"
  | "no decay in w"
  | "state not decayed"
  | "state not gated"
  | "snapshot after update"
  | "tiled head map"
  | "h0 ignored"
  | "h0 transposed"
  | "final state transposed"
  | "no scale"
  | "scale twice"
  | "q not normalized"
  | "k not normalized"
  | "mean-eps"
  | "max-eps"
  | "last chunk not in state"
  | "G_last from row BT - 1"
  | "junk in rows of the tail"
  | "log2 read as ln"
  | "exp before mask"
  | "mask by sign of the exponent"
  | "X in bf16"
  | "gate, then round d, then gate"
  | "gated copy rounded twice"
  | "gated copy not rounded"
  | "state rounded before w Sᵀ"
  | "beta after the dot"
  | "scores not rounded"
  | "h in f32"
  | "per-batch stride from key heads"
  | "undecayed prediction";

export interface FaultyOptions {
  BT: number;
  scale: number;
  normEps: number | undefined;
  round: (x: number) => number;
  fault?: Fault | undefined;
}

type Matrix = Float64Array[];

const bf16 = (x: number) => roundTo("bf16", x);

function dot(a: Float64Array, b: Float64Array): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += (a[i] as number) * (b[i] as number);
  return sum;
}
/** to += factor · x. */
function addScaled(to: Float64Array, factor: number, x: Float64Array): void {
  for (let i = 0; i < to.length; i++) to[i] = (to[i] as number) + factor * (x[i] as number);
}
const entry = (m: Matrix, i: number, j: number) => (m[i] as Float64Array)[j] as number;
const zeros = (n: number, columns: number): Matrix => Array.from({ length: n }, () => new Float64Array(columns));

/** left · right for the lower triangle of left. */
function lowerProduct(left: Matrix, right: Matrix): Matrix {
  const columns = (right[0] as Float64Array).length;
  return left.map((row, i) => {
    const out = new Float64Array(columns);
    for (let j = 0; j <= i; j++) addScaled(out, row[j] as number, right[j] as Float64Array);
    return out;
  });
}

function invert(A: Matrix, fault: Fault | undefined): Matrix {
  const n = A.length;
  const X = zeros(n, n);
  if (fault === "product-form inverse in f32") {
    // (I − A)(I + A²)(I + A⁴)…, every entry in f32.
    const f32 = (m: Matrix) => m.map((row) => row.map(Math.fround));
    const identity = zeros(n, n).map((row, i) => row.fill(1, i, i + 1));
    const plus = (m: Matrix) => m.map((row, i) => row.map((x, j) => x + entry(identity, i, j)));
    let power = f32(lowerProduct(A, A));
    let product = plus(A.map((row) => row.map((x) => -x)));
    for (let size = 2; size < n; size *= 2) {
      product = f32(lowerProduct(product, plus(power)));
      power = f32(lowerProduct(power, power));
    }
    return product;
  }
  for (let i = 0; i < n; i++) {
    const row = X[i] as Float64Array;
    if (fault === "inverse is I - A") for (let j = 0; j < i; j++) row[j] = -entry(A, i, j);
    else
      for (let m = 0; m < i; m++)
        for (let j = 0; j <= m; j++) row[j] = (row[j] as number) - entry(A, i, m) * entry(X, m, j);
    row[i] = 1;
    const diagonal = 1 + entry(A, i, i);
    for (let j = 0; j <= i; j++) row[j] = (row[j] as number) / diagonal;
  }
  return X;
}

function normalize(x: Float64Array, eps: number, fault: Fault | undefined): Float64Array {
  const sum = dot(x, x);
  if (fault === "mean-eps") return x.map((v) => v / Math.sqrt(sum + eps * x.length));
  if (fault === "max-eps") return x.map((v) => v / Math.max(Math.sqrt(sum), eps));
  return x.map((v) => v / Math.sqrt(sum + eps));
}

/** The whole rule in chunks; the intermediate roundings of the contract, unless `fault` says otherwise. */
export function faultyRule(
  { B, T, Hk, H, K, V }: RuleShape,
  inputs: RuleInputs,
  { BT, scale, normEps, round, fault }: FaultyOptions,
): { o: Float64Array; finalState: Float64Array } {
  const o = new Float64Array(B * T * H * V);
  const finalState = new Float64Array(B * H * V * K);
  const is = (name: Fault) => fault === name;
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++) {
      const kh = is("tiled head map") ? h % Hk : Math.floor(h / (H / Hk));
      const batch = is("per-batch stride from key heads") ? b * T * Hk : b * T * H;
      const token = (t: number) => batch + t * H + h;
      const vector = (data: Float64Array, t: number, unit: boolean) => {
        const at = ((b * T + t) * Hk + kh) * K;
        const x = data.slice(at, at + K);
        return unit && normEps !== undefined ? normalize(x, normEps, fault).map(round) : x;
      };
      let S = zeros(V, K);
      if (inputs.initialState && !is("h0 ignored"))
        S = S.map((row, r) =>
          row.map((_, c) => {
            const at = (b * H + h) * V * K;
            return inputs.initialState?.[at + (is("h0 transposed") ? c * V + r : r * K + c)] as number;
          }),
        );
      let carried = 0;
      let summed = 0;
      for (let first = 0; first < T; first += BT) {
        const n = Math.min(BT, T - first);
        const at = (i: number) => token(first + i);
        const q = Array.from({ length: n }, (_, i) => vector(inputs.q, first + i, !is("q not normalized")));
        const k = Array.from({ length: n }, (_, i) => vector(inputs.k, first + i, !is("k not normalized")));
        const v = Array.from({ length: n }, (_, i) => inputs.v.slice(at(i) * V, (at(i) + 1) * V));
        const beta = Array.from({ length: n }, (_, i) => inputs.beta[at(i)] as number);
        summed = is("cumsum across chunks") ? carried : 0;
        const G = Array.from({ length: n }, (_, i) => {
          const g = (inputs.g[at(i)] as number) * (is("log2 read as ln") ? Math.LN2 : 1);
          if (is("no cumsum")) return g;
          const before = summed;
          summed += g;
          return is("exclusive cumsum") ? before : summed;
        });
        carried = summed;
        const decay = (i: number, j: number) => {
          const e = (G[i] as number) - (G[j] as number);
          if (is("mask by sign of the exponent"))
            return Math.fround(G[i] as number) - Math.fround(G[j] as number) >= 0 && i !== j ? 0 : Math.exp(e);
          return Math.exp(e);
        };
        /** Of what a token's prediction sees. */
        const undecayed = (i: number) => Math.exp(is("undecayed prediction") ? -(inputs.g[at(i)] as number) : 0);
        const A = zeros(n, n);
        const weighted = k.map((row, i) => row.map((x) => round((beta[i] as number) * x)));
        const unweighted = is("kkt without beta") || is("beta on the column key") || is("beta after the dot");
        for (let i = 0; i < n; i++)
          for (let j = 0; j < (is("kkt mask inclusive") ? i + 1 : i); j++) {
            const left = (unweighted ? k[i] : weighted[i]) as Float64Array;
            const right = (is("beta on the column key") ? weighted[j] : k[j]) as Float64Array;
            const product = dot(left, right) * (is("beta after the dot") ? (beta[i] as number) : 1);
            (A[i] as Float64Array)[j] = is("kkt without decay") ? product : product * decay(i, j) * undecayed(i);
          }
        if (is("exp before mask"))
          // What the masked half gives when exp overflows in f32 and is multiplied by 0.
          for (let i = 0; i < n; i++)
            for (let j = i + 1; j < n; j++) if (decay(i, j) > 3.4e38) (A[n - 1] as Float64Array)[0] = Number.NaN;
        const X = invert(A, fault).map((row) => (is("X in bf16") ? row.map(bf16) : row));
        const roundAll = (m: Matrix) => m.map((row) => row.map(round));
        const u = roundAll(
          lowerProduct(
            X,
            v.map((row, i) => row.map((x) => round((beta[i] as number) * x))),
          ),
        );
        const w = roundAll(
          lowerProduct(
            X,
            k.map((row, i) => {
              const f = (beta[i] as number) * (is("no decay in w") ? 1 : Math.exp(G[i] as number) * undecayed(i));
              return row.map((x) => round(f * x));
            }),
          ),
        );
        const last =
          is("G_last from row BT - 1") && n < BT
            ? (G[n - 1] as number) + (inputs.g[at(n - 1)] as number)
            : (G[n - 1] as number);
        const gate = (i: number) => (is("state not gated") ? 1 : Math.exp(last - (G[i] as number)));
        const seen = is("state rounded before w Sᵀ") ? roundAll(S) : S;
        const d = u.map((row, i) => row.map((x, r) => x - dot(w[i] as Float64Array, seen[r] as Float64Array)));
        const gated = d.map((row, i) =>
          row.map((x) => {
            if (is("gate, then round d, then gate")) return round(x) * gate(i);
            if (is("gated copy rounded twice")) return round(round(x) * gate(i));
            return is("gated copy not rounded") ? x * gate(i) : round(x * gate(i));
          }),
        );
        let vNew = roundAll(d);
        if (is("vNew stored gated")) vNew = gated;
        if (is("u used for vNew")) vNew = u;
        if (is("v used for vNew")) vNew = v;
        const kept = is("state not decayed") ? 1 : Math.exp(last);
        const next = S.map((row, r) => {
          const out = row.map((s) => s * kept);
          for (let i = 0; i < n; i++) addScaled(out, entry(gated, i, r), k[i] as Float64Array);
          // A tail tile read past its end: a row beyond n holds the last token again.
          if (is("junk in rows of the tail") && n < BT)
            addScaled(out, entry(gated, n - 1, r), k[n - 1] as Float64Array);
          return out;
        });
        const before = is("snapshot after update") ? next : S;
        const stored = is("h in f32") ? before : roundAll(before);
        if (!(is("last chunk not in state") && first + BT >= T)) S = next;
        for (let i = 0; i < n; i++) {
          const out = o.subarray(at(i) * V, (at(i) + 1) * V);
          for (let r = 0; r < V; r++)
            out[r] = Math.exp(G[i] as number) * dot(q[i] as Float64Array, stored[r] as Float64Array);
          for (let j = 0; j < (is("output mask strict") ? i : i + 1); j++) {
            const score = dot(q[i] as Float64Array, k[j] as Float64Array) * decay(i, j);
            addScaled(out, is("scores not rounded") ? score : round(score), vNew[j] as Float64Array);
          }
        }
      }
      for (let r = 0; r < V; r++)
        for (let c = 0; c < K; c++)
          finalState[(b * H + h) * V * K + (is("final state transposed") ? c * V + r : r * K + c)] = entry(S, r, c);
    }
  const factor = is("no scale") ? 1 : is("scale twice") ? scale * scale : scale;
  return { o: o.map((x) => factor * x), finalState };
}

export type SequentialFault = "undecayed prediction" | "no delta term" | "query before update" | "decay after update";

/** The mistakes of the sequential form. */
export function faultySequence(
  { B, T, Hk, H, K, V }: RuleShape,
  { q, k, v, g, beta, initialState }: RuleInputs,
  { scale, normEps, fault }: { scale: number; normEps: number | undefined; fault: SequentialFault | undefined },
): { o: Float64Array; finalState: Float64Array } {
  const o = new Float64Array(B * T * H * V);
  const finalState = initialState ? initialState.slice() : new Float64Array(B * H * V * K);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++)
      for (let t = 0; t < T; t++) {
        const at = (b * T + t) * H + h;
        const keyAt = ((b * T + t) * Hk + Math.floor(h / (H / Hk))) * K;
        const [key, query] = [k, q].map((x) => {
          const row = x.subarray(keyAt, keyAt + K);
          return normEps === undefined ? row : normalize(row, normEps, undefined);
        }) as [Float64Array, Float64Array];
        const a = Math.exp(g[at] as number);
        for (let r = 0; r < V; r++) {
          const row = finalState.subarray(((b * H + h) * V + r) * K, ((b * H + h) * V + r + 1) * K);
          const undecayed = dot(row, key);
          const predicted =
            fault === "undecayed prediction" || fault === "decay after update" ? undecayed : a * undecayed;
          const e = (beta[at] as number) * ((v[at * V + r] as number) - (fault === "no delta term" ? 0 : predicted));
          if (fault === "query before update") o[at * V + r] = scale * a * dot(row, query);
          for (let c = 0; c < K; c++) {
            const s = row[c] as number;
            const added = e * (key[c] as number);
            row[c] = fault === "decay after update" ? a * (s + added) : a * s + added;
          }
          if (fault !== "query before update") o[at * V + r] = scale * dot(row, query);
        }
      }
  return { o, finalState };
}
