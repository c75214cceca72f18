import { type CommandEncoder, defineKernel, defineOp, type Tensor } from "@mlxts/core";
import { type ChunkDims, chunkDims, TOKEN_PAIRS } from "./chunk.ts";
import { BLOCK, chunkThreadgroups, PLACE_SCRATCH, PLACE_SHAPE, SIMD } from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH, CU_SEQLENS, checkPacked, PACKED_FAULTS } from "./options.ts";
import type { ChunkInverse } from "./signatures.ts";

type Sizes = Pick<ChunkDims, "B" | "H" | "BT" | "NT">;

export const chunkInverseKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_inverse",
  variants: ["f32"],
  buffers: { a: "read", cuSeqlens: "read?", x: "write" },
  params: { sequences: "u32", tokens: "u32", heads: "u32", chunkLength: "u32", lastTokens: "u32" },
  faults: PACKED_FAULTS,
  // Elements between rows of A, which then begin in different banks of threadgroup memory.
  constants: { gpu: { gap: 4 } },
  inPlace: [["x", "a"]],
  scratch: { cpu: { inverse: "f32" }, gpu: { ...PLACE_SCRATCH, a: "f32", diagonalInverses: "f32" } },
  mostThreads: 256,
  launch: {
    cpu: (sizes: Sizes) => ({
      threadgroups: chunkThreadgroups(sizes),
      scratch: { inverse: [sizes.BT, sizes.BT] },
    }),
    // A simdgroup for each column of blocks.
    gpu: (sizes, { constants: { gap } }) => {
      const { BT } = sizes;
      const blocks = BT / BLOCK;
      return {
        threadgroups: chunkThreadgroups(sizes),
        threadsPerThreadgroup: [SIMD * blocks, 1, 1],
        scratch: { ...PLACE_SHAPE, a: [BT, BT + gap], diagonalInverses: [blocks, BLOCK, BLOCK] },
      };
    },
  },
});

export function encodeChunkInverse(
  encoder: CommandEncoder,
  op: string,
  { A, cuSeqlens, X }: { A: Tensor; cuSeqlens?: Tensor | undefined; X: Tensor },
  dims: Pick<ChunkDims, "N" | "B" | "T" | "H" | "BT" | "NT">,
  lastTokens = 0,
): void {
  encoder.dispatch(chunkInverseKernel, {
    op,
    variant: "f32",
    buffers: { a: A, cuSeqlens, x: X },
    params: { sequences: dims.N, tokens: dims.T, heads: dims.H, chunkLength: dims.BT, lastTokens },
    sizes: dims,
  });
}

/**
 * Stage 4 of the chunked gated delta rule: `X = (I + A)⁻¹` per chunk, by forward substitution in f32.
 *
 * `A`, `X` [B, T, H, chunkLength] f32; of A only the part below the diagonal of each chunk is read, X is unit lower
 * triangular with zeros above. `X` may be exactly `A`. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 */
export const chunkInverse: ChunkInverse = defineOp({
  name: "chunkInverse",
  summary: "X = (I + A)^-1 per chunk",
  inputs: {
    A: { dtype: ["f32"], shape: "B T H BT", doc: "strictly lower triangles from `chunkKkt`" },
    cuSeqlens: CU_SEQLENS,
  },
  outputs: { X: { dtype: ["f32"], shape: TOKEN_PAIRS, inPlace: ["A"], doc: "the inverses" } },
  params: { chunkLength: CHUNK_LENGTH },
  rules(c) {
    const { A } = c.inputs;
    const { chunkLength } = c.options;
    checkPacked(c);
    if (A.lastDim !== chunkLength) c.fail("A", `have a last dimension of chunkLength (${chunkLength})`, A.lastDim);
  },
  encode(c) {
    encodeChunkInverse(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c));
  },
});
