import type { CommandEncoder, FloatDtype, Tensor } from "@mlxts/core";
import { kvCacheAppend, rope, sdpa, sigmoidGate, slice } from "@mlxts/nn";
import { rmsNorm } from "@mlxts/norms";
import type { Tokens } from "../pass.ts";
import type { ModelState } from "../state.ts";
import type { StateSpec } from "../state_options.ts";
import { runsOf } from "../tokens.ts";
import { linear, type Matrix, type Weights } from "../weights.ts";
import type { Qwen3_5Config } from "./config.ts";

export interface AttentionLayer {
  kind: "full_attention";
  q: Matrix;
  k: Matrix;
  v: Matrix;
  out: Matrix;
  qNorm: Tensor;
  kNorm: Tensor;
}

export async function bindAttention(w: Weights, config: Qwen3_5Config): Promise<AttentionLayer> {
  const { hiddenSize, attention } = config;
  const { heads, kvHeads, headDim } = attention;
  return {
    kind: "full_attention",
    q: await w.matrix("q_proj", 2 * heads * headDim, hiddenSize),
    k: await w.matrix("k_proj", kvHeads * headDim, hiddenSize),
    v: await w.matrix("v_proj", kvHeads * headDim, hiddenSize),
    out: await w.matrix("o_proj", hiddenSize, heads * headDim),
    qNorm: await w.f32("q_norm.weight", [headDim]),
    kNorm: await w.f32("k_norm.weight", [headDim]),
  };
}

/** The tensors of layer `index` in a state. */
export function attentionState(
  index: number,
  { attention: { kvHeads, headDim } }: Qwen3_5Config,
  { sequences, capacity, activationDtype }: { sequences: number; capacity: number; activationDtype: FloatDtype },
): StateSpec[] {
  const shape = [sequences, kvHeads, capacity, headDim];
  return ["keys", "values"].map((cache) => ({
    name: `${cache}.${index}`,
    dtype: activationDtype,
    shape,
    kind: "cache",
  }));
}

/** What one layer of a pass needs besides its weights. */
interface AttentionPass {
  config: Qwen3_5Config;
  /** The index of the layer. */
  index: number;
  state: ModelState;
  tokens: Tokens;
  frequencies: Tensor;
  weightOffset: 0 | 1;
}

/** Attention of q [T, heads, headDim] over the caches, to which k and v [T, kvHeads, headDim] are appended. */
function attend(encoder: CommandEncoder, q: Tensor, k: Tensor, v: Tensor, pass: AttentionPass): Tensor {
  const { config, index, state, tokens } = pass;
  const { heads, kvHeads, headDim } = config.attention;
  const out = encoder.empty(q.dtype, [tokens.ids.size * heads, headDim]);
  for (const { rows, own } of runsOf(tokens)) {
    const kCache = own(state.tensor(`keys.${index}`));
    const vCache = own(state.tensor(`values.${index}`));
    kvCacheAppend(encoder, {
      k: rows(k, kvHeads, headDim),
      v: rows(v, kvHeads, headDim),
      kCache,
      vCache,
      start: own(tokens.start),
    });
    sdpa(
      encoder,
      {
        q: rows(q, heads, headDim),
        kCache,
        vCache,
        lengths: own(tokens.lengths),
        out: rows(out, heads, headDim),
      },
      { scale: headDim ** -0.5 },
    );
  }
  return out;
}

/** Gated attention over x [T, hidden], each sequence over its own cache rows. */
export function encodeAttention(
  encoder: CommandEncoder,
  layer: AttentionLayer,
  x: Tensor,
  pass: AttentionPass,
): Tensor {
  const { config, tokens, frequencies, weightOffset } = pass;
  const { heads, kvHeads, headDim } = config.attention;
  const rows = x.shape[0] as number;
  // The projection gives each head its query and then its output gate.
  const queryAndGate = linear(encoder, x, layer.q).reshape([rows * heads, 2 * headDim]);
  const query = slice(encoder, { x: queryAndGate }, { begin: 0, size: headDim });
  const gate = slice(encoder, { x: queryAndGate }, { begin: headDim, size: headDim });
  const normedAndRotated = (projected: Tensor, weight: Tensor, count: number) => {
    const x = rmsNorm(
      encoder,
      { x: projected.reshape([1, rows, count, headDim]), weight },
      { eps: config.normEps, weightOffset },
    );
    const positions = tokens.positions.reshape([1, rows]);
    return rope(encoder, { x, positions, inverseFrequencies: frequencies, out: x });
  };
  const q = normedAndRotated(query, layer.qNorm, heads);
  const k = normedAndRotated(linear(encoder, x, layer.k), layer.kNorm, kvHeads);
  const v = linear(encoder, x, layer.v);
  const gated = sigmoidGate(encoder, { x: attend(encoder, q, k, v, pass), gate });
  return linear(encoder, gated.reshape([rows, heads * headDim]), layer.out);
}
