// The rule token by token written once more, with all that a call may ask for and a switch for each plausible mistake in
// it. Without a mistake it equals the reference; test/feature_mutants.test.ts proves that, and that every mistake is seen.
import { roundTo } from "@mlxts/core";
import type { RuleInputs, RuleLog, RuleResults, RuleShape } from "../src/reference.ts";
import type { RuleOptions } from "./rule_cases.ts";

export type FeatureFault =
  | "initial state in the other layout"
  | "final state in the other layout"
  | "snapshots in the other layout"
  | "last states in the other layout"
  | "log state in the other layout"
  | "mean-eps for sum-eps"
  | "sum-eps for mean-eps"
  | "mean-eps without the root of K"
  | "max-eps for sum-eps"
  | "sum-eps for max-eps"
  | "eps outside of the root"
  | "block for tiled"
  | "tiled for block"
  | "gate read as ln"
  | "ln read as log2"
  | "logarithm of a decay of 0"
  | "state leaks between sequences"
  | "initial state of the first sequence for all"
  | "empty sequences end with zeros"
  | "final state of the last sequence for all"
  | "sequences end a token late"
  | "mask zeroes o but updates the state"
  | "skipped tokens decay the state"
  | "o of skipped tokens is read from the state"
  | "mask of the first row for all"
  | "only 1 is kept by the mask"
  | "snapshots a boundary late"
  | "snapshots a boundary early"
  | "snapshots before their last token"
  | "snapshots counted from the row's beginning"
  | "snapshots placed by the row's tokens"
  | "last states oldest first"
  | "last states a token early"
  | "initial state in all older slots"
  | "no initial state among the last states"
  | "log keys not normalized"
  | "log keys rounded"
  | "log deltas without beta"
  | "log deltas of the undecayed prediction"
  | "log gates summed up"
  | "log gates as ln"
  | "log state at the end"
  | "log state a token late"
  | "log entries from the left"
  | "absent entries decay to zero"
  | "gates of channels transposed"
  | "one channel's gate for all"
  | "gates of channels on value rows";

type Options = Required<Pick<RuleOptions, "gate" | "gqa" | "stateLayout" | "qkNorm" | "qkNormEps">> & RuleOptions;

const other = (layout: Options["stateLayout"]) => (layout === "kv" ? "vk" : "kv");

function lengthOf(x: Float64Array, { qkNorm, qkNormEps: eps }: Options, fault: FeatureFault | undefined): number {
  const sum = x.reduce((total, value) => total + value * value, 0);
  const swap = (from: Options["qkNorm"], to: Options["qkNorm"]) => fault === `${to} for ${from}` && qkNorm === from;
  if (qkNorm === "none") return 1;
  if (fault === "eps outside of the root") return Math.sqrt(sum) + eps;
  if (fault === "mean-eps without the root of K") return Math.sqrt(sum / x.length + eps);
  const kind = swap("sum-eps", "mean-eps")
    ? "mean-eps"
    : swap("mean-eps", "sum-eps") || swap("max-eps", "sum-eps")
      ? "sum-eps"
      : swap("sum-eps", "max-eps")
        ? "max-eps"
        : qkNorm;
  if (kind === "max-eps") return Math.max(Math.sqrt(sum), eps);
  return Math.sqrt(sum + (kind === "mean-eps" ? x.length * eps : eps));
}

function decayOf(g: number, gate: Options["gate"], fault: FeatureFault | undefined): number {
  // Sums of logarithms that are −∞ have no difference.
  if (fault === "logarithm of a decay of 0" && gate === "linear" && g === 0) return Number.NaN;
  if (fault === "ln read as log2" && gate === "ln") return 2 ** g;
  if (fault === "gate read as ln") return Math.exp(g);
  if (gate === "linear") return g;
  return Math.exp(gate === "ln" ? g : gate === "log2" ? g * Math.LN2 : -g);
}

