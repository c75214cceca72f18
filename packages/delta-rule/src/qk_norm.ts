import { type CommandEncoder, defineKernel, FLOATS, type Tensor } from "@mlxts/core";
import { SIMD } from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import { normParams, type RuleOptions } from "./options.ts";

export const qkNormKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "qk_norm",
  variants: FLOATS,
  buffers: { q: "read?", k: "read?", mask: "read?", qUnit: "write?", kUnit: "write?" },
  params: {
    rows: "u32",
    keyHeads: "u32",
    dim: "u32",
    qkNorm: "u32",
    eps: "f32",
    normFloor: "f32",
  },
  // On a CPU rows of both q and k; on a GPU rows of one of them, `rowsPerSimdgroup` for each.
  constants: {
    cpu: { rowsPerThreadgroup: 32 },
    gpu: { rowsPerThreadgroup: 8, rowsPerSimdgroup: 1 },
    cuda: { rowsPerThreadgroup: 32, rowsPerSimdgroup: 4 },
  },
  launch: {
    cpu: ({ rows }: { rows: number; tensors: number }, { constants: { rowsPerThreadgroup } }) => ({
      threadgroups: [Math.ceil(rows / rowsPerThreadgroup), 1, 1],
    }),
    gpu: ({ rows, tensors }, { constants: { rowsPerThreadgroup, rowsPerSimdgroup } }) => ({
      threadgroups: [Math.ceil(rows / rowsPerThreadgroup), tensors, 1],
      threadsPerThreadgroup: [SIMD, rowsPerThreadgroup / rowsPerSimdgroup, 1],
    }),
  },
});

/** q or k, and where it goes. */
interface Rows {
  of: Tensor;
  unit: Tensor;
}

/**
 * Stage 1: q and k, or one of them, divided by max(√(Σx² + eps), normFloor) if they are to be normalized, rounded to their
 * dtype; zeros for the tokens that the mask skips.
 */
export function encodeQkNorm(
  encoder: CommandEncoder,
  op: string,
  { q, k, mask }: { q?: Rows; k?: Rows; mask: Tensor | undefined },
  options: Pick<RuleOptions, "qkNorm" | "qkNormEps">,
): void {
  const { of } = (q ?? k) as Rows;
  const [, , keyHeads, dim] = of.shape as [number, number, number, number];
  const rows = of.size / dim;
  encoder.dispatch(qkNormKernel, {
    op,
    variant: of.dtype,
    buffers: { q: q?.of, k: k?.of, mask, qUnit: q?.unit, kUnit: k?.unit },
    params: { rows, keyHeads, dim, ...normParams({ K: dim }, options) },
    sizes: { rows, tensors: q && k ? 2 : 1 },
  });
}
