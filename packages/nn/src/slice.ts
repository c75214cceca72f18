import { DTYPES, type Dtype, defineKernel, defineOp, OLD_SCRATCH, oldLaunch } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Slice } from "./signatures.ts";
import { rowThreads } from "./threads.ts";

const DTYPE_LIST = ["f32", "f16", "bf16", "u32", "i32", "u16", "i16", "u8", "i8"] as const satisfies readonly Dtype[];

/** Bytes that one threadgroup copies, or one row if that is more. */
const BLOCK_BYTES = 1 << 14;

interface Sizes {
  rows: number;
  size: number;
  rowsPerThreadgroup: number;
}

/** Element width decides: a copy has no other business with the dtype. */
export const sliceKernel = defineKernel({
  library: nnLibrary,
  name: "slice",
  variants: ["u8", "u16", "u32"],
  buffers: { x: "read", out: "write" },
  params: { dim: "u32", begin: "u32", size: "u32", rows: "u32", rowsPerThreadgroup: "u32" },
  // A GPU's thread copies up to four elements of a row; short rows lie side by side in a threadgroup.
  constants: { shared: { perThread: 4 } },
  scratch: OLD_SCRATCH,
  launch: oldLaunch(({ rows, size, rowsPerThreadgroup }: Sizes, { gpu }) => {
    if (!gpu) return { threadgroups: [Math.ceil(rows / rowsPerThreadgroup), 1, 1], threadsPerThreadgroup: [1, 1, 1] };
    const threads = rowThreads(size, 256);
    const together = Math.min(rows, Math.floor(256 / threads));
    return {
      threadgroups: [Math.ceil(size / (4 * threads)), Math.ceil(rows / together), 1],
      threadsPerThreadgroup: [threads, together, 1],
    };
  }),
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
  inputs: { x: { dtype: DTYPE_LIST, shape: "... D", doc: "rows to cut" } },
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
    const { bytes } = DTYPES[x.dtype];
    const dim = dims.D as number;
    // A GPU copies whole words where all rows start with one: tensors do.
    const words = encoder.device.gpu && [dim, begin, size].every((n) => (n * bytes) % 4 === 0);
    const unit = words ? 4 : bytes;
    const units = (n: number) => (n * bytes) / unit;
    const rowsPerThreadgroup = Math.max(1, Math.floor(BLOCK_BYTES / (size * unit)));
    encoder.dispatch(sliceKernel, {
      op,
      variant: `u${unit * 8}`,
      buffers: { x, out },
      params: { dim: units(dim), begin: units(begin), size: units(size), rows, rowsPerThreadgroup },
      sizes: { rows, size: units(size), rowsPerThreadgroup },
    });
  },
});
