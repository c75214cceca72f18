import { type CommandEncoder, defineKernel, defineOp, FLOATS, OLD_SCRATCH, oldLaunch, type Tensor } from "@mlxts/core";
import {
  CHUNK_PARAMS,
  type ChunkDims,
  CUMULATED,
  channelVariants,
  checkChunkDims,
  chunkDims,
  chunkParams,
  chunkThreads,
  gateVariant,
  PANEL_ROW_BYTES,
  TOKEN_PAIRS,
} from "./chunk.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH, checkPacked, GQA, PACKED_FAULTS, type RuleOptions } from "./options.ts";
import type { ChunkWu } from "./signatures.ts";

const PANEL = 64;

export const chunkWuKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_wu",
  variants: channelVariants(FLOATS),
  buffers: {
    k: "read",
    v: "read",
    beta: "read",
    sum: "read",
    sumLow: "read?",
    cuSeqlens: "read?",
    x: "read",
    w: "write",
    u: "write",
  },
  params: CHUNK_PARAMS,
  faults: PACKED_FAULTS,
  constants: { shared: { rowBytes: PANEL_ROW_BYTES } },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ B, H, BT, NT }: Pick<ChunkDims, "B" | "H" | "BT" | "NT">, { gpu }) => ({
    // On a GPU u and w have threadgroups of their own.
    threadgroups: [NT, H, gpu ? 2 * B : B],
    threadsPerThreadgroup: [chunkThreads(BT), 1, 1],
    threadgroupBytes: gpu ? BT * (PANEL_ROW_BYTES + 4) : 4 * (BT * PANEL + BT + 2 * (BT + 16)),
  })),
});

export function encodeChunkWu(
  encoder: CommandEncoder,
  op: string,
  tensors: Record<"k" | "v" | "beta" | "G" | "X" | "w" | "u", Tensor> &
    Partial<Record<"GLow" | "cuSeqlens", Tensor | undefined>>,
  dims: ChunkDims,
  gqa: RuleOptions["gqa"],
  lastTokens = 0,
): void {
  const { k, v, beta, G, GLow, cuSeqlens, X, w, u } = tensors;
  encoder.dispatch(chunkWuKernel, {
    op,
    variant: gateVariant(k.dtype, dims),
    buffers: { k, v, beta, sum: G, sumLow: GLow, cuSeqlens, x: X, w, u },
    params: chunkParams(dims, gqa, lastTokens),
    sizes: dims,
  });
}

/**
 * Stage 5 of the chunked gated delta rule: `u = X · round(beta v)` and `w = X · round(beta exp(G) k)` per chunk.
 *
 * `k` [B, T, Hk, K], `w` [B, T, H, K], `v`, `u` [B, T, H, V]: f32, f16 or bf16, one dtype (round: to that dtype); `beta`,
 * `G`, `GLow` (optional) [B, T, H] f32; `X` [B, T, H, chunkLength] f32, unit lower triangular per chunk. Summed in f32, one
 * rounding at the store. Errors: `InvalidArgument` for dimensions, shapes, dtypes, options and overlap.
 */
export const chunkWu: ChunkWu = defineOp({
  name: "chunkWu",
  summary: "u = X · round(beta v), w = X · round(beta exp(G) k) per chunk",
  inputs: {
    k: { dtype: FLOATS, shape: "B T Hk K", doc: "keys" },
    v: { dtype: ["=k"], shape: "B T H V", doc: "values" },
    beta: { dtype: ["f32"], shape: "B T H", doc: "strength of each write" },
    ...CUMULATED,
    X: { dtype: ["f32"], shape: TOKEN_PAIRS, doc: "inverses from `chunkInverse`" },
  },
  outputs: {
    w: { dtype: ["=k"], shape: "B T H K", doc: "keys that the chunk's own writes have been taken from" },
    u: { dtype: ["=k"], shape: "B T H V", doc: "values that the chunk's own writes have been taken from" },
  },
  params: { chunkLength: CHUNK_LENGTH, gqa: GQA },
  relations: checkChunkDims,
  rules: checkPacked,
  encode(c) {
    encodeChunkWu(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c), c.options.gqa);
  },
});
