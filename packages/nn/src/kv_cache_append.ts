import { defineKernel, defineOp, FLOATS, wrongKind } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import type { KvCacheAppend } from "./signatures.ts";
import { rowsTogether, rowThreads } from "./threads.ts";

type Sizes = Record<"batch" | "tokens" | "heads" | "dim", number>;

export const kvCacheAppendKernel = defineKernel({
  library: nnLibrary,
  name: "kv_cache_append",
  variants: FLOATS.flatMap((from) => FLOATS.map((to) => `${from}_${to}`)),
  buffers: { k: "read", v: "read", start: "read", kCache: "readWrite", vCache: "readWrite" },
  early: ["start"],
  params: { batch: "u32", tokens: "u32", heads: "u32", dim: "u32", capacity: "u32" },
  faults: {
    start: ([start, sequence], { tokens, capacity }) =>
      `\`start\` must be at least 0 and leave room for ${tokens} rows in a cache of ${capacity}, ` +
      `got ${start | 0} at sequence ${sequence}`,
  },
  launch: {
    cpu: ({ batch, tokens }: Sizes) => ({ threadgroups: [tokens, batch, 1] }),
    gpu: ({ batch, tokens, heads, dim }) => {
      const threads = rowThreads(dim);
      const together = rowsTogether(heads, threads);
      return {
        threadgroups: [tokens, batch, Math.ceil(heads / together)],
        threadsPerThreadgroup: [threads, together, 1],
      };
    },
  },
});

/**
 * Writes new keys and values into a cache: `cache[b, h, start[b] + t, :] = new[b, t, h, :]`, for keys and values alike.
 *
 * - `k`, `v` [B, T, Hkv, D] f32, f16 or bf16, both of one dtype.
 * - `kCache`, `vCache` [B, Hkv, capacity, D] f32, f16 or bf16, both of one dtype; required, written in place and
 *   returned. Rows outside `start[b]` … `start[b] + T − 1` keep their bytes.
 * - `start` i32 [B]: the number of rows that sequence b has already.
 *
 * Each element is rounded once to the cache's dtype (ties to even; NaN and subnormals kept): an exact copy when the
 * dtypes are equal. Errors: `InvalidArgument` for shapes, dtypes and overlap; a `start` that is negative or leaves no
 * room for T rows fails the submission, and nothing at all is written by this call.
 */
export const kvCacheAppend: KvCacheAppend = defineOp({
  name: "kvCacheAppend",
  summary: "cache[b, h, start[b] + t] = new[b, t, h], for keys and values",
  inputs: {
    k: { dtype: FLOATS, shape: "B T Hkv D", doc: "keys of the new tokens" },
    v: { dtype: ["=k"], shape: "B T Hkv D", doc: "values of the new tokens" },
    start: { dtype: ["i32"], shape: "B", doc: "rows each sequence has before the append" },
  },
  outputs: {
    kCache: {
      dtype: FLOATS,
      shape: "B Hkv capacity D",
      doc: "cache of keys; keeps the rows that are not written",
    },
    vCache: {
      dtype: ["=kCache"],
      shape: "B Hkv capacity D",
      doc: "cache of values; keeps the rows that are not written",
    },
  },
  params: {},
  relations({ op, outputs, dims, fail }) {
    for (const name of ["kCache", "vCache"] as const)
      if (outputs[name] === undefined) throw wrongKind(op, name, "be a Tensor", undefined);
    const { T = 1, capacity = T } = dims;
    if (T > capacity) fail("k", `have at most the cache's ${capacity} rows`, T);
  },
  encode({ encoder, op, inputs: { k, v, start }, outputs: { kCache, vCache }, dims }) {
    const { B, T, Hkv, capacity, D } = dims as Record<"B" | "T" | "Hkv" | "capacity" | "D", number>;
    encoder.dispatch(kvCacheAppendKernel, {
      op,
      variant: `${k.dtype}_${kCache.dtype}`,
      buffers: { k, v, start, kCache, vCache },
      params: { batch: B, tokens: T, heads: Hkv, dim: D, capacity },
      sizes: { batch: B, tokens: T, heads: Hkv, dim: D },
    });
  },
});
