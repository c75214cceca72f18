import { type CommandEncoder, defineKernel, defineOp, type Tensor } from "@mlxts/core";
import { type ChunkDims, chunkDims } from "./chunk.ts";
import { SIMD } from "./launch.ts";
import { deltaRuleLibrary } from "./library.ts";
import {
  CHUNK_LENGTH,
  CU_SEQLENS,
  checkPacked,
  GATE,
  GATES,
  type GateSpace,
  gateFactor,
  gateShape,
  PACKED_FAULTS,
} from "./options.ts";
import type { ChunkCumsum } from "./signatures.ts";

type Sizes = Pick<ChunkDims, "B" | "H" | "NT" | "channels">;

export const chunkCumsumKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_cumsum",
  variants: ["f32"],
  buffers: { g: "read", cuSeqlens: "read?", mask: "read?", cumulativeGate: "write", cumulativeGateLow: "write?" },
  // A gate that a head has for each of its channels counts as so many heads.
  params: {
    sequences: "u32",
    tokens: "u32",
    heads: "u32",
    channels: "u32",
    chunkLength: "u32",
    lastTokens: "u32",
    gateFactor: "f32",
  },
  faults: PACKED_FAULTS,
  // Gates of a thread that are on their way at once.
  constants: { gpu: { ahead: 8 }, cuda: { ahead: 32 } },
  launch: {
    cpu: ({ B, NT }: Sizes) => ({ threadgroups: [NT, B, 1] }),
    // A thread has one gate of each token of a chunk.
    gpu: ({ B, H, NT, channels }) => ({
      threadgroups: [Math.ceil((B * H * channels * NT) / SIMD), 1, 1],
      threadsPerThreadgroup: [SIMD, 1, 1],
    }),
  },
});

export function encodeChunkCumsum(
  encoder: CommandEncoder,
  op: string,
  {
    g,
    cuSeqlens,
    mask,
    G,
    GLow,
  }: Record<"g" | "G", Tensor> & Partial<Record<"cuSeqlens" | "mask" | "GLow", Tensor | undefined>>,
  { N, B, T, H, channels, BT, NT }: Pick<ChunkDims, "N" | "B" | "T" | "H" | "channels" | "BT" | "NT">,
  gate: GateSpace,
  lastTokens = 0,
): void {
  encoder.dispatch(chunkCumsumKernel, {
    op,
    variant: "f32",
    buffers: { g, cuSeqlens, mask, cumulativeGate: G, cumulativeGateLow: GLow },
    params: {
      sequences: N,
      tokens: T,
      heads: H * channels,
      channels,
      chunkLength: BT,
      lastTokens,
      gateFactor: gateFactor(gate),
    },
    sizes: { B, H, NT, channels },
  });
}

/**
 * Stage 2 of the chunked gated delta rule: gates summed up within each chunk of `chunkLength` (16, 32 or 64, the default)
 * tokens, `G[i] = Σ_{j ≤ i} g[j]`.
 *
 * `g`, `G`, `GLow` [B, T, H] f32. `GLow`, written when it is passed (or `true`), is what rounding has taken from G: the
 * exact sum is G + GLow to twice the digits. Sequential f32 additions. Errors: `InvalidArgument` for shapes, dtypes,
 * options and overlap.
 */
export const chunkCumsum = defineOp({
  name: "chunkCumsum",
  summary: "G[i] = Σ g[j] for j ≤ i of the same chunk",
  inputs: {
    g: { dtype: ["f32"], shape: GATES, doc: "gate of each token and head, or of each channel" },
    cuSeqlens: CU_SEQLENS,
    mask: { dtype: ["u8"], shape: "B T", optional: true, doc: "0 for tokens that are skipped" },
  },
  outputs: {
    G: { dtype: ["f32"], shape: gateShape("g"), doc: "the gates summed up within each chunk, as natural logarithms" },
    GLow: { dtype: ["f32"], shape: gateShape("g"), optional: true, doc: "what rounding to f32 took from `G`" },
  },
  params: { chunkLength: CHUNK_LENGTH, gate: GATE },
  rules: checkPacked,
  encode(c) {
    encodeChunkCumsum(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c), c.options.gate);
  },
}) as ChunkCumsum;
