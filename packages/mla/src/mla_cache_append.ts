import { type CommandEncoder, defineKernel, defineOp, FLOATS, type Tensor, wrongKind } from "@mlxts/core";
import { mlaLibrary } from "./library.ts";
import type { MlaCacheAppend } from "./signatures.ts";
import { rowThreads } from "./threads.ts";

type Sizes = Record<"batch" | "tokens" | "width", number>;

export const mlaCacheAppendKernel = defineKernel({
  library: mlaLibrary,
  name: "mla_cache_append",
  variants: FLOATS.flatMap((from) => FLOATS.map((to) => `${from}_${to}`)),
  buffers: { latent: "read", kPe: "read", start: "read", latentCache: "readWrite", kPeCache: "readWrite" },
  // Strides: elements from a row of a cache to the next, and rows from a sequence to the next. `counted`: new rows that
  // `start` counts already.
  params: {
    batch: "u32",
    tokens: "u32",
    latentDim: "u32",
    rope: "u32",
    capacity: "u32",
    latentStride: "u32",
    ropeStride: "u32",
    sequenceStride: "u32",
    counted: "u32",
  },
  faults: {
    start: ([start, sequence], { tokens, capacity, counted }) =>
      counted > 0
        ? `\`lengths\` must be from the ${tokens} new rows to ${capacity}, ` +
          `got ${(start + counted) | 0} at sequence ${sequence}`
        : `\`start\` must be at least 0 and leave room for ${tokens} rows in a cache of ${capacity}, ` +
          `got ${start | 0} at sequence ${sequence}`,
  },
  launch: {
    cpu: ({ batch, tokens }: Sizes) => ({ threadgroups: [tokens, batch, 1] }),
    gpu: ({ batch, tokens, width }) => ({
      threadgroups: [tokens, batch, 1],
      threadsPerThreadgroup: [rowThreads(width, 4), 1, 1],
    }),
  },
});

interface Append extends Record<"latent" | "kPe" | "start" | "latentCache" | "kPeCache", Tensor> {
  encoder: CommandEncoder;
  op: string;
  /** New rows that `start` counts already. */
  counted: number;
}

export function encodeAppend({ encoder, op, latent, kPe, start, latentCache, kPeCache, counted }: Append): void {
  const [N, L, R] = latent.shape as [number, number, number];
  const [rope, capacity] = [kPe.lastDim, latentCache.shape[1] as number];
  encoder.dispatch(mlaCacheAppendKernel, {
    op,
    variant: `${latent.dtype}_${latentCache.dtype}`,
    buffers: { latent, kPe, start, latentCache, kPeCache },
    params: {
      batch: N,
      tokens: L,
      latentDim: R,
      rope,
      capacity,
      latentStride: R,
      ropeStride: rope,
      sequenceStride: capacity,
      counted,
    },
    sizes: { batch: N, tokens: L, width: Math.max(R, rope) },
  });
}

/**
 * Writes the latents and the rotated keys of new tokens into their caches: `cache[n, start[n] + i, :] = new[n, i, :]`.
 *
 * - `latent` [N, L, R], `kPe` [N, L, rope] f32, f16 or bf16, both of one dtype.
 * - `latentCache` [N, capacity, R], `kPeCache` [N, capacity, rope] f32, f16 or bf16, both of one dtype; required, written in
 *   place and returned. Rows outside `start[n]` … `start[n] + L − 1` keep their bytes.
 * - `start` i32 [N]: the number of rows that sequence n has already.
 *
 * Each element is rounded once to the cache's dtype (ties to even; NaN and subnormals kept): an exact copy when the
 * dtypes are equal. Errors: `InvalidArgument` for shapes, dtypes and overlap; a `start` that is negative or leaves no
 * room for L rows fails the submission, and nothing at all is written by this call.
 */
export const mlaCacheAppend: MlaCacheAppend = defineOp({
  name: "mlaCacheAppend",
  summary: "cache[n, start[n] + i] = new[n, i], for latents and rotated keys",
  inputs: {
    latent: { dtype: FLOATS, shape: "N L R", doc: "latents of the new tokens, after their norm" },
    kPe: { dtype: ["=latent"], shape: "N L rope", doc: "rotated keys of the new tokens" },
    start: { dtype: ["i32"], shape: "N", doc: "rows each sequence has before the append" },
  },
  outputs: {
    latentCache: {
      dtype: FLOATS,
      shape: "N capacity R",
      doc: "cache of latents; keeps the rows that are not written",
    },
    kPeCache: {
      dtype: ["=latentCache"],
      shape: "N capacity rope",
      doc: "cache of rotated keys; keeps the rows that are not written",
    },
  },
  params: {},
  relations({ op, outputs, dims, fail }) {
    for (const name of ["latentCache", "kPeCache"] as const)
      if (outputs[name] === undefined) throw wrongKind(op, name, "be a Tensor", undefined);
    const { L = 1, capacity = L } = dims;
    if (L > capacity) fail("latent", `have at most the cache's ${capacity} rows`, L);
  },
  encode({ encoder, op, inputs: { latent, kPe, start }, outputs: { latentCache, kPeCache } }) {
    encodeAppend({ encoder, op, latent, kPe, start, latentCache, kPeCache, counted: 0 });
  },
});
