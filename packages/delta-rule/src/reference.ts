// The ops in plain f64: what every device is compared with, and the documentation of the mathematics.

/** Gates of `rows` rows of `aLog.length` heads. */
export function deltaGatesReference(
  a: Float64Array,
  b: Float64Array,
  aLog: Float64Array,
  dtBias: Float64Array,
  betaScale: number,
  lowerBound?: number,
): { g: Float64Array; beta: Float64Array } {
  const heads = aLog.length;
  const g = new Float64Array(a.length);
  const beta = new Float64Array(a.length);
  for (let i = 0; i < a.length; i++) {
    const head = i % heads;
    const rate = Math.exp(aLog[head] as number);
    const x = (a[i] as number) + (dtBias[head] as number);
    const softplus = x > 20 ? x : Math.log1p(Math.exp(x));
    g[i] = lowerBound === undefined ? -rate * softplus : lowerBound / (1 + Math.exp(-rate * x));
    beta[i] = betaScale / (1 + Math.exp(-(b[i] as number)));
  }
  return { g, beta };
}

export interface ConvDims {
  N: number;
  T: number;
  C: number;
  W: number;
}

/** x [N, T, C], weight [C, W], bias [C], state [N, W−1, C] → y and the state after it. */
export function causalConv1dReference(
  { N, T, C, W }: ConvDims,
  x: Float64Array,
  weight: Float64Array,
  bias: Float64Array | undefined,
  state: Float64Array | undefined,
  activation: "none" | "silu",
): { y: Float64Array; newState: Float64Array } {
  const y = new Float64Array(N * T * C);
  const newState = new Float64Array(N * (W - 1) * C);
  for (let n = 0; n < N; n++)
    for (let c = 0; c < C; c++) {
      const history = Array.from({ length: W - 1 }, (_, i) => state?.[(n * (W - 1) + i) * C + c] ?? 0);
      const inputs = [...history, ...Array.from({ length: T }, (_, t) => x[(n * T + t) * C + c] as number)];
      for (let t = 0; t < T; t++) {
        let sum = bias?.[c] ?? 0;
        for (let i = 0; i < W; i++) sum += (weight[c * W + i] as number) * (inputs[t + i] as number);
        y[(n * T + t) * C + c] = activation === "silu" ? sum / (1 + Math.exp(-sum)) : sum;
      }
      for (let i = 0; i < W - 1; i++) newState[(n * (W - 1) + i) * C + c] = inputs[T + i] as number;
    }
  return { y, newState };
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
  g: Float64Array;
  beta: Float64Array;
  initialState?: Float64Array | undefined;
}

/** Rows of `dim` divided by √(Σx² + eps). */
export function sumEpsNorm(x: Float64Array, dim: number, eps: number): Float64Array {
  const out = new Float64Array(x.length);
  for (let row = 0; row < x.length; row += dim) {
    let sum = eps;
    for (let i = row; i < row + dim; i++) sum += (x[i] as number) ** 2;
    for (let i = row; i < row + dim; i++) out[i] = (x[i] as number) / Math.sqrt(sum);
  }
  return out;
}

/** The gated delta rule, one token after the other. */
export function gatedDeltaRuleReference(
  { B, T, Hk, H, K, V }: RuleShape,
  inputs: RuleInputs,
  scale: number,
  normEps?: number,
): { o: Float64Array; finalState: Float64Array } {
  const { v, g, beta, initialState } = inputs;
  const q = normEps === undefined ? inputs.q : sumEpsNorm(inputs.q, K, normEps);
  const k = normEps === undefined ? inputs.k : sumEpsNorm(inputs.k, K, normEps);
  const o = new Float64Array(B * T * H * V);
  const finalState = initialState ? initialState.slice() : new Float64Array(B * H * V * K);
  for (let b = 0; b < B; b++)
    for (let h = 0; h < H; h++) {
      const kh = Math.floor(h / (H / Hk));
      for (let t = 0; t < T; t++) {
        const at = (b * T + t) * H + h;
        const keyAt = ((b * T + t) * Hk + kh) * K;
        const key = k.subarray(keyAt, keyAt + K);
        const query = q.subarray(keyAt, keyAt + K);
        const decay = Math.exp(g[at] as number);
        for (let row = 0; row < V; row++) {
          const stateAt = ((b * H + h) * V + row) * K;
          const state = finalState.subarray(stateAt, stateAt + K);
          let predicted = 0;
          for (let c = 0; c < K; c++) predicted += decay * (state[c] as number) * (key[c] as number);
          const error = (beta[at] as number) * ((v[at * V + row] as number) - predicted);
          let out = 0;
          for (let c = 0; c < K; c++) {
            const s = decay * (state[c] as number) + error * (key[c] as number);
            state[c] = s;
            out += s * (query[c] as number);
          }
          o[at * V + row] = scale * out;
        }
      }
    }
  return { o, finalState };
}
