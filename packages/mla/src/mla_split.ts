import { DTYPES, defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { mlaLibrary } from "./library.ts";
import type { MlaSplit } from "./signatures.ts";
import { rowsTogether, rowThreads } from "./threads.ts";

type Sizes = Record<"tokens" | "heads" | "width", number>;

/** A copy asks for the width of an element, not for its dtype. */
export const mlaSplitKernel = defineKernel({
  library: mlaLibrary,
  name: "mla_split",
  variants: ["u16", "u32"],
  buffers: { q: "read", kv: "read", qNope: "write", qPe: "write", latent: "write", kPe: "write" },
  params: { heads: "u32", nope: "u32", latentDim: "u32", rope: "u32" },
  launch: {
    cpu: ({ tokens }: Sizes) => ({ threadgroups: [tokens, 1, 1] }),
    // The rows of a token are its heads and that of `kv`.
    gpu: ({ tokens, heads, width }) => {
      const threads = rowThreads(width, 4);
      const together = rowsTogether(heads + 1, threads);
      return {
        threadgroups: [tokens, Math.ceil((heads + 1) / together), 1],
        threadsPerThreadgroup: [threads, together, 1],
      };
    },
  },
});

/**
 * Takes the projections of multi-head latent attention apart, bit by bit: each head of `q` into its part without position
 * and its part for the rotary embedding, each row of `kv` into the latent and the key for the rotary embedding.
 *
 * - `q` [N, L, H, nope + rope], `kv` [N, L, R + rope], both f32, f16 or bf16, of one dtype. The last `rope` columns are
 *   those that are rotated.
 * - `qNope` [N, L, H, nope], `qPe` [N, L, H, rope], `latent` [N, L, R], `kPe` [N, L, rope].
 * - `rope` an integer ≥ 1, less than the columns of `q` and of `kv`.
 *
 * Errors: `InvalidArgument` for shapes, dtypes, options and any overlap.
 */
export const mlaSplit: MlaSplit = defineOp({
  name: "mlaSplit",
  summary: "q and kv taken apart: [nope | rope] of each head, [latent | rope]",
  inputs: {
    q: { dtype: FLOATS, shape: "N L H Dq", doc: "queries: of each head nope columns, then rope" },
    kv: { dtype: ["=q"], shape: "N L Dkv", doc: "of each token the latent's R columns, then rope" },
  },
  outputs: {
    qNope: {
      dtype: ["=q"],
      shape: {
        text: "N, L, H, nope",
        of: ({ dims: { N, L, H, Dq }, options }) => [N, L, H, (Dq as number) - (options.rope as number)] as number[],
      },
      doc: "queries without position",
    },
    qPe: {
      dtype: ["=q"],
      shape: { text: "N, L, H, rope", of: ({ dims: { N, L, H }, options }) => [N, L, H, options.rope] as number[] },
      doc: "queries to be rotated",
    },
    latent: {
      dtype: ["=q"],
      shape: {
        text: "N, L, R",
        of: ({ dims: { N, L, Dkv }, options }) => [N, L, (Dkv as number) - (options.rope as number)] as number[],
      },
      doc: "latents",
    },
    kPe: {
      dtype: ["=q"],
      shape: { text: "N, L, rope", of: ({ dims: { N, L }, options }) => [N, L, options.rope] as number[] },
      doc: "keys to be rotated",
    },
  },
  params: { rope: { kind: "number", integer: true, min: 1, doc: "columns that are rotated, the last ones" } },
  rules({ dims: { Dq, Dkv }, options: { rope }, fail }) {
    const columns = Math.min(Dq as number, Dkv as number);
    if (rope >= columns)
      fail("rope", `be less than the ${columns} columns of \`${columns === Dq ? "q" : "kv"}\``, rope);
  },
  encode({ encoder, op, inputs: { q, kv }, outputs, options: { rope }, dims }) {
    const { H, Dq, Dkv } = dims as Record<"H" | "Dq" | "Dkv", number>;
    const tokens = kv.size / Dkv;
    encoder.dispatch(mlaSplitKernel, {
      op,
      variant: `u${8 * DTYPES[q.dtype].bytesPerElement}`,
      buffers: { q, kv, ...outputs },
      params: { heads: H, nope: Dq - rope, latentDim: Dkv - rope, rope },
      sizes: { tokens, heads: H, width: Math.max(Dq, Dkv) },
    });
  },
});