/** The whole rule with `fault`. */
export const faultyFeatures =
  (fault: FeatureFault | undefined) =>
  (shape: RuleShape, inputs: RuleInputs, given: RuleOptions): RuleResults => {
    const is = (name: FeatureFault) => fault === name;
    const options: Options = { gate: "ln", gqa: "block", stateLayout: "vk", qkNorm: "none", qkNormEps: 1e-6, ...given };
    const { B, T, Hk, H, K, V } = shape;
    const { snapshotEvery: every = 0, lastTokens: n = 0, stateLayout } = options;
    const { mask, cuSeqlens } = inputs;
    const channels = inputs.g.length / (B * T * H);
    const begins = cuSeqlens ? [...cuSeqlens] : Array.from({ length: B + 1 }, (_, b) => b * T);
    const N = begins.length - 1;
    const size = V * K;
    const zeros = (count: number) => new Float64Array(count);
    const o = zeros(B * T * H * V);
    const finalState = zeros(N * H * size);
    const snapshots = zeros(every ? B * Math.floor(T / every) * H * size : 0).fill(Number.NaN);
    const lastStates = zeros(N * n * H * size);
    const log: RuleLog = {
      logState: zeros(n ? N * H * size : 0),
      logKeys: zeros(N * n * Hk * K),
      logDeltas: zeros(N * n * H * V),
      logGates: zeros(N * n * H * channels).fill(
        options.gate === "linear" && !is("absent entries decay to zero") ? 1 : 0,
      ),
    };
    const place = (layout: Options["stateLayout"], r: number, c: number) => (layout === "kv" ? c * V + r : r * K + c);
    const store = (to: Float64Array, slot: number, state: Float64Array, wrong: FeatureFault) => {
      const layout = is(wrong) ? other(stateLayout) : stateLayout;
      if ((slot + 1) * size > to.length) return;
      for (let r = 0; r < V; r++)
        for (let c = 0; c < K; c++) to[slot * size + place(layout, r, c)] = state[r * K + c] as number;
    };
    const load = (slot: number) => {
      const layout = is("initial state in the other layout") ? other(stateLayout) : stateLayout;
      const state = zeros(size);
      for (let r = 0; r < V; r++)
        for (let c = 0; c < K; c++) state[r * K + c] = inputs.initialState?.[slot * size + place(layout, r, c)] ?? 0;
      return state;
    };
    const skipped = (t: number) => {
      const kept = mask?.[is("mask of the first row for all") ? t % T : t] ?? 1;
      return is("only 1 is kept by the mask") ? kept !== 1 : kept === 0;
    };
    const swapMap = (options.gqa === "tiled" && is("block for tiled")) || is("tiled for block");
    const tiled = swapMap ? options.gqa === "block" : options.gqa === "tiled";
    const ends: Float64Array[] = [];
    let taken = 0;
    for (let s = 0; s < N; s++) {
      const begin = begins[s] as number;
      const end = Math.min(
        (begins[s + 1] as number) + (is("sequences end a token late") && begins[s + 1] !== begin ? 1 : 0),
        begins[N] as number,
      );
      const count = end - begin;
      for (let h = 0; h < H; h++) {
        const kh = tiled ? h % Hk : Math.floor(h / (H / Hk));
        let state = load((is("initial state of the first sequence for all") ? 0 : s) * H + h);
        if (is("state leaks between sequences") && s > 0) state = (ends[h] as Float64Array).slice();
        if (is("empty sequences end with zeros") && count === 0) state = zeros(size);
        const snapshot = (seen: number, t: number) => {
          if (!every) return;
          const base = is("snapshots counted from the row's beginning") ? t % T || (t === 0 ? 0 : T) : seen;
          if (base === 0 || base % every !== 0) return;
          const index = is("snapshots placed by the row's tokens") ? Math.floor(begin / every) : taken;
          const shift = is("snapshots a boundary late") ? -1 : is("snapshots a boundary early") ? 1 : 0;
          const at = index + seen / every - 1 + shift;
          if (Number.isInteger(at) && at >= 0) store(snapshots, at * H + h, state, "snapshots in the other layout");
        };
        const sums = zeros(channels);
        for (let t = begin; t <= end; t++) {
          const left = end - t;
          if (!is("snapshots before their last token")) snapshot(t - begin, t);
          const slot = is("last states oldest first") ? n - 1 - left : left - (is("last states a token early") ? 1 : 0);
          if (slot >= 0 && slot < n && !(is("no initial state among the last states") && t === begin))
            store(lastStates, (s * n + slot) * H + h, state, "last states in the other layout");
          if (t === begin && is("initial state in all older slots"))
            for (let i = left; i < n; i++)
              store(lastStates, (s * n + i) * H + h, state, "last states in the other layout");
          const logged = Math.min(n, count);
          const logAt = is("log state at the end") ? 0 : logged - (is("log state a token late") ? 1 : 0);
          if (n > 0 && left === Math.max(0, logAt))
            store(log.logState, s * H + h, state, "log state in the other layout");
          if (t === end) break;
          const at = t * H + h;
          if (is("snapshots before their last token")) snapshot(t - begin + 1, t + 1);
          const raw = inputs.k.slice((t * Hk + kh) * K, (t * Hk + kh + 1) * K);
          const rawQuery = inputs.q.slice((t * Hk + kh) * K, (t * Hk + kh + 1) * K);
          const [key, query] = [raw, rawQuery].map((x) => {
            const length = lengthOf(x, options, fault);
            return x.map((value) => value / length);
          }) as [Float64Array, Float64Array];
          const gates = Float64Array.from({ length: channels }, (_, c) => {
            if (is("gates of channels transposed")) return inputs.g[(t * channels + c) * H + h] as number;
            return inputs.g[at * channels + (is("one channel's gate for all") ? 0 : c)] as number;
          });
          const decays = gates.map((g) => decayOf(g, options.gate, fault));
          const read = () => {
            for (let r = 0; r < V; r++) {
              let sum = 0;
              for (let c = 0; c < K; c++) sum += (state[r * K + c] as number) * (query[c] as number);
              o[at * V + r] = options.scale * sum;
            }
          };
          const ofChannel = Float64Array.from({ length: K }, (_, c) => decays[channels === 1 ? 0 : c] as number);
          const onRows = channels > 1 && is("gates of channels on value rows");
          /** Of row r of the state. */
          const decayed = (r: number) => (onRows ? ofChannel.map(() => decays[r % K] as number) : ofChannel);
          if (skipped(t) && !is("mask zeroes o but updates the state")) {
            if (is("skipped tokens decay the state"))
              for (let r = 0; r < V; r++)
                for (let c = 0; c < K; c++) state[r * K + c] = (state[r * K + c] as number) * (decayed(r)[c] as number);
            if (is("o of skipped tokens is read from the state")) read();
            continue;
          }
          const entry = left <= n ? s * n + (is("log entries from the left") ? logged - left : n - left) : undefined;
          for (const [c, g] of gates.entries()) sums[c] = (sums[c] as number) + g;
          if (entry !== undefined) {
            const logKey = is("log keys not normalized") ? raw : key;
            log.logKeys.set(
              is("log keys rounded") ? logKey.map((x) => roundTo("f16", x)) : logKey,
              (entry * Hk + kh) * K,
            );
            const ln = is("log gates as ln") ? decays.map(Math.log) : gates;
            log.logGates.set(is("log gates summed up") ? sums : ln, (entry * H + h) * channels);
          }
          for (let r = 0; r < V; r++) {
            let predicted = 0;
            let undecayed = 0;
            const decay = decayed(r);
            for (let c = 0; c < K; c++) {
              const i = r * K + c;
              undecayed += (state[i] as number) * (key[c] as number);
              state[i] = (state[i] as number) * (decay[c] as number);
              predicted += (state[i] as number) * (key[c] as number);
            }
            const value = inputs.v[at * V + r] as number;
            const delta = (inputs.beta[at] as number) * (value - predicted);
            for (let c = 0; c < K; c++) state[r * K + c] = (state[r * K + c] as number) + delta * (key[c] as number);
            if (entry === undefined) continue;
            log.logDeltas[(entry * H + h) * V + r] = is("log deltas without beta")
              ? value - predicted
              : is("log deltas of the undecayed prediction")
                ? (inputs.beta[at] as number) * (value - undecayed)
                : delta;
          }
          if (!skipped(t)) read();
        }
        ends[h] = state;
        store(finalState, s * H + h, state, "final state in the other layout");
      }
      if (every) taken += Math.floor(count / every);
    }
    if (is("final state of the last sequence for all"))
      for (let s = 0; s < N; s++) finalState.copyWithin(s * H * size, (N - 1) * H * size, N * H * size);
    return { o, finalState, ...(every && { snapshots }), ...(n > 0 && { lastStates, ...log }) };
  };
