import { type CommandEncoder, defineKernel, defineOp, OLD_SCRATCH, oldLaunch, type Tensor } from "@mlxts/core";
import { type ChunkDims, chunkDims } from "./chunk.ts";
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

export const chunkCumsumKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_cumsum",
  variants: ["f32"],
  buffers: { g: "read", cuSeqlens: "read?", mask: "read?", sum: "write", sumLow: "write?" },
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
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ B, H, NT, channels }: Pick<ChunkDims, "B" | "H" | "NT" | "channels">, { gpu }) => ({
    threadgroups: gpu ? [Math.ceil((B * H * channels * NT) / 32), 1, 1] : [NT, B, 1],
    threadsPerThreadgroup: [32, 1, 1],
  })),
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
    buffers: { g, cuSeqlens, mask, sum: G, sumLow: GLow },
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
    G: { dtype: ["f32"], shape: gateShape("g"), doc: "the gates cumulated within each chunk, as natural logarithms" },
    GLow: { dtype: ["f32"], shape: gateShape("g"), optional: true, doc: "what rounding to f32 took from `G`" },
  },
  params: { chunkLength: CHUNK_LENGTH, gate: GATE },
  rules: checkPacked,
  encode(c) {
    encodeChunkCumsum(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c), c.options.gate);
  },
}) as ChunkCumsum;
