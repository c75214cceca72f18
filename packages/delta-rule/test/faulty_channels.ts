// The chunked form with a gate for each channel once more, one head at a time, with a switch for each plausible mistake.
// Equal lengths, gates in ln, block heads, states [V, K].
import type { RuleInputs, RuleShape } from "../src/reference.ts";

export type ChannelFault =
  | "kkt without decay"
  | "kkt mask inclusive"
  | "kkt without beta"
  | "beta on the column key"
  | "factored product"
  | "sub-blocks refer to their last row"
  | "decay of the row's channel sum"
  | "no decay in w"
  | "no decay of the query"
  | "scores without decay"
  | "output mask strict"
  | "state not decayed"
  | "keys not gated"
  | "vNew gated too"
  | "keys gated by the first token"
  | "cumsum across chunks"
  | "exclusive cumsum"
  | "G_last from row BT - 1"
  | "last chunk not in state"
  | "snapshot after update"
  | "decay on value rows"
  | "query with decay rounded"
  | "scores not rounded"
  | "gated key not rounded"
  | "gated key rounded twice"
  | "vNew not rounded"
  | "decayed key of w not rounded"
  | "state rounded before w Sᵀ"
  | "beta after the dot";

export interface ChannelOptions {
  BT: number;
  scale: number;
  /** Of the vectors, √(Σx² + eps); absent: they are as they are. */
  normEps: number | undefined;
  round: (x: number) => number;
  fault?: ChannelFault | undefined;
}

type Row = Float64Array;
const at = (row: Row, c: number) => row[c] as number;
const rowsOf = (count: number, of: (i: number) => Row): Row[] => Array.from({ length: count }, (_, i) => of(i));

function dot(a: Row, b: Row): number {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += at(a, i) * at(b, i);
  return sum;
}

function addScaled(to: Row, factor: number, x: Row): void {
  for (let i = 0; i < to.length; i++) to[i] = at(to, i) + factor * at(x, i);
}

const f32 = Math.fround;
/** exp() of two f32 exponents, multiplied in f32. */
const factored = (a: number, b: number) => f32(f32(Math.exp(a)) * f32(Math.exp(b)));

