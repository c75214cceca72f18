import type { Dtype, OpContext, ShapeRule, Tensor } from "@mlxts/core";
import { checkRuleDims, type RuleDims } from "./options.ts";

/** Dimensions of a chunked call: BT tokens a chunk, NT chunks a sequence. */
export interface ChunkDims extends RuleDims {
  BT: number;
  NT: number;
}

/** A GPU keeps panels of rows in threadgroup memory: 128 bytes of a row, and 16 so that rows begin in different banks. */
export const PANEL_ROW_BYTES = 144;

/** Threads of a chunk's threadgroup on a GPU: a simdgroup for each 16 rows. */
export const chunkThreads = (chunkLength: number): number => 2 * chunkLength;

export const chunkCount = (tokens: number, chunkLength: number): number => Math.ceil(tokens / chunkLength);

interface Context {
  readonly dims: Readonly<Record<string, number>>;
  readonly options: Readonly<Record<string, unknown>>;
}

export function chunkDims({ dims, options }: Context): ChunkDims {
  const BT = options.chunkLength as number;
  return { ...(dims as unknown as RuleDims), BT, NT: chunkCount(dims.T as number, BT) };
}

/** A [B, T, H, BT] and X: row i of a chunk, column j for token j of the same chunk. */
export const TOKEN_PAIRS: ShapeRule = {
  text: "B, T, H, BT",
  of: ({ dims: { B, T, H }, options: { chunkLength } }) => [B, T, H, chunkLength] as unknown as number[],
};

/** States at the beginning of each chunk. */
export const CHUNK_STATES: ShapeRule = {
  text: "B, NT, H, V, K",
  of: (c) => {
    const { B, NT, H, V, K } = chunkDims(c);
    return [B, NT, H, V, K];
  },
};

/** The cumulated gates as stages take them: G, and what its rounding left over. */
export const CUMULATED = {
  G: { dtype: ["f32"], shape: "B T H" },
  GLow: { dtype: ["f32"], shape: "B T H", optional: true },
} as const;

/** Relations of dimensions on the chunk path. */
export function checkChunkDims(context: Pick<OpContext, "dims" | "fail">): void {
  checkRuleDims(context);
  const { K } = context.dims;
  if (K !== undefined && K % 8 !== 0)
    context.fail("k", "have a multiple of 8 elements per head (K) on the chunk path", K, 'use path "recurrent"');
}

/** Names of the intermediate tensors, in the order in which they are made. */
export type ScratchTensors = Record<"G" | "A" | "X" | "w" | "u" | "h" | "vNew", Tensor> &
  Partial<Record<"GLow" | "qUnit" | "kUnit", Tensor>>;

export interface ScratchShape extends RuleDims {
  /** dtype of q, k, v and o. */
  dtype: Dtype;
  chunkLength: number;
  /** G carries its low part. */
  pair: boolean;
  /** q and k are normalised. */
  normalised: boolean;
}

/** The intermediate tensors of one call. */
export function scratchTensors(shape: ScratchShape): [name: keyof ScratchTensors, dtype: Dtype, shape: number[]][] {
  const { B, T, Hk, H, K, V, dtype, chunkLength, pair, normalised } = shape;
  return [
    ...(normalised
      ? ([
          ["qUnit", dtype, [B, T, Hk, K]],
          ["kUnit", dtype, [B, T, Hk, K]],
        ] as [keyof ScratchTensors, Dtype, number[]][])
      : []),
    ["G", "f32", [B, T, H]],
    ...(pair ? ([["GLow", "f32", [B, T, H]]] as [keyof ScratchTensors, Dtype, number[]][]) : []),
    ["A", "f32", [B, T, H, chunkLength]],
    ["X", "f32", [B, T, H, chunkLength]],
    ["w", dtype, [B, T, H, K]],
    ["u", dtype, [B, T, H, V]],
    ["h", dtype, [B, chunkCount(T, chunkLength), H, V, K]],
    ["vNew", dtype, [B, T, H, V]],
  ];
}
