import { defineOp } from "@mlxts/core";
import { encodeHeadAttention } from "./head_attention.ts";
import { headKeys, headValues } from "./head_weights.ts";
import { encodeFolded, encodeNewRows, LAYER, type Layer, layerRelations, layerRules } from "./mla_decode.ts";
import type { MlaPrefill } from "./signatures.ts";

const FORMS = ["auto", "folded", "materialized"] as const;

/**
 * New tokens of a long context for which folded attention and that with decompressed keys and values cost the same:
 * R · P / (2R − P). Below, each row of the cache costs folding less.
 */
function foldedTokens(c: Layer): number {
  const { nope } = c.options;
  const { headDim: v, rank: R } = headValues(c, { nope });
  const P = nope + v;
  return 2 * R > P ? (R * P) / (2 * R - P) : Number.POSITIVE_INFINITY;
}

const folds = (c: Layer): boolean =>
  c.options.form === "folded" ||
  (c.options.form === "auto" && (c.inputs.treeMask !== undefined || (c.dims.L as number) <= foldedTokens(c)));

/**
 * Multi-head latent attention of many new tokens in one call: what mlaDecode computes, of the same tensors, with keys and
 * values decompressed where that costs less.
 *
 * - `form` `auto` (default): folded, as mlaDecode, up to R · P / (2R − P) new tokens (171 with the widths of DeepSeek-V3),
 *   and with a `treeMask`; above that `materialized`: the weights make keys and values of all visible rows of the cache, for a
 *   block of heads and rows at a time. A `treeMask` is not taken with `materialized`.
 * - `scratchBytes`, default 64 MiB, is the most that keys and values of a block take: (nope + v) elements for each of its
 *   heads, rows and sequences. A block has 64 rows of one head at least, 256 of bf16 on a processor with AMX (or the whole
 *   cache, if that is less), whatever `scratchBytes` says. It does not bound what waits for the next block where the cache has more rows than one: the
 *   softmax and the sums of each token, ⌈v / 128⌉ · 136 f32 for each of the block's heads. Folded, it bounds nothing.
 * - All else as for mlaDecode.
 *
 * Materialized: scores, softmax and sums in f32; keys and values have the dtype of q where the cache has the same one, else
 * f32. Where the processor has bf16 products (AVX-512 with BF16, or AMX) and both are bf16, weights are rounded to bf16 before
 * their products; a GPU rounds them to the dtype of keys and values. In both forms a sequence's result is the same, bit for bit, beside any other
 * sequences and in a cache of any capacity. Errors: `InvalidArgument` for shapes, dtypes, options and overlap; wrong lengths
 * fail the submission, and then nothing is appended.
 */
export const mlaPrefill: MlaPrefill = defineOp({
  name: "mlaPrefill",
  summary: "multi-head latent attention of many new tokens over a latent cache that they are appended to",
  ...LAYER,
  params: {
    ...LAYER.params,
    scratchBytes: {
      kind: "number",
      integer: true,
      min: 1,
      max: Number.MAX_SAFE_INTEGER,
      default: 1 << 26,
      doc: "most bytes of decompressed keys and values at a time",
    },
    form: {
      kind: "choice",
      values: FORMS,
      default: "auto",
      doc: "folded queries, or keys and values made of all latents",
    },
  },
  relations: (c) => layerRelations(c),
  rules(c) {
    layerRules(c);
    const { inputs, options, fail } = c;
    if (inputs.treeMask && options.form === "materialized")
      fail("form", "be auto or folded where `treeMask` is given", options.form);
  },
  encode(c) {
    encodeNewRows(c);
    if (folds(c)) return encodeFolded(c);
    const { encoder, op, inputs, outputs, options } = c;
    const [keyMatrix, valueMatrix] = [headKeys(c, options.nope), headValues(c, options)];
    encodeHeadAttention({ encoder, op, keyMatrix, valueMatrix, ...inputs, ...outputs, ...options });
  },
}) as MlaPrefill;
