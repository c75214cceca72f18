import { type CommandEncoder, defineKernel, FLOATS, type Tensor } from "@mlxts/core";
import { SIMD } from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";

export const maskValuesKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "mask_values",
  variants: FLOATS,
  buffers: { v: "read", beta: "read", mask: "read", vKept: "write", betaKept: "write" },
  params: { tokens: "u32", heads: "u32", valueDim: "u32" },
  constants: { cpu: { tokensPerThreadgroup: 32 } },
  launch: {
    cpu: ({ tokens }: { tokens: number; H: number }, { constants: { tokensPerThreadgroup } }) => ({
      threadgroups: [Math.ceil(tokens / tokensPerThreadgroup), 1, 1],
    }),
    gpu: ({ tokens, H }) => ({ threadgroups: [H, tokens, 1], threadsPerThreadgroup: [SIMD, 1, 1] }),
  },
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
    params: { tokens: B * T, heads: H, valueDim: V },
    sizes: { tokens: B * T, H },
  });
}
