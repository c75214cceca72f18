import { type CommandEncoder, defineKernel, defineOp, type Tensor } from "@mlxts/core";
import { type ChunkDims, chunkDims, TOKEN_PAIRS } from "./chunk.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH } from "./options.ts";

/** On a GPU, what keeps rows of A in threadgroup memory from starting in the same bank. */
const PAD = 4;

export const chunkInverseKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_inverse",
  variants: ["f32"],
  buffers: { a: "read", x: "write" },
  params: { tokens: "u32", heads: "u32", chunkLength: "u32" },
  constants: { pad: PAD },
  inPlace: [["x", "a"]],
  launch: ({ B, H, BT, NT }: Pick<ChunkDims, "B" | "H" | "BT" | "NT">, { gpu }) => ({
    threadgroups: [NT, H, B],
    threadsPerThreadgroup: [4 * BT, 1, 1],
    threadgroupBytes: gpu ? 4 * BT * (BT + PAD + 8) : 4 * BT * BT,
  }),
});

export function encodeChunkInverse(
  encoder: CommandEncoder,
  op: string,
  { A, X }: { A: Tensor; X: Tensor },
  dims: Pick<ChunkDims, "B" | "T" | "H" | "BT" | "NT">,
): void {
  encoder.dispatch(chunkInverseKernel, {
    op,
    variant: "f32",
    buffers: { a: A, x: X },
    params: { tokens: dims.T, heads: dims.H, chunkLength: dims.BT },
    sizes: dims,
  });
}

/**
 * Stage 4 of the chunked gated delta rule: `X = (I + A)⁻¹` per chunk, by forward substitution in f32.
 *
 * `A`, `X` [B, T, H, chunkLength] f32; of A only the part below the diagonal of each chunk is read, X is unit lower
 * triangular with zeros above. `X` may be exactly `A`. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 */
export const chunkInverse = defineOp({
  name: "chunkInverse",
  summary: "X = (I + A)^-1 per chunk",
  inputs: { A: { dtype: ["f32"], shape: "B T H BT" } },
  outputs: { X: { dtype: ["f32"], shape: TOKEN_PAIRS, inPlace: ["A"] } },
  params: { chunkLength: CHUNK_LENGTH },
  check({ inputs: { A }, options: { chunkLength }, fail }) {
    if (A.lastDim !== chunkLength) fail("A", `have a last dimension of chunkLength (${chunkLength})`, A.lastDim);
  },
  encode(c) {
    encodeChunkInverse(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c));
  },
});
