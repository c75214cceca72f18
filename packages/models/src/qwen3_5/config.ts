import { wrongValue } from "@mlxts/core";
import { Fields } from "../json.ts";

/** Far more than any model has; a config is not to decide how much memory its reader takes. */
const MAX_LAYERS = 4096;

export type LayerKind = "linear_attention" | "full_attention";

/** The sizes and constants of a dense Qwen3.5 text model. */
export interface Qwen3_5Config {
  vocabSize: number;
  hiddenSize: number;
  intermediateSize: number;
  layers: readonly LayerKind[];
  normEps: number;
  contextLength: number;
  tieEmbeddings: boolean;
  attention: { heads: number; kvHeads: number; headDim: number; rotaryDim: number; ropeTheta: number };
  delta: {
    keyHeads: number;
    valueHeads: number;
    keyDim: number;
    valueDim: number;
    /** Tokens that the convolution reads, the last one included. */
    kernelSize: number;
    /** Columns of all keys (and of all queries), of all values, and of queries, keys and values together. */
    keys: number;
    values: number;
    channels: number;
  };
}

/** Reads and checks a `config.json`; a multimodal one has the text model under `text_config`. */
export function qwen3_5Config(json: Record<string, unknown>): Qwen3_5Config {
  const outer = new Fields(json);
  const config = outer.has("text_config") ? outer.object("text_config") : outer;
  config.choice("hidden_act", ["silu"], "silu");
  const heads = config.size("num_attention_heads");
  const kvHeads = config.size("num_key_value_heads", heads);
  const hiddenSize = config.size("hidden_size");
  const headDim = config.size("head_dim", Math.ceil(hiddenSize / heads));
  const rope = config.object("rope_parameters");
  // mlx-lm writes the rope type as `type`, Hugging Face as `rope_type`.
  rope.choice(rope.has("rope_type") ? "rope_type" : "type", ["default"], "default");
  const partial = rope.number("partial_rotary_factor", 0, config.number("partial_rotary_factor", 0, 0.25));
  const rotaryDim = Math.trunc(headDim * partial);
  const keyHeads = config.size("linear_num_key_heads");
  const valueHeads = config.size("linear_num_value_heads");
  const count = config.size("num_hidden_layers", undefined, MAX_LAYERS);
  const interval = config.size("full_attention_interval", 4);
  const layers =
    config.choices("layer_types", ["linear_attention", "full_attention"], count) ??
    Array.from(
      { length: count },
      (_, i): LayerKind => ((i + 1) % interval === 0 ? "full_attention" : "linear_attention"),
    );

  const refuse = (field: string, rule: string, value: unknown): never => {
    throw wrongValue("loadModel", `config.${field}`, rule, value);
  };
  if (heads % kvHeads !== 0) refuse("num_attention_heads", `be a multiple of num_key_value_heads (${kvHeads})`, heads);
  if (valueHeads % keyHeads !== 0)
    refuse("linear_num_value_heads", `be a multiple of linear_num_key_heads (${keyHeads})`, valueHeads);
  if (rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > headDim)
    refuse("rope_parameters.partial_rotary_factor", "give an even number of rotated dimensions", partial);
  const keyDim = config.size("linear_key_head_dim");
  const valueDim = config.size("linear_value_head_dim");
  const keys = keyHeads * keyDim;
  const values = valueHeads * valueDim;
  return {
    vocabSize: config.size("vocab_size"),
    hiddenSize,
    intermediateSize: config.size("intermediate_size"),
    layers,
    normEps: config.number("rms_norm_eps", 0, 1e-6),
    contextLength: config.size("max_position_embeddings"),
    tieEmbeddings: config.boolean("tie_word_embeddings", outer.boolean("tie_word_embeddings", false)),
    attention: {
      heads,
      kvHeads,
      headDim,
      rotaryDim,
      ropeTheta: rope.number("rope_theta", 0, config.number("rope_theta", 0, 10000)),
    },
    delta: {
      keyHeads,
      valueHeads,
      keyDim,
      valueDim,
      keys,
      values,
      channels: 2 * keys + values,
      kernelSize: config.size("linear_conv_kernel_dim"),
    },
  };
}
