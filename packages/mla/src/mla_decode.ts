import { defineOp, FLOATS, type FloatDtype, type OpContext, wrongKind } from "@mlxts/core";
import { encodeHeadProduct } from "./head_matmul.ts";
import { HEAD_WEIGHTS, headKeys, headValues, headWeightRelations, valueWidth } from "./head_weights.ts";
import { encodeAttention } from "./mla_attention.ts";
import { encodeAppend } from "./mla_cache_append.ts";
import type { MlaDecode } from "./signatures.ts";

/** What mlaDecode and mlaPrefill take and give. */
export const LAYER = {
  inputs: {
    q: { dtype: FLOATS, shape: "N L H D", doc: "queries; of each head the first `nope` columns are read" },
    qPe: { dtype: ["=q"], shape: "N L H rope", doc: "rotated queries" },
    latent: { dtype: ["=q"], shape: "N L R", optional: true, doc: "latents of the new tokens, after their norm" },
    kPe: { dtype: ["=q"], shape: "N L rope", optional: true, doc: "rotated keys of the new tokens" },
    ...HEAD_WEIGHTS,
    lengths: { dtype: ["i32"], shape: "N", doc: "valid rows of each sequence's cache, the new ones included" },
    treeMask: {
      dtype: ["u32"],
      shape: { text: "L, ⌈L / 32⌉", of: ({ dims: { L = 1 } }: OpContext) => [L, Math.ceil(L / 32)] },
      optional: true,
      doc: "bit j of row i: new token i sees new token j; in place of `causal`",
    },
  },
  outputs: {
    out: {
      dtype: (c: OpContext) => (c.options.outDtype ?? c.tensors.q?.dtype) as FloatDtype,
      shape: {
        text: "N, L, H, v",
        of: (c: OpContext) => [c.dims.N, c.dims.L, c.dims.H, valueWidth(c, c.options.nope as number)] as number[],
      },
      doc: "outputs of heads",
    },
    latentCache: { dtype: FLOATS, shape: "N capacity R", doc: "cache of latents" },
    kPeCache: {
      dtype: ["=latentCache"],
      shape: "N capacity rope",
      doc: "cache of rotated keys",
    },
  },
  params: {
    nope: { kind: "number", integer: true, min: 1, doc: "columns of a query without position" },
    softmaxScale: { kind: "number", above: 0, doc: "multiplies the scores; `yarnRotary` gives it" },
    causal: { kind: "boolean", default: true, doc: "the last token sees all rows, each earlier one a row less" },
    outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of the result; default that of q" },
  },
} as const;
export type Layer = OpContext<typeof LAYER.inputs, typeof LAYER.outputs, typeof LAYER.params>;

export function layerRelations(c: Layer): void {
  const { op, inputs, outputs, dims, fail } = c;
  headWeightRelations(c, ["embedQ", "unembedOut"]);
  for (const name of ["latentCache", "kPeCache"] as const)
    if (outputs[name] === undefined) throw wrongKind(op, name, "be a Tensor", undefined);
  const [given, missing] = inputs.latent ? (["latent", "kPe"] as const) : (["kPe", "latent"] as const);
  if (inputs[given] && !inputs[missing]) fail(missing, `be given with \`${given}\``, undefined);
  const { L = 1, capacity = L } = dims;
  if (L > capacity) fail("q", `have at most the cache's ${capacity} rows`, L);
}

export function layerRules(c: Layer): void {
  const { dims, options, fail } = c;
  const D = dims.D as number;
  if (options.nope > D) fail("nope", `be at most the ${D} columns of \`q\``, options.nope);
  headKeys(c, options.nope);
  headValues(c, { nope: options.nope });
}

/** The new rows, if there are any, into the caches. */
export function encodeNewRows({ encoder, op, inputs, outputs: { latentCache, kPeCache } }: Layer): void {
  const { latent, kPe, lengths } = inputs;
  if (latent && kPe)
    encodeAppend({
      encoder,
      op,
      latent,
      kPe,
      start: lengths,
      latentCache,
      kPeCache,
      counted: latent.shape[1] as number,
    });
}

/** Attention of folded queries over the cache, and the heads' values. */
export function encodeFolded(c: Layer): void {
  const { encoder, op, inputs, outputs, options, dims } = c;
  const { q, qPe, lengths, treeMask } = inputs;
  const { out, latentCache, kPeCache } = outputs;
  const { N, L, H, R } = dims as Record<"N" | "L" | "H" | "R", number>;
  const { nope, softmaxScale, causal } = options;
  const queries = encoder.empty("f32", [N, L, H, R]);
  const vc = encoder.empty("f32", [N, L, H, R]);
  encodeHeadProduct({ encoder, op, x: q, matrix: headKeys(c, nope), from: "heads", out: queries });
  encodeAttention({ encoder, op, queries, qPe, latentCache, kPeCache, lengths, treeMask, vc, softmaxScale, causal });
  encodeHeadProduct({ encoder, op, x: vc, matrix: headValues(c, { nope }), from: "latents", out });
}

/**
 * Multi-head latent attention of new tokens in one call: their rows are appended to the cache, their queries folded, the
 * latents weighted and the heads' values made of them. The same as mlaCacheAppend, mlaQPrime, mlaAttention and mlaOut one
 * after the other.
 *
 * - `q` [N, L, H, D] and `qPe` [N, L, H, rope] f32, f16 or bf16, of one dtype: of each head the first `nope` ≤ D columns of
 *   `q`, and its rotated query. `q` may be what the projection gave.
 * - `latent` [N, L, R] and `kPe` [N, L, rope], of the dtype of q: latents and rotated keys of the new tokens, which are
 *   written to the last L of the `lengths[n]` rows; both or none. Without them the rows are in the cache already.
 * - `kvB` [H · P, R], `kv_b_proj`: of the P rows of a head the first `nope` are those of keys. Or, as MLX stores them,
 *   both `embedQ` [H, R, nope] and `unembedOut` [H, v, R]. Each a tensor in f32, f16 or bf16 or a `Quantized` with bits 4
 *   or 8, of which groups run along the last dimension.
 * - `latentCache` [N, capacity, R], `kPeCache` [N, capacity, rope] f32, f16 or bf16, of one dtype; required, and returned.
 * - `lengths` i32 [N]: rows valid in each sequence's cache, those of the L new tokens included.
 * - `treeMask` and `causal` as for mlaAttention.
 * - `out` [N, L, H, v], v = P − nope, f32, f16 or bf16, as `outDtype` says, default the dtype of q.
 *
 * Folded queries, scores, softmax and sums in f32; roundings as in mlaAttention. A sequence's result is the same, bit for
 * bit, beside any other sequences and in a cache of any capacity. Errors: `InvalidArgument` for shapes, dtypes, options and
 * overlap; wrong lengths fail the submission, and then nothing is appended.
 */
export const mlaDecode: MlaDecode = defineOp({
  name: "mlaDecode",
  summary: "multi-head latent attention of new tokens over a latent cache that they are appended to",
  ...LAYER,
  relations: layerRelations,
  rules: layerRules,
  encode(c) {
    encodeNewRows(c);
    encodeFolded(c);
  },
}) as MlaDecode;
