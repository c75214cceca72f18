import { type CommandEncoder, defineKernel, defineOp, type Tensor } from "@mlxts/core";
import { type ChunkDims, chunkDims } from "./chunk.ts";
import { deltaRuleLibrary } from "./library.ts";
import { CHUNK_LENGTH } from "./options.ts";

export const chunkCumsumKernel = defineKernel({
  library: deltaRuleLibrary,
  name: "chunk_cumsum",
  variants: ["f32"],
  buffers: { g: "read", sum: "write", sumLow: "write?" },
  params: { sequences: "u32", tokens: "u32", heads: "u32", chunkLength: "u32" },
  launch: ({ B, H, NT }: Pick<ChunkDims, "B" | "H" | "NT">, { gpu }) => ({
    threadgroups: gpu ? [Math.ceil((B * H * NT) / 32), 1, 1] : [NT, B, 1],
    threadsPerThreadgroup: [32, 1, 1],
  }),
});

export function encodeChunkCumsum(
  encoder: CommandEncoder,
  op: string,
  { g, G, GLow }: { g: Tensor; G: Tensor; GLow?: Tensor | undefined },
  { B, T, H, BT, NT }: Pick<ChunkDims, "B" | "T" | "H" | "BT" | "NT">,
): void {
  encoder.dispatch(chunkCumsumKernel, {
    op,
    variant: "f32",
    buffers: { g, sum: G, sumLow: GLow },
    params: { sequences: B, tokens: T, heads: H, chunkLength: BT },
    sizes: { B, H, NT },
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
  inputs: { g: { dtype: ["f32"], shape: "B T H" } },
  outputs: {
    G: { dtype: ["f32"], shape: "B T H" },
    GLow: { dtype: ["f32"], shape: "B T H", optional: true },
  },
  params: { chunkLength: CHUNK_LENGTH },
  encode(c) {
    encodeChunkCumsum(c.encoder, c.op, { ...c.inputs, ...c.outputs }, chunkDims(c));
  },
});
