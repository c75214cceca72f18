import { type CommandEncoder, type FloatDtype, type Tensor, unsupported } from "@mlxts/core";
import { mlaPrefill, ropeYarn } from "@mlxts/mla";
import { rmsNorm } from "@mlxts/norms";
import type { Quantized } from "@mlxts/quant4";
import { columns } from "../copy.ts";
import type { ModelPath, Tokens } from "../pass.ts";
import type { ModelState } from "../state.ts";
import type { StateSpec } from "../state_options.ts";
import { runsOf } from "../tokens.ts";
import { linear, type Matrix, type Weights } from "../weights.ts";
import type { DeepseekConfig } from "./config.ts";

/**
 * How attention over latents is computed: with queries folded into the space of latents, with keys and values made of all
 * latents, or as `auto` decides by the number of tokens.
 */
export const LATENT_PATHS = ["auto", "folded", "materialized"] as const satisfies readonly ModelPath[];
export type LatentPath = (typeof LATENT_PATHS)[number];

/** Of the norms of latents and of compressed queries, whatever the config says of the others. */
const LATENT_EPS = 1e-6;

type Stored = Tensor | Quantized;
/** What makes keys and values of a latent: `kv_b_proj`, or mlx-lm's matrices of each head, those of keys transposed. */
type KvUp = { kvB: Stored } | { embedQ: Stored; unembedOut: Stored };

export interface AttentionLayer {
  /** Queries from the hidden state, or from compressed queries. */
  q: Matrix;
  /** Compressed queries and their norm. */
  compressed: { down: Matrix; norm: Tensor } | undefined;
  /** The latent and the key that is rotated. */
  kvDown: Matrix;
  kvNorm: Tensor;
  /** Keys and values of a latent. */
  kvUp: KvUp;
  out: Matrix;
}

/** Keys and values of a latent as they are stored: one matrix, or those of mlx-lm for each head. */
async function bindKvUp(w: Weights, { heads, nope, v, rank }: DeepseekConfig["attention"]): Promise<KvUp> {
  const stored = (name: string, { quantized, dense }: Pick<Matrix, "quantized" | "dense">): Stored => {
    if (quantized?.bits === 2) throw unsupported("loadModel", `a width of 2 bits (${name})`, "bits 4 and 8 are");
    return quantized ?? (dense as Tensor);
  };
  if (!w.has("embed_q.weight"))
    return { kvB: stored("kv_b_proj", w.matrixAlone("kv_b_proj", heads * (nope + v), rank)) };
  return {
    embedQ: stored("embed_q", w.stack("embed_q", heads, rank, nope)),
    unembedOut: stored("unembed_out", w.stack("unembed_out", heads, v, rank)),
  };
}

export async function bindAttention(w: Weights, { hiddenSize, attention }: DeepseekConfig): Promise<AttentionLayer> {
  const { heads, nope, rope, v, rank, queryRank } = attention;
  const queries = heads * (nope + rope);
  return {
    q:
      queryRank === undefined
        ? await w.matrix("q_proj", queries, hiddenSize)
        : await w.matrix("q_b_proj", queries, queryRank),
    compressed:
      queryRank === undefined
        ? undefined
        : {
            down: await w.matrix("q_a_proj", queryRank, hiddenSize),
            norm: await w.f32("q_a_layernorm.weight", [queryRank]),
          },
    kvDown: await w.matrix("kv_a_proj_with_mqa", rank + rope, hiddenSize),
    kvNorm: await w.f32("kv_a_layernorm.weight", [rank]),
    kvUp: await bindKvUp(w, attention),
    out: await w.matrix("o_proj", hiddenSize, heads * v),
  };
}

/** The tensors of layer `index` in a state. */
export function attentionState(
  index: number,
  { attention: { rank, rope } }: DeepseekConfig,
  { sequences, capacity, activationDtype: dtype }: { sequences: number; capacity: number; activationDtype: FloatDtype },
): StateSpec[] {
  return [
    { name: `latent.${index}`, dtype, shape: [sequences, capacity, rank], kind: "cache" },
    { name: `rope_key.${index}`, dtype, shape: [sequences, capacity, rope], kind: "cache" },
  ];
}

/** What one layer of a pass needs besides its weights. */
interface AttentionPass {
  config: DeepseekConfig;
  /** The index of the layer. */
  index: number;
  state: ModelState;
  tokens: Tokens;
  path: LatentPath;
  /** Cosines and sines of each position. */
  table: Tensor;
  softmaxScale: number;
}

/** Latent attention over x [T, hidden], each sequence over its own cache rows. */
export function encodeAttention(
  encoder: CommandEncoder,
  layer: AttentionLayer,
  x: Tensor,
  pass: AttentionPass,
): Tensor {
  const { config, index, state, tokens, path, table, softmaxScale } = pass;
  const { heads, nope, rope, v, rank, pairing } = config.attention;
  const count = x.shape[0] as number;
  const { compressed } = layer;
  const norm = (x: Tensor, weight: Tensor) => rmsNorm(encoder, { x, weight }, { eps: LATENT_EPS });
  const queryInput = compressed ? norm(linear(encoder, x, compressed.down), compressed.norm) : x;
  const q = linear(encoder, queryInput, layer.q).reshape([count, 1, heads, nope + rope]);
  const kv = linear(encoder, x, layer.kvDown);
  const latent = norm(columns(encoder, kv, 0, rank), layer.kvNorm);
  const { positions } = tokens;
  const qPe = ropeYarn(encoder, { x: q, positions, table }, { first: nope, pairing });
  const kPe = ropeYarn(
    encoder,
    { x: kv.reshape([count, 1, 1, rank + rope]), positions, table },
    { first: rank, pairing },
  );
  const out = encoder.empty(q.dtype, [count, heads * v]);
  for (const { rows, own } of runsOf(tokens)) {
    mlaPrefill(
      encoder,
      {
        q: rows(q, heads, nope + rope),
        qPe: rows(qPe, heads, rope),
        latent: rows(latent, rank),
        kPe: rows(kPe, rope),
        ...layer.kvUp,
        lengths: own(tokens.lengths),
        latentCache: own(state.tensor(`latent.${index}`)),
        kPeCache: own(state.tensor(`rope_key.${index}`)),
        out: rows(out, heads, v),
      },
      { nope, softmaxScale, form: path },
    );
  }
  return linear(encoder, out, layer.out);
}
