import { DTYPES, type Dtype, defineKernel, defineOp } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Slice } from "./signatures.ts";
import { MOST_THREADS, rowsTogether, SIMD } from "./threads.ts";

/** Dtypes of columns that are copied bit by bit. */
export const COPIED = [
  "f32",
  "f16",
  "bf16",
  "u32",
  "i32",
  "u16",
  "i16",
  "u8",
  "i8",
] as const satisfies readonly Dtype[];

const WORD_BYTES = 4;
/** Bytes that a CPU's threadgroup copies, or one row if that is more. */
const BLOCK_BYTES = 1 << 14;

export interface CopySizes {
  rows: number;
  /** Elements that are copied of a row, and bytes of one. */
  size: number;
  elementBytes: number;
}

/**
 * In which elements rows are copied: as words where they begin and end with whole ones, which all of `columns` say. With the
 * number of those elements in a number of columns.
 */
export function copiedElements(dtype: Dtype, columns: readonly number[]) {
  const { bytesPerElement: bytes } = DTYPES[dtype];
  const elementBytes = columns.every((n) => (n * bytes) % WORD_BYTES === 0) ? WORD_BYTES : bytes;
  return { elementBytes, elements: (n: number) => (n * bytes) / elementBytes };
}

/** Whole rows to a CPU's threadgroup. */
export function rowsCopied({ rows, size, elementBytes }: CopySizes) {
  const rowsPerThreadgroup = Math.max(1, Math.floor(BLOCK_BYTES / (size * elementBytes)));
  return { threadgroups: [Math.ceil(rows / rowsPerThreadgroup), 1, 1] as const, params: { rowsPerThreadgroup } };
}

/** Threads of a GPU, `perThread` elements of a row to each. */
export function copyThreads({ rows, size }: Pick<CopySizes, "rows" | "size">, perThread: number) {
  const threads = Math.min(MOST_THREADS, SIMD * Math.ceil(size / (perThread * SIMD)));
  const together = rowsTogether(rows, threads);
  return {
    threadgroups: [Math.ceil(size / (perThread * threads)), Math.ceil(rows / together), 1] as const,
    threadsPerThreadgroup: [threads, together, 1] as const,
  };
}

/** A copy asks for the width of an element, not for its dtype. */
export const sliceKernel = defineKernel({
  library: nnLibrary,
  name: "slice",
  variants: ["u8", "u16", "u32"],
  buffers: { x: "read", out: "write" },
  params: { dim: "u32", begin: "u32", size: "u32", rows: "u32" },
  launchParams: { cpu: { rowsPerThreadgroup: "u32" } },
  // Elements of a row that a thread copies.
  constants: { gpu: { perThread: 4 } },
  launch: { cpu: rowsCopied, gpu: (sizes: CopySizes, { constants }) => copyThreads(sizes, constants.perThread) },
});

/**
 * Columns `begin` … `begin + size − 1` of the last dimension, copied bit by bit: `out[.., i] = x[.., begin + i]`.
 *
 * - `x` [.., D], any dtype of 1, 2 or 4 bytes; `out` [.., size], the same dtype.
 * - `begin` an integer ≥ 0, `size` an integer ≥ 1, `begin + size` ≤ D.
 *
 * Errors: `InvalidArgument` for shapes, dtypes, options and any overlap.
 */
export const slice: Slice = defineOp({
  name: "slice",
  summary: "columns begin … begin + size − 1 of x",
  inputs: { x: { dtype: COPIED, shape: "... D", doc: "rows to cut" } },
  outputs: {
    out: {
      dtype: ["=x"],
      shape: { text: "..., size", of: ({ lead, options }) => [...lead, options.size as number] },
      doc: "a copy of the columns",
    },
  },
  params: {
    begin: { kind: "number", integer: true, min: 0, doc: "first column" },
    size: { kind: "number", integer: true, min: 1, doc: "number of columns" },
  },
  check({ dims, options: { begin, size }, fail }) {
    const dim = dims.D as number;
    if (begin >= dim) fail("begin", `be < D = ${dim}`, begin);
    if (begin + size > dim) fail("size", `be ≤ D − begin = ${dim - begin}`, size);
  },
  encode({ encoder, op, inputs: { x }, outputs: { out }, options: { begin, size }, rows, dims }) {
    const dim = dims.D as number;
    const { elementBytes, elements } = copiedElements(x.dtype, [dim, begin, size]);
    encoder.dispatch(sliceKernel, {
      op,
      variant: `u${elementBytes * 8}`,
      buffers: { x, out },
      params: { dim: elements(dim), begin: elements(begin), size: elements(size), rows },
      sizes: { rows, size: elements(size), elementBytes },
    });
  },
});
