import { type CommandEncoder, defineKernel, FLOATS, type Tensor } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";

/** Rows of one threadgroup. */
const ROWS = 32;

export const qkNormKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "qk_norm",
  variants: FLOATS,
  buffers: { q: "read", k: "read", qUnit: "write", kUnit: "write" },
  params: { rows: "u32", dim: "u32", rowsPerThreadgroup: "u32", eps: "f32" },
  launch: ({ rows }: { rows: number }) => ({
    threadgroups: [Math.ceil(rows / ROWS), 1, 1],
    threadsPerThreadgroup: [256, 1, 1],
  }),
});

/** Stage 1: q and k divided by √(Σx² + eps), rounded to their dtype. */
export function encodeQkNorm(
  encoder: CommandEncoder,
  op: string,
  buffers: { q: Tensor; k: Tensor; qUnit: Tensor; kUnit: Tensor },
  eps: number,
): void {
  const dim = buffers.q.lastDim;
  const rows = buffers.q.size / dim;
  encoder.dispatch(qkNormKernel, {
    op,
    variant: buffers.q.dtype,
    buffers,
    params: { rows, dim, rowsPerThreadgroup: ROWS, eps },
    sizes: { rows },
  });
}
