import type { Dtype, ShapeRule, Tensor } from "@mlxts/core";
import {
  type CallContext,
  type CallDims,
  CU_SEQLENS,
  callDims,
  checkRuleDims,
  GATES,
  gateShape,
  headsPerKey,
  PLACE_PARAMS,
  type RuleDims,
  type RuleOptions,
} from "./options.ts";

/**
 * Dimensions of a chunked call: BT tokens a chunk, NT chunks a row. A packed row has room for ⌊T/BT⌋ + N of them, enough
 * for any N sequences: those of sequence s begin at ⌊its first token / BT⌋ + s.
 */
export interface ChunkDims extends CallDims {
  BT: number;
  NT: number;
}

const chunkCount = (tokens: number, chunkLength: number, packed: boolean, sequences: number): number =>
  packed ? Math.floor(tokens / chunkLength) + sequences : Math.ceil(tokens / chunkLength);

export function chunkDims(
  c: Pick<CallContext, "dims" | "options" | "tensors">,
  BT = c.options.chunkLength as number,
): ChunkDims {
  const dims = callDims(c);
  return { ...dims, BT, NT: chunkCount(dims.T, BT, dims.packed, dims.N) };
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

/** The cumulative gates as stages take them, G and what its rounding left over; and where packed sequences begin. */
export const CUMULATIVE = {
  G: { dtype: ["f32"], shape: GATES, doc: "cumulative gates from `chunkCumsum`" },
  GLow: { dtype: ["f32"], shape: gateShape("G"), optional: true, doc: "their low part from `chunkCumsum`" },
  cuSeqlens: CU_SEQLENS,
} as const;

/** Kernels where each channel has its own gate are instances of their own. */
export const channelVariants = (variants: readonly string[]): string[] => [
  ...variants,
  ...variants.map((variant) => `${variant}_channels`),
];
export const gateVariant = (variant: string, { channels }: Pick<CallDims, "channels">): string =>
  channels === 1 ? variant : `${variant}_channels`;

/** The parameters of the stages; see RULE_PARAMS. */
export const CHUNK_PARAMS = { ...PLACE_PARAMS, lastTokens: "u32" } as const;

/** What a stage does not see is 1. `lastTokens`: chunks leave at least so many tokens of each sequence; 0: none. */
export function chunkParams(
  dims: Omit<ChunkDims, "Hk" | "V"> & Partial<RuleDims>,
  gqa: RuleOptions["gqa"],
  lastTokens = 0,
) {
  const { Hk = 1, V = 1 } = dims;
  return {
    sequences: dims.N,
    tokens: dims.T,
    keyHeads: Hk,
    headsPerKey: headsPerKey({ Hk, H: dims.H }, gqa),
    heads: dims.H,
    keyDim: dims.K,
    valueDim: V,
    chunkLength: dims.BT,
    lastTokens,
  };
}

/** Relations of dimensions on the chunk path. */
export function checkChunkDims(context: Pick<CallContext, "dims" | "tensors" | "fail">): void {
  checkRuleDims(context);
  const { K } = context.dims;
  if (K !== undefined && K % 8 !== 0)
    context.fail("k", "have a multiple of 8 elements per head (K) on the chunk path", K, 'use path "recurrent"');
}

/** Names of the intermediate tensors, in the order in which they are made. */
export type ScratchTensors = Record<"G" | "A" | "X" | "w" | "u" | "h" | "vNew", Tensor> &
  Partial<Record<"GLow" | "qUnit" | "kUnit" | "vKept" | "betaKept" | "carried", Tensor>>;

export interface ScratchShape extends CallDims {
  /** dtype of q, k, v and o. */
  dtype: Dtype;
  chunkLength: number;
  /** G has its low part beside it. */
  carriesLow: boolean;
  /** q and k are normalized. */
  normalized: boolean;
  /** Tokens are skipped. */
  masked: boolean;
  /** The state between chunks and the last tokens has no other place. */
  carries: boolean;
}

/** The intermediate tensors of one call. */
export function scratchTensors(shape: ScratchShape): [name: keyof ScratchTensors, dtype: Dtype, shape: number[]][] {
  const { B, T, Hk, H, K, V, N, dtype, chunkLength, channels, carriesLow, normalized, masked, carries } = shape;
  const gates = channels === 1 ? [B, T, H] : [B, T, H, K];
  const NT = chunkCount(T, chunkLength, shape.packed, N);
  const all: [wanted: boolean, name: keyof ScratchTensors, dtype: Dtype, shape: number[]][] = [
    [normalized || masked, "qUnit", dtype, [B, T, Hk, K]],
    [normalized || masked, "kUnit", dtype, [B, T, Hk, K]],
    [masked, "vKept", dtype, [B, T, H, V]],
    [masked, "betaKept", "f32", [B, T, H]],
    [true, "G", "f32", gates],
    [carriesLow, "GLow", "f32", gates],
    [true, "A", "f32", [B, T, H, chunkLength]],
    [true, "X", "f32", [B, T, H, chunkLength]],
    [true, "w", dtype, [B, T, H, K]],
    [true, "u", dtype, [B, T, H, V]],
    [true, "h", dtype, [B, NT, H, V, K]],
    [true, "vNew", dtype, [B, T, H, V]],
    [carries, "carried", "f32", [N, H, V, K]],
  ];
  return all.filter(([wanted]) => wanted).map(([, name, type, dims]) => [name, type, dims]);
}
