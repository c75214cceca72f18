import { FLOATS, type OpContext, type ShapeRule, type Tensor } from "@mlxts/core";

/** The largest key dimension: what a row of the state may take. */
export const MAX_KEY_DIM = 256;
/** The most tokens that can be taken back. */
const MAX_LAST_TOKENS = 64;

/** The spaces of gates, each with ln(decay) per unit of g; 0: g is the decay itself. */
const GATE_FACTORS = { ln: 1, log2: Math.LN2, linear: 0, "neg-ln": -1 } as const;
export type GateSpace = keyof typeof GATE_FACTORS;
export const gateFactor = (gate: GateSpace): number => GATE_FACTORS[gate];

export const GATE = {
  kind: "choice",
  values: ["ln", "log2", "linear", "neg-ln"],
  default: "ln",
  doc: "what g is: the decay is `ln`: exp(g), `log2`: 2^g, `linear`: g itself, `neg-ln`: exp(−g)",
} as const;

export const GQA = {
  kind: "choice",
  values: ["block", "tiled"],
  default: "block",
  doc: "key head of value head h: `block`: ⌊h / (H / Hk)⌋, `tiled`: h mod Hk",
} as const;

export const STATE_LAYOUT = {
  kind: "choice",
  values: ["vk", "kv"],
  default: "vk",
  doc: "states are [.., V, K] or [.., K, V]",
} as const;

export const QK_NORM = {
  kind: "choice",
  values: ["none", "sum-eps", "mean-eps", "max-eps"],
  default: "none",
  doc: "normalize q and k: x / sqrt(sum x² + eps), x / sqrt(sum x² + K·eps), x / max(|x|, eps)",
} as const;

export const QK_NORM_EPS = { kind: "number", default: 1e-6, above: 0, doc: "eps of qkNorm" } as const;

export const CHUNK_LENGTH = {
  kind: "choice",
  values: [16, 32, 64],
  default: 64,
  doc: "tokens of a chunk",
} as const;

/** The most tokens of a chunk: cut at its multiples a sequence has the bits of one call, whatever the device takes. */
export const LONGEST_CHUNK = 64;

/** The whole rule knows which length is the fastest. */
export const RULE_CHUNK_LENGTH = {
  kind: "choice",
  values: CHUNK_LENGTH.values,
  optional: true,
  doc: "tokens of a chunk; absent: the fastest number on the device, a divisor of 64",
} as const;

export const SCALE = { kind: "number", doc: "factor of the output, K^-1/2 in the known models" } as const;

export const SNAPSHOT_EVERY = {
  kind: "number",
  optional: true,
  integer: true,
  min: 1,
  doc: "tokens from one of `snapshots` to the next; with chunks a multiple of `chunkLength`, or of 64 in its absence",
} as const;

export const LAST_TOKENS = {
  kind: "number",
  optional: true,
  integer: true,
  min: 1,
  max: MAX_LAST_TOKENS,
  doc: "tokens that `lastStates` and the log reach back",
} as const;

/** The options that say what the tensors mean. */
export const CONVENTIONS = {
  scale: SCALE,
  gate: GATE,
  gqa: GQA,
  stateLayout: STATE_LAYOUT,
  qkNorm: QK_NORM,
  qkNormEps: QK_NORM_EPS,
} as const;

/** What the ops of this package see of a call, whatever their declaration. */
export interface CallContext {
  readonly dims: Readonly<Record<string, number>>;
  readonly tensors: Readonly<Record<string, Tensor>>;
  readonly options: Readonly<Record<string, unknown>>;
  /** What the caller passed as inputs: tensors, and `true` for outputs that are asked for. */
  readonly inputs: object;
  fail: OpContext["fail"];
}

/** The number of sequences: those that `cuSeqlens` packs into one row, or else the rows. */
export function sequenceCount({ dims, tensors }: Pick<CallContext, "dims" | "tensors">): number {
  const { cuSeqlens } = tensors;
  return cuSeqlens ? (cuSeqlens.shape[0] ?? 1) - 1 : ((dims.N ?? dims.B) as number);
}

