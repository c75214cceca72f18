/** The sizes of a model, for a checkpoint of random weights. */
export interface ModelShape {
  readonly family: "qwen3_5" | "qwen3_next";
  readonly hidden: number;
  readonly layers: number;
  /** Width of the MLP of each layer, or what the config says of it where layers have experts instead. */
  readonly intermediate: number;
  readonly vocab: number;
  readonly context: number;
  readonly attention: { readonly heads: number; readonly kvHeads: number; readonly headDim: number };
  readonly delta: { readonly keyHeads: number; readonly valueHeads: number; readonly headDim: number };
  readonly experts?: { readonly count: number; readonly perToken: number; readonly width: number };
}

/** Every n-th layer has full attention, the others the gated delta rule. */
export const FULL_ATTENTION_INTERVAL = 4;
/** Width of the convolution in front of the delta rule. */
export const CONVOLUTION_WIDTH = 4;
export const ROPE_THETA = 1e7;
/** The part of each head that is rotated. */
export const ROTATED_PART = 0.25;
export const NORM_EPS = 1e-6;

const QWEN3_5 = { family: "qwen3_5", vocab: 248320, context: 262144 } as const;

export const MODEL_SHAPES = {
  "qwen3.5-0.8b": {
    ...QWEN3_5,
    hidden: 1024,
    layers: 24,
    intermediate: 3584,
    attention: { heads: 8, kvHeads: 2, headDim: 256 },
    delta: { keyHeads: 16, valueHeads: 16, headDim: 128 },
  },
  "qwen3.5-2b": {
    ...QWEN3_5,
    hidden: 2048,
    layers: 24,
    intermediate: 6144,
    attention: { heads: 8, kvHeads: 2, headDim: 256 },
    delta: { keyHeads: 16, valueHeads: 16, headDim: 128 },
  },
  "qwen3.5-4b": {
    ...QWEN3_5,
    hidden: 2560,
    layers: 32,
    intermediate: 9216,
    attention: { heads: 16, kvHeads: 4, headDim: 256 },
    delta: { keyHeads: 16, valueHeads: 32, headDim: 128 },
  },
  // The model has 48 layers; each takes 0.93 GB.
  "qwen3-next": {
    family: "qwen3_next",
    vocab: 151936,
    context: 262144,
    hidden: 2048,
    layers: 4,
    intermediate: 5120,
    attention: { heads: 16, kvHeads: 2, headDim: 256 },
    delta: { keyHeads: 16, valueHeads: 32, headDim: 128 },
    experts: { count: 512, perToken: 10, width: 512 },
  },
} as const satisfies Record<string, ModelShape>;

export const hasFullAttention = (layer: number): boolean => (layer + 1) % FULL_ATTENTION_INTERVAL === 0;

/** Columns of all keys (as of all queries), of all values, and of what the convolution runs over. */
export function deltaColumns({ delta }: ModelShape): { keys: number; values: number; channels: number } {
  const keys = delta.keyHeads * delta.headDim;
  const values = delta.valueHeads * delta.headDim;
  return { keys, values, channels: 2 * keys + values };
}
