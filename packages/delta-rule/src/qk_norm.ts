import { type CommandEncoder, defineKernel, FLOATS, OLD_SCRATCH, oldLaunch, type Tensor } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";
import { normParams, type RuleOptions } from "./options.ts";

/** Rows of one threadgroup: on a CPU of q and k, on a GPU, with a simdgroup for each, of one of them. */
const rowBlock = (gpu: boolean) => (gpu ? 8 : 32);

export const qkNormKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "qk_norm",
  variants: FLOATS,
  buffers: { q: "read", k: "read", mask: "read?", qUnit: "write", kUnit: "write" },
  params: {
    rows: "u32",
    keyHeads: "u32",
    dim: "u32",
    rowsPerThreadgroup: "u32",
    qkNorm: "u32",
    eps: "f32",
    normFloor: "f32",
  },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ rows }: { rows: number }, { gpu }) => ({
    threadgroups: [Math.ceil(rows / rowBlock(gpu)), gpu ? 2 : 1, 1],
    threadsPerThreadgroup: gpu ? [32, rowBlock(gpu), 1] : [256, 1, 1],
  })),
});

/**
 * Stage 1: q and k, divided by max(√(Σx² + eps), normFloor) if they are to be normalized, rounded to their dtype; zeros
 * for the tokens that the mask skips.
 */
export function encodeQkNorm(
  encoder: CommandEncoder,
  op: string,
  buffers: Record<"q" | "k" | "qUnit" | "kUnit", Tensor> & { mask: Tensor | undefined },
  options: Pick<RuleOptions, "qkNorm" | "qkNormEps">,
): void {
  const [, , keyHeads, dim] = buffers.q.shape as [number, number, number, number];
  const rows = buffers.q.size / dim;
  encoder.dispatch(qkNormKernel, {
    op,
    variant: buffers.q.dtype,
    buffers,
    params: {
      rows,
      keyHeads,
      dim,
      rowsPerThreadgroup: rowBlock(encoder.device.gpu),
      ...normParams({ K: dim }, options),
    },
    sizes: { rows },
  });
}
