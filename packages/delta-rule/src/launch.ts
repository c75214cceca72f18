// What launch rules and declarations of kernels share, most of it of the chunk stages.
import { tileStride } from "@mlxts/core";
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

/** The shape of a tile: of u8, for rows of so many bytes, or of f32. */
export const tileShape = (rows: number, bytes: number) => [rows, tileStride("u8", bytes)] as const;
export const tileShapeF32 = (rows: number, columns: number) => [rows, tileStride("f32", columns)] as const;

/** Threads of a GPU's simdgroup, rows of the square blocks that it multiplies, and rows of a chunk that it has. */
export const SIMD = 32;
export const BLOCK = 8;
export const STRIP = 16;

/** A threadgroup for each chunk of a head. */
export const chunkThreadgroups = ({ NT, H, B }: Pick<ChunkDims, "NT" | "H" | "B">) => [NT, H, B] as const;

/** A GPU has a simdgroup for each 16 rows of a chunk. */
export const chunkThreads = ({ BT }: Pick<ChunkDims, "BT">) => [(BT / STRIP) * SIMD, 1, 1] as const;

/** Columns of the wide tiles of NVIDIA's GPUs, see wide_tiles_cuda.h, and 16-bit elements from row to row. */
export const WIDE = 128;
export const WIDE_STRIDE = tileStride("bf16", WIDE);
/** Chunks and rows that these may hold: whole ones, with one gate a head. */
export const wideChunks = ({ BT, V, channels }: Pick<ChunkDims, "BT" | "V" | "channels">) =>
  BT === 4 * STRIP && V % 8 === 0 && channels === 1;

/** Elements from row to row where a CPU takes rows of K elements as whole vectors. */
export const wholeVectors = (K: number): number => Math.ceil(K / 16) * 16;