export function faultyChannels(
  { B, T, Hk, H, K, V }: RuleShape,
  inputs: RuleInputs,
  { BT, scale, normEps, round, fault }: ChannelOptions,
): { o: Float64Array; finalState: Float64Array } {
  const is = (name: ChannelFault) => fault === name;
  const o = new Float64Array(B * T * H * V);
  const finalState = new Float64Array(B * H * V * K);
  const unit = (data: Float64Array, token: number, kh: number) => {
    const x = data.slice((token * Hk + kh) * K, (token * Hk + kh + 1) * K);
    if (normEps === undefined) return x;
    const length = Math.sqrt(dot(x, x) + normEps);
    return x.map((value) => round(value / length));
  };
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++) {
      const kh = Math.floor(h / (H / Hk));
      const stateAt = (b * H + h) * V * K;
      let S = rowsOf(V, (r) =>
        Float64Array.from({ length: K }, (_, c) => inputs.initialState?.[stateAt + r * K + c] ?? 0),
      );
      let carried = new Float64Array(K);
      for (let first = 0; first < T; first += BT) {
        const n = Math.min(BT, T - first);
        const token = (i: number) => b * T + first + i;
        const head = (i: number) => token(i) * H + h;
        const q = rowsOf(n, (i) => unit(inputs.q, token(i), kh));
        const k = rowsOf(n, (i) => unit(inputs.k, token(i), kh));
        const v = rowsOf(n, (i) => inputs.v.slice(head(i) * V, (head(i) + 1) * V));
        const beta = (i: number) => inputs.beta[head(i)] as number;
        const gate = (i: number) => inputs.g.subarray(head(i) * K, (head(i) + 1) * K);
        let sum = is("cumsum across chunks") ? carried : new Float64Array(K);
        const G = rowsOf(n, (i) => {
          const before = sum;
          sum = sum.map((x, c) => x + at(gate(i), c));
          return is("exclusive cumsum") ? before : sum;
        });
        carried = sum;
        const block = (i: number) => i - (i % 16);
        /** What channel c of token j has lost at token i. */
        const decay = (i: number, j: number, c: number): number => {
          const [Gi, Gj] = [at(G[i] as Row, c), at(G[j] as Row, c)];
          if (is("factored product")) return factored(Gi, -Gj);
          if (is("sub-blocks refer to their last row") && block(i) !== block(j)) {
            const reference = at(G[Math.min(block(i) + 15, n - 1)] as Row, c);
            return factored(Gi - reference, reference - Gj);
          }
          if (is("decay of the row's channel sum")) return Math.exp(Gi);
          return Math.exp(Gi - Gj);
        };
        const product = (x: Row, i: number, j: number, decays: boolean) => {
          let total = 0;
          for (let c = 0; c < K; c++) total += at(x, c) * at(k[j] as Row, c) * (decays ? decay(i, j, c) : 1);
          return total;
        };
        const weighted = k.map((row, i) => row.map((x) => round(beta(i) * x)));
        const unweighted = is("kkt without beta") || is("beta on the column key") || is("beta after the dot");
        const A = rowsOf(n, () => new Float64Array(n));
        for (let i = 0; i < n; i++)
          for (let j = 0; j < (is("kkt mask inclusive") ? i + 1 : i); j++) {
            const left = (unweighted ? k : weighted)[i] as Row;
            const factor = is("beta on the column key") ? beta(j) : is("beta after the dot") ? beta(i) : 1;
            (A[i] as Row)[j] = factor * product(left, i, j, !is("kkt without decay"));
          }
        const X = rowsOf(n, () => new Float64Array(n));
        for (const [i, row] of X.entries()) {
          for (let m = 0; m < i; m++) addScaled(row, -at(A[i] as Row, m), X[m] as Row);
          row[i] = 1;
          const diagonal = 1 + at(A[i] as Row, i);
          for (let j = 0; j <= i; j++) row[j] = at(row, j) / diagonal;
        }
        const times = (right: Row[]) =>
          X.map((row, i) => {
            const out = new Float64Array((right[0] as Row).length);
            for (let j = 0; j <= i; j++) addScaled(out, at(row, j), right[j] as Row);
            return out.map(round);
          });
        const u = times(v.map((row, i) => row.map((x) => round(beta(i) * x))));
        const ofW = is("decayed key of w not rounded") ? (x: number) => x : round;
        const w = times(
          k.map((row, i) =>
            row.map((x, c) => ofW(beta(i) * (is("no decay in w") ? 1 : Math.exp(at(G[i] as Row, c))) * x)),
          ),
        );
        const tail = is("G_last from row BT - 1") && n < BT;
        const last = (G[n - 1] as Row).map((x, c) => x + (tail ? at(gate(n - 1), c) : 0));
        const seen = is("state rounded before w Sᵀ") ? S.map((row) => row.map(round)) : S;
        const d = u.map((row, i) => row.map((x, r) => x - dot(w[i] as Row, seen[r] as Row)));
        const vNew = is("vNew not rounded") ? d : d.map((row) => row.map(round));
        const keys = k.map((row, i) =>
          row.map((x, c) => {
            const from = at(G[is("keys gated by the first token") ? 0 : i] as Row, c);
            const gated = is("keys not gated") ? x : x * Math.exp(at(last, c) - from);
            if (is("gated key rounded twice")) return round(round(Math.exp(at(last, c) - from)) * x);
            return is("gated key not rounded") ? gated : round(gated);
          }),
        );
        const next = S.map((row, r) => {
          const out = row.map((s, c) =>
            is("state not decayed") ? s : s * Math.exp(at(last, is("decay on value rows") ? r % K : c)),
          );
          for (let i = 0; i < n; i++) {
            const again = is("vNew gated too") ? Math.exp(at(last, 0) - at(G[i] as Row, 0)) : 1;
            addScaled(out, at(vNew[i] as Row, r) * again, keys[i] as Row);
          }
          return out;
        });
        const stored = (is("snapshot after update") ? next : S).map((row) => row.map(round));
        if (!(is("last chunk not in state") && first + BT >= T)) S = next;
        for (let i = 0; i < n; i++) {
          const out = o.subarray(head(i) * V, (head(i) + 1) * V);
          const query = (q[i] as Row).map((x, c) => {
            const decayed = is("no decay of the query") ? x : x * Math.exp(at(G[i] as Row, c));
            return is("query with decay rounded") ? round(decayed) : decayed;
          });
          for (let r = 0; r < V; r++) out[r] = dot(query, stored[r] as Row);
          for (let j = 0; j < (is("output mask strict") ? i : i + 1); j++) {
            const score = product(q[i] as Row, i, j, !is("scores without decay"));
            addScaled(out, is("scores not rounded") ? score : round(score), vNew[j] as Row);
          }
        }
      }
      for (const [r, row] of S.entries()) finalState.set(row, stateAt + r * K);
    }
  return { o: o.map((x) => scale * x), finalState };
}
