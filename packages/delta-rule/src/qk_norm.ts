import { type CommandEncoder, defineKernel, FLOATS, type Tensor } from "@mlxts/core";
import { deltaRuleLibrary } from "./library.ts";

/** Rows of one threadgroup: on a CPU of q and k, on a GPU, with a simdgroup for each, of one of them. */
const rowBlock = (gpu: boolean) => (gpu ? 8 : 32);

export const qkNormKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "qk_norm",
  variants: FLOATS,
  buffers: { q: "read", k: "read", qUnit: "write", kUnit: "write" },
  params: { rows: "u32", dim: "u32", rowsPerThreadgroup: "u32", eps: "f32" },
  launch: ({ rows }: { rows: number }, { gpu }) => ({
    threadgroups: [Math.ceil(rows / rowBlock(gpu)), gpu ? 2 : 1, 1],
    threadsPerThreadgroup: gpu ? [32, rowBlock(gpu), 1] : [256, 1, 1],
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
    params: { rows, dim, rowsPerThreadgroup: rowBlock(encoder.device.gpu), eps },
    sizes: { rows },
  });
}
