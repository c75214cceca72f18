import { type CommandEncoder, constantsOf, defineKernel, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { Argmax } from "./signatures.ts";
import { MOST_THREADS, rowThreads, SEARCH_THREADS, SIMD } from "./threads.ts";

/** Elements of a piece on a GPU: a model's vocabulary is about as many pieces as a large one has multiprocessors. */
const PIECE = 2048;
/** Rows of more pieces are cut. */
const UNCUT_PIECES = 8;

export const argmaxKernel = defineKernel({
  library: nnLibrary,
  name: "argmax",
  variants: FLOATS,
  buffers: { logits: "read", ids: "write" },
  params: { dim: "u32" },
  // Elements of a piece of a long row; 0: rows are not cut.
  constants: { cpu: { piece: 0 }, gpu: { piece: PIECE } },
  // The largest element of each simdgroup: its key and its index.
  scratch: { gpu: { largest: "u32" } },
  launch: {
    cpu: ({ rows }: { rows: number; dim: number }) => ({ threadgroups: [rows, 1, 1] }),
    gpu: ({ rows, dim }) => {
      const threads = rowThreads(dim, SEARCH_THREADS);
      return {
        threadgroups: [rows, 1, 1],
        threadsPerThreadgroup: [threads, 1, 1],
        scratch: { largest: [threads / SIMD, 2] },
      };
    },
  },
});

/** Long rows on a GPU, first half: key and index of the largest element of each piece. */
export const argmaxPiecesKernel = defineKernel({
  library: nnLibrary,
  name: "argmax_pieces",
  variants: FLOATS,
  buffers: { logits: "read", largest: "write" },
  params: { dim: "u32" },
  constants: { gpu: { piece: PIECE } },
  // The largest element of each simdgroup.
  scratch: { gpu: { simdgroups: "u32" } },
  launch: {
    gpu: ({ rows, dim }: { rows: number; dim: number }, { constants: { piece } }) => ({
      threadgroups: [Math.ceil(dim / piece), rows, 1],
      threadsPerThreadgroup: [MOST_THREADS, 1, 1],
      scratch: { simdgroups: [MOST_THREADS / SIMD, 2] },
    }),
  },
});

/** Long rows on a GPU, second half: the first largest of a row's pieces. */
export const argmaxMergeKernel = defineKernel({
  library: nnLibrary,
  name: "argmax_merge",
  variants: ["u32"],
  buffers: { largest: "read", ids: "write" },
  params: { pieces: "u32" },
  launch: {
    gpu: ({ rows }: { rows: number }) => ({ threadgroups: [rows, 1, 1], threadsPerThreadgroup: [SIMD, 1, 1] }),
  },
});

/** Records `ids[r] = argmax_v logits[r, v]` for an op. On a GPU many threadgroups search a long row. */
export function encodeArgmax(
  encoder: CommandEncoder,
  op: string,
  logits: Tensor,
  ids: Tensor,
  sizes: { rows: number; dim: number },
): void {
  const { rows, dim } = sizes;
  const { piece } = constantsOf(argmaxKernel, encoder.device);
  if (piece === 0 || dim <= UNCUT_PIECES * piece) {
    encoder.dispatch(argmaxKernel, { op, variant: logits.dtype, buffers: { logits, ids }, params: { dim }, sizes });
    return;
  }
  const pieces = Math.ceil(dim / piece);
  const largest = encoder.empty("u32", [rows, pieces, 2]);
  encoder.dispatch(argmaxPiecesKernel, {
    op,
    variant: logits.dtype,
    buffers: { logits, largest },
    params: { dim },
    sizes,
  });
  encoder.dispatch(argmaxMergeKernel, {
    op,
    variant: "u32",
    buffers: { largest, ids },
    params: { pieces },
    sizes: { rows },
  });
}

/**
 * Index of the largest element of each row: `ids[..] = argmax_v logits[.., v]`.
 *
 * - `logits` [.., V] f32, f16 or bf16; `ids` [..] u32, [1] for a single row.
 * - Of equal maxima the first. NaN never wins: a row of nothing else gives 0, a row of −∞ its first −∞.
 *
 * Errors: `InvalidArgument` for shapes, dtypes and overlap.
 */
export const argmax: Argmax = defineOp({
  name: "argmax",
  summary: "index of the largest logit",
  inputs: { logits: { dtype: FLOATS, shape: "... V", doc: "rows to search" } },
  outputs: {
    ids: {
      dtype: ["u32"],
      shape: { text: "...", of: ({ lead }) => (lead.length > 0 ? lead : [1]) },
      doc: "column of the largest logit of each row, the first of equal ones",
    },
  },
  params: {},
  encode({ encoder, op, inputs: { logits }, outputs: { ids }, rows, dims }) {
    encodeArgmax(encoder, op, logits, ids, { rows, dim: dims.V as number });
  },
});
