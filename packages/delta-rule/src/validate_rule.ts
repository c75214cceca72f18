import { type CommandEncoder, defineKernel, FLOATS, type Tensor } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";
import { type CallDims, gateFactor, headsPerKey, normParams, type RuleOptions } from "./options.ts";

/** On a GPU, each for one head of one token. */
const THREADS = 256;

const float = (bits: number): number => new Float32Array(new Uint32Array([bits]).buffer)[0] as number;
const found = ([value, token, head]: readonly [number, number, number]): string =>
  `got ${Number(float(value).toPrecision(7))} at token ${token}, head ${head}`;

export const validateRuleKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "validate_rule",
  variants: FLOATS,
  buffers: { k: "read", g: "read", beta: "read", mask: "read?" },
  params: {
    tokens: "u32",
    keyHeads: "u32",
    headsPerKey: "u32",
    heads: "u32",
    channels: "u32",
    keyDim: "u32",
    qkNorm: "u32",
    eps: "f32",
    normFloor: "f32",
    gateFactor: "f32",
  },
  // The kernel leaves the value's bits, the token and the value head.
  faults: {
    gate: (words) => `\`g\` must be a decay of at most 1, ${found(words)}`,
    beta: (words) => `\`beta\` must be at least 0, ${found(words)}`,
    step: (words) => `\`beta\` must keep beta · |k|² at most 2, ${found(words)}`,
  },
  constants: { cpu: { tokensPerThreadgroup: 32 } },
  launch: {
    cpu: ({ tokens }: { tokens: number; H: number }, { constants: { tokensPerThreadgroup } }) => ({
      threadgroups: [Math.ceil(tokens / tokensPerThreadgroup), 1, 1],
    }),
    gpu: ({ tokens, H }) => ({
      threadgroups: [Math.ceil((tokens * H) / THREADS), 1, 1],
      threadsPerThreadgroup: [THREADS, 1, 1],
    }),
  },
});

/**
 * For devices that validate: fails where the rule could grow without bound. For each token that no mask skips a decay is
 * at most 1 (in any channel), beta ≥ 0, and beta · |k|² ≤ 2 + 1e-3 of the normalized key.
 */
export function encodeValidation(
  encoder: CommandEncoder,
  op: string,
  { k, g, beta, mask }: Record<"k" | "g" | "beta", Tensor> & { mask?: Tensor | undefined },
  dims: CallDims,
  options: RuleOptions,
): void {
  const { B, T, Hk, H, K, channels } = dims;
  encoder.dispatch(validateRuleKernel, {
    op,
    variant: k.dtype,
    buffers: { k, g, beta, mask },
    params: {
      tokens: B * T,
      keyHeads: Hk,
      headsPerKey: headsPerKey(dims, options.gqa),
      heads: H,
      channels,
      keyDim: K,
      ...normParams(dims, options),
      gateFactor: gateFactor(options.gate),
    },
    sizes: { tokens: B * T, H },
  });
}