/** The gates of a head for each token: K where each channel has a gate of its own, else 1. */
export const channelsOf = (gates: Tensor | undefined, K: number): number => (gates?.shape.length === 4 ? K : 1);

/** The shape of gates: one for each head, or one for each channel of each head. */
export const GATES = "B T H | B T H K";

/** The shape of gates that are as many as those of the tensor `name`. */
export function gateShape(name: string): ShapeRule {
  return {
    text: "B, T, H or B, T, H, K",
    of: ({ dims: { B, T, H, K }, tensors }) =>
      (tensors[name]?.shape.length === 4 ? [B, T, H, K] : [B, T, H]) as number[],
  };
}

function state(leading: string, of: (c: CallContext) => number[]): ShapeRule {
  return {
    text: `${leading}, H, V, K (kv: ${leading}, H, K, V)`,
    of: (c) => {
      const { H, V, K } = c.dims as unknown as RuleDims;
      return [...of(c), H, ...(c.options.stateLayout === "kv" ? [K, V] : [V, K])];
    },
  };
}

export const STATES = state("N", (c) => [sequenceCount(c)]);
export const SNAPSHOTS = state("snapshots", (c) => {
  const { B, T } = c.dims as unknown as RuleDims;
  return [B * Math.floor(T / (c.options.snapshotEvery as number))];
});
const LAST_STATES = state("N, lastTokens", (c) => [sequenceCount(c), c.options.lastTokens as number]);

/** What the log keeps of each of the last tokens. */
function logged(text: string, of: (c: CallContext) => (number | undefined)[]): ShapeRule {
  return {
    text: `N, lastTokens, ${text}`,
    of: (c) => [sequenceCount(c), c.options.lastTokens as number, ...of(c)] as number[],
  };
}

/** Boundaries of packed sequences. */
export const CU_SEQLENS = {
  dtype: ["i32"],
  shape: { text: "N + 1", of: ({ tensors }) => [Math.max(2, tensors.cuSeqlens?.shape[0] ?? 2)] },
  optional: true,
  doc: "where each packed sequence begins, and the end of the last one: from 0 to T, with B = 1",
} as const satisfies { dtype: ["i32"]; shape: ShapeRule; optional: true; doc: string };

/** The tensors both forms of the rule take. */
export const RULE_INPUTS = {
  q: { dtype: FLOATS, shape: "B T Hk K", doc: "queries" },
  k: { dtype: ["=q"], shape: "B T Hk K", doc: "keys" },
  v: { dtype: ["=q"], shape: "B T H V", doc: "values" },
  g: {
    dtype: ["f32"],
    shape: GATES,
    doc: "gate of each token and head, or of each channel; `gate` says in which space",
  },
  beta: { dtype: ["f32"], shape: "B T H", doc: "strength of each write" },
  initialState: {
    dtype: ["f32"],
    shape: STATES,
    optional: true,
    doc: "state before the first token, zeros when absent",
  },
  cuSeqlens: CU_SEQLENS,
  mask: {
    dtype: ["u8"],
    shape: "B T",
    optional: true,
    doc: "0 for tokens that leave the state as it is and have output 0",
  },
} as const;

export const RULE_OUTPUTS = {
  o: { dtype: ["=q"], shape: "B T H V", doc: "the output of each token" },
  finalState: {
    dtype: ["f32"],
    shape: STATES,
    optional: true,
    inPlace: ["initialState"],
    doc: "state after the last token of each sequence",
  },
  snapshots: {
    dtype: ["f32"],
    shape: SNAPSHOTS,
    optional: true,
    needs: ["snapshotEvery"],
    doc: "states after every `snapshotEvery` tokens",
  },
  lastStates: {
    dtype: ["f32"],
    shape: LAST_STATES,
    optional: true,
    needs: ["lastTokens"],
    doc: "states after each of the last `lastTokens` tokens",
  },
  logState: {
    dtype: ["f32"],
    shape: STATES,
    optional: true,
    needs: ["lastTokens"],
    doc: "state before the last `lastTokens` tokens",
  },
  logKeys: {
    dtype: ["f32"],
    shape: logged("Hk, K", ({ dims: { Hk, K } }) => [Hk, K]),
    optional: true,
    needs: ["lastTokens"],
    doc: "normalized keys of the last tokens",
  },
  logDeltas: {
    dtype: ["f32"],
    shape: logged("H, V", ({ dims: { H, V } }) => [H, V]),
    optional: true,
    needs: ["lastTokens"],
    doc: "what each of the last tokens wrote",
  },
  logGates: {
    dtype: ["f32"],
    shape: logged("H or H, K", ({ dims: { H, K }, tensors: { g } }) => (g?.shape.length === 4 ? [H, K] : [H])),
    optional: true,
    needs: ["lastTokens"],
    doc: "gates of the last tokens",
  },
} as const;

