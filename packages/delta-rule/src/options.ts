import { FLOATS, type OpContext } from "@mlxts/core";

/** The largest key dimension: what a row of the state may take. */
export const MAX_KEY_DIM = 256;

export const QK_NORM = {
  kind: "choice",
  values: ["none", "sum-eps"],
  default: "none",
  doc: "normalise q and k: x / sqrt(sum x² + eps)",
} as const;

export const QK_NORM_EPS = { kind: "number", default: 1e-6, above: 0, doc: "eps of qkNorm" } as const;

export const CHUNK_LENGTH = {
  kind: "choice",
  values: [16, 32, 64],
  default: 64,
  doc: "tokens of a chunk",
} as const;

export const SCALE = { kind: "number", doc: "factor of the output, K^-1/2 in the known models" } as const;

/** The tensors both forms of the rule take. */
export const RULE_INPUTS = {
  q: { dtype: FLOATS, shape: "B T Hk K" },
  k: { dtype: ["=q"], shape: "B T Hk K" },
  v: { dtype: ["=q"], shape: "B T H V" },
  g: { dtype: ["f32"], shape: "B T H" },
  beta: { dtype: ["f32"], shape: "B T H" },
  initialState: { dtype: ["f32"], shape: "B H V K", optional: true },
} as const;

export const RULE_OUTPUTS = {
  o: { dtype: ["=q"], shape: "B T H V" },
  finalState: { dtype: ["f32"], shape: "B H V K", optional: true, inPlace: ["initialState"] },
} as const;

/** The buffers of both kernels of the whole rule, in binding order. */
export const RULE_BUFFERS = {
  q: "read",
  k: "read",
  v: "read",
  g: "read",
  beta: "read",
  initialState: "read?",
  o: "write",
  finalState: "write?",
} as const;

export const RULE_IN_PLACE = [["finalState", "initialState"]] as const;

export interface RuleOptions {
  scale: number;
  qkNorm: "none" | "sum-eps";
  qkNormEps: number;
}

/** The parameters that both kernels have. */
export function ruleParams(dims: RuleDims, { scale, qkNorm, qkNormEps }: RuleOptions) {
  return {
    tokens: dims.T,
    keyHeads: dims.Hk,
    heads: dims.H,
    keyDim: dims.K,
    valueDim: dims.V,
    qkNorm: qkNorm === "none" ? 0 : 1,
    eps: qkNormEps,
    scale,
  };
}

export interface RuleDims {
  B: number;
  T: number;
  Hk: number;
  H: number;
  K: number;
  V: number;
}

/** Relations of dimensions that hold on every path. */
export function checkRuleDims({ dims, fail }: Pick<OpContext, "dims" | "fail">): void {
  const { Hk, H, K } = dims as Partial<RuleDims>;
  if (H !== undefined && Hk !== undefined && H % Hk !== 0) fail("H", `be a multiple of Hk (${Hk})`, H);
  if (K !== undefined && K > MAX_KEY_DIM) fail("k", `have at most ${MAX_KEY_DIM} elements per head (K)`, K);
}
