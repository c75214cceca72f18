// What launch rules and declarations of kernels share, most of it of the chunk stages.
import type { ChunkDims } from "./chunk.ts";

/** G and GLow as buffers of a kernel, and where packed sequences begin. */
export const CUMULATIVE_BUFFERS = { cumulativeGate: "read", cumulativeGateLow: "read?", cuSeqlens: "read?" } as const;

/** G of one head in one chunk, in the scratch of a kernel. */
export const CUMULATIVE_SCRATCH = { cumulativeGateHigh: "f32", cumulativeGateLow: "f32" } as const;

/** Two words with which the threads of a GPU's threadgroup agree on the place of their chunk. */
export const PLACE_SCRATCH = { place: "u32" } as const;
export const PLACE_SHAPE = { place: [2] } as const;

/** The shape of a scratch array that some dispatches do not need. */
export const shapeIf = (needed: boolean, ...shape: number[]): readonly number[] => (needed ? shape : [0]);

/** A GPU has rows of a chunk in threadgroup memory, a panel of so many bytes of each, with gaps that spread them over banks. */
export const PANEL = { panelBytes: 128, gapBytes: 16 } as const;

/** The shape of a panel of u8. */
export const panelShape = (rows: number) => [rows, PANEL.panelBytes + PANEL.gapBytes] as const;

/**
 * Where each channel has its own gate, a panel is of so many columns: of two operands, one beside the other, and of the
 * high and low parts of their G.
 */
export const CHANNEL_PANEL = { ...PANEL, channelColumns: 16 } as const;

/** Bytes between the rows of a tile in a GPU's threadgroup memory: `tile_stride` in core's metal_tile.h. */
const TILE_GAP = 16;

/** The shape of a tile: of u8, for rows of so many bytes, or of f32. */
export const tileShape = (rows: number, bytes: number) => [rows, bytes + TILE_GAP] as const;
export const tileShapeF32 = (rows: number, columns: number) => [rows, columns + TILE_GAP / 4] as const;

/** Bytes of each row that a GPU has in a tile; where each channel has its own gate, channels. */
export const TILES = { panelBytes: 128, channelColumns: 16 } as const;

/** Threads of a GPU's simdgroup, and rows of the square blocks that it multiplies. */
export const SIMD = 32;
export const BLOCK = 8;

/** A threadgroup for each chunk of a head. */
export const chunkThreadgroups = ({ NT, H, B }: Pick<ChunkDims, "NT" | "H" | "B">) => [NT, H, B] as const;

/** A GPU has a simdgroup for each two rows of blocks of a chunk. */
export const chunkThreads = ({ BT }: Pick<ChunkDims, "BT">) => [(BT / (2 * BLOCK)) * SIMD, 1, 1] as const;

/** Elements from row to row where a CPU takes rows of K elements as whole vectors. */
export const wholeVectors = (K: number): number => Math.ceil(K / 16) * 16;