/** The parts of the log, written all or none. */
const LOG = ["logState", "logKeys", "logDeltas", "logGates"] as const;

/** The buffers that both kernels of the whole rule have, in binding order. */
export const RULE_BUFFERS = {
  q: "read",
  k: "read",
  v: "read",
  g: "read",
  beta: "read",
  initialState: "read?",
  cuSeqlens: "read?",
  mask: "read?",
  o: "write",
  finalState: "write?",
  snapshots: "write?",
} as const;

export const RULE_IN_PLACE = [["finalState", "initialState"]] as const;

/** The parameters that say where sequences, heads and chunks lie; see RULE_PARAMS. */
export const PLACE_PARAMS = {
  sequences: "u32",
  tokens: "u32",
  keyHeads: "u32",
  headsPerKey: "u32",
  heads: "u32",
  keyDim: "u32",
  valueDim: "u32",
  chunkLength: "u32",
} as const;

/**
 * The parameters of both kernels of the whole rule. Value head h has key head h / headsPerKey mod keyHeads; a state's
 * elements [v, k] lie at v · rowStride + k · columnStride; snapshotEvery 0: none are taken; lastTokens 0: nothing is kept
 * of them. Vectors are divided, if qkNorm is not 0, by max(√(Σx² + eps), normFloor). ln(decay) is g · gateFactor, and
 * ln(g) where that is 0.
 */
export const RULE_PARAMS = {
  ...PLACE_PARAMS,
  rowStride: "u32",
  columnStride: "u32",
  snapshotEvery: "u32",
  lastTokens: "u32",
  qkNorm: "u32",
  eps: "f32",
  normFloor: "f32",
  gateFactor: "f32",
  scale: "f32",
} as const;

/** What kernels that take `cuSeqlens` may find wrong with it: position and value, which is an i32. */
export const PACKED_FAULTS = {
  cuSeqlens: ([position, value]: readonly [number, number, number], { tokens }: { readonly tokens: number }) =>
    `\`cuSeqlens\` must begin with 0, not decrease and end with ${tokens}, got ${value | 0} at position ${position}`,
};

export interface RuleOptions {
  scale: number;
  gate: GateSpace;
  gqa: "block" | "tiled";
  stateLayout: "vk" | "kv";
  qkNorm: "none" | "sum-eps" | "mean-eps" | "max-eps";
  qkNormEps: number;
  snapshotEvery?: number | undefined;
  lastTokens?: number | undefined;
}

export interface RuleDims {
  B: number;
  T: number;
  Hk: number;
  H: number;
  K: number;
  V: number;
}

/** Dimensions of a call: N sequences, in B rows of T tokens; `channels` gates a head. */
export interface CallDims extends RuleDims {
  N: number;
  packed: boolean;
  channels: number;
}

export function callDims(c: Pick<CallContext, "dims" | "tensors">): CallDims {
  const dims = c.dims as unknown as RuleDims;
  const gates = c.tensors.g ?? c.tensors.G;
  return {
    ...dims,
    N: sequenceCount(c),
    packed: c.tensors.cuSeqlens !== undefined,
    channels: channelsOf(gates, dims.K),
  };
}

/** The number of neighboring value heads that share a key head; 1 where every Hk-th shares it. */
export const headsPerKey = ({ Hk, H }: Pick<RuleDims, "Hk" | "H">, gqa: RuleOptions["gqa"]): number =>
  gqa === "tiled" ? 1 : H / Hk;

