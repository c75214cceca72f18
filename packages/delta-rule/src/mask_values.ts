import { type CommandEncoder, defineKernel, FLOATS, OLD_SCRATCH, oldLaunch, type Tensor } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";

/** Tokens of one threadgroup of a CPU; on a GPU a threadgroup has the values of one head of one token. */
const TOKENS = 32;

export const maskValuesKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "mask_values",
  variants: FLOATS,
  buffers: { v: "read", beta: "read", mask: "read", vKept: "write", betaKept: "write" },
  params: { tokens: "u32", heads: "u32", valueDim: "u32", tokensPerThreadgroup: "u32" },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ tokens, H }: { tokens: number; H: number }, { gpu }) => ({
    threadgroups: gpu ? [H, tokens, 1] : [Math.ceil(tokens / TOKENS), 1, 1],
    threadsPerThreadgroup: [32, 1, 1],
  })),
});

/** Copies of v and beta with zeros for the tokens that the mask skips, whatever those hold. */
export function encodeMaskValues(
  encoder: CommandEncoder,
  op: string,
  buffers: Record<"v" | "beta" | "mask" | "vKept" | "betaKept", Tensor>,
): void {
  const [B, T, H, V] = buffers.v.shape as [number, number, number, number];
  encoder.dispatch(maskValuesKernel, {
    op,
    variant: buffers.v.dtype,
    buffers,
    params: { tokens: B * T, heads: H, valueDim: V, tokensPerThreadgroup: TOKENS },
    sizes: { tokens: B * T, H },
  });
}
