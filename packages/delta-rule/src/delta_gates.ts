import { type CommandEncoder, defineKernel, defineOp, FLOATS, type ShapeRule, type Tensor } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";
import type { DeltaGates } from "./signatures.ts";

/** On a GPU, each for one gate. */
const THREADS = 256;

interface Sizes {
  rows: number;
  heads: number;
  channels: number;
}

export const deltaGatesKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "delta_gates",
  variants: FLOATS,
  buffers: { a: "read", b: "read", aLog: "read", dtBias: "read", g: "write", beta: "write" },
  params: {
    rows: "u32",
    heads: "u32",
    channels: "u32",
    betaScale: "f32",
    lowerBound: "f32",
  },
  launchParams: { cpu: { rowsPerThreadgroup: "u32" } },
  launch: {
    cpu: ({ rows, channels }: Sizes) => {
      const rowsPerThreadgroup = channels === 1 ? 32 : 1;
      return { threadgroups: [Math.ceil(rows / rowsPerThreadgroup), 1, 1], params: { rowsPerThreadgroup } };
    },
    gpu: ({ rows, heads, channels }) => ({
      threadgroups: [Math.ceil((rows * heads * channels) / THREADS), 1, 1],
      threadsPerThreadgroup: [THREADS, 1, 1],
    }),
  },
});

export const BETA_SCALE = {
  kind: "number",
  default: 1,
  above: 0,
  doc: "factor of beta; 2 allows negative eigenvalues",
} as const;

export const LOWER_BOUND = {
  kind: "number",
  optional: true,
  below: 0,
  doc: "g = lowerBound · sigmoid(exp(aLog) · (a + dtBias)), a gate that stays above it",
} as const;

export function encodeGates(
  encoder: CommandEncoder,
  op: string,
  { a, b, aLog, dtBias, g, beta }: Record<"a" | "b" | "aLog" | "dtBias" | "g" | "beta", Tensor>,
  { betaScale, lowerBound }: { betaScale: number; lowerBound?: number | undefined },
): void {
  const [heads, channels = 1] = dtBias.shape as [number, number?];
  const sizes = { rows: b.size / heads, heads, channels };
  encoder.dispatch(deltaGatesKernel, {
    op,
    variant: a.dtype,
    buffers: { a, b, aLog, dtBias, g, beta },
    params: { ...sizes, betaScale, lowerBound: lowerBound ?? 0 },
    sizes,
  });
}

/** As many gates a head as `dtBias` has. */
const GATES: ShapeRule = {
  text: "..., H or ..., H, K",
  of: ({ lead, dims: { H, K }, tensors }) =>
    [...lead, H, ...(tensors.dtBias?.shape.length === 2 ? [K] : [])] as number[],
};

/**
 * The gates of the delta rule from the projections of a layer: `g = −exp(aLog) · softplus(a + dtBias)` and
 * `beta = sigmoid(b) · betaScale`. With `lowerBound` lb < 0: `g = lb · sigmoid(exp(aLog) · (a + dtBias))`.
 *
 * - `a`, `b` [.., H] f32, f16 or bf16, one dtype; `aLog`, `dtBias` [H] f32; `g`, `beta` [.., H] f32. g is a natural
 *   logarithm per token, not cumulative.
 * - A gate for each channel: `a`, `g` [.., H, K] and `dtBias` [H, K], with `b`, `aLog` and `beta` as above.
 * - `betaScale` > 0 (default 1): 2 allows negative eigenvalues of the update.
 * - softplus(x) is x above 20, else log(1 + exp x).
 *
 * All arithmetic in f32; none of the tensors is rounded to a narrower dtype. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Yang, Kautz and Hatamizadeh, "Gated Delta Networks", 2024.
 */
export const deltaGates: DeltaGates = defineOp({
  name: "deltaGates",
  summary: "g = -exp(aLog) · softplus(a + dtBias), beta = sigmoid(b) · betaScale",
  inputs: {
    a: { dtype: FLOATS, shape: GATES, doc: "projection for the gates" },
    b: { dtype: ["=a"], shape: "... H", doc: "projection for beta" },
    aLog: { dtype: ["f32"], shape: "H", doc: "logarithm of the decay rate of each head" },
    dtBias: { dtype: ["f32"], shape: "H | H K", doc: "added to `a`" },
  },
  outputs: {
    g: { dtype: ["f32"], shape: GATES, doc: "natural logarithm of the decay, at most 0" },
    beta: { dtype: ["f32"], shape: "... H", doc: "strength of each write" },
  },
  params: { betaScale: BETA_SCALE, lowerBound: LOWER_BOUND },
  encode({ encoder, op, inputs, outputs, options }) {
    encodeGates(encoder, op, { ...inputs, ...outputs }, options);
  },
});