export function stateStrides({ K, V }: Pick<RuleDims, "K" | "V">, layout: RuleOptions["stateLayout"]) {
  return layout === "kv" ? { rowStride: 1, columnStride: V } : { rowStride: K, columnStride: 1 };
}

export function normParams(
  { K }: Pick<RuleDims, "K">,
  { qkNorm, qkNormEps }: Pick<RuleOptions, "qkNorm" | "qkNormEps">,
) {
  return {
    qkNorm: qkNorm === "none" ? 0 : 1,
    eps: qkNorm === "max-eps" ? 0 : qkNorm === "mean-eps" ? K * qkNormEps : qkNormEps,
    normFloor: qkNorm === "max-eps" ? qkNormEps : 0,
  };
}

/** The parameters of RULE_PARAMS; `chunkLength` 0 for tokens one by one from the first. */
export function ruleParams(dims: CallDims, options: RuleOptions, chunkLength: number, keepsLast: boolean) {
  return {
    sequences: dims.N,
    tokens: dims.T,
    keyHeads: dims.Hk,
    headsPerKey: headsPerKey(dims, options.gqa),
    heads: dims.H,
    keyDim: dims.K,
    valueDim: dims.V,
    chunkLength,
    ...stateStrides(dims, options.stateLayout),
    snapshotEvery: options.snapshotEvery ?? 0,
    lastTokens: keepsLast ? (options.lastTokens as number) : 0,
    ...normParams(dims, options),
    gateFactor: gateFactor(options.gate),
    scale: options.scale,
  };
}

/** Relations of dimensions that hold on every path. */
export function checkRuleDims({ dims, fail }: Pick<CallContext, "dims" | "fail">): void {
  const { Hk, H, K } = dims as Partial<RuleDims>;
  if (H !== undefined && Hk !== undefined && H % Hk !== 0) fail("H", `be a multiple of Hk (${Hk})`, H);
  if (K !== undefined && K > MAX_KEY_DIM) fail("k", `have at most ${MAX_KEY_DIM} elements per head (K)`, K);
}

/** Packed sequences lie in one row. */
export function checkPacked({ dims, tensors, fail }: Pick<CallContext, "dims" | "tensors" | "fail">): void {
  if (tensors.cuSeqlens && dims.B !== 1) fail("cuSeqlens", "come with one row of tokens (B = 1)", dims.B);
}

/** Whether `inputs` asks for an output: with a tensor, or with `true`. */
export const asked = (c: Pick<CallContext, "inputs">, name: string): boolean =>
  (c.inputs as Readonly<Record<string, unknown>>)[name] !== undefined;

export const keepsLast = (c: Pick<CallContext, "inputs">): boolean => asked(c, "lastStates") || asked(c, LOG[0]);

/** Of an op that takes snapshots and packed sequences. */
export function checkSnapshots(c: CallContext): void {
  checkPacked(c);
  const { T } = c.dims as unknown as RuleDims;
  if (!asked(c, "snapshots")) return;
  const every = c.options.snapshotEvery as number;
  const { chunkLength = "path" in c.options ? LONGEST_CHUNK : 1 } = c.options as { chunkLength?: number };
  if (every % chunkLength !== 0) c.fail("snapshotEvery", `be a multiple of chunkLength (${chunkLength})`, every);
  if (every > T) c.fail("snapshotEvery", `be at most the ${T} tokens of a row`, every, "ask for no `snapshots`");
}

/** Masks and packed sequences, and the outputs that go with an option. */
export function checkRule(c: CallContext): void {
  checkPacked(c);
  if (c.tensors.mask && c.tensors.cuSeqlens) c.fail("mask", "not be given with `cuSeqlens`", "both");
  checkSnapshots(c);
  const parts = LOG.filter((name) => asked(c, name));
  if (parts.length === 0) return;
  const missing = LOG.find((name) => !asked(c, name));
  if (missing) c.fail(missing, `be given with \`${parts[0]}\`: the log is written in whole`, undefined);
}
