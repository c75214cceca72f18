import type { MoeSpec } from "../experts.ts";
import { Fields, MAX_EXPERTS, MAX_LAYERS } from "../fields.ts";

export type LayerKind = "linear_attention" | "full_attention";

/** The sizes and constants of a Qwen3.5 text model, or of Qwen3-Next. */
export interface Qwen3_5Config {
  /** The `model_type` of the family. */
  modelType: "qwen3_5" | "qwen3_5_moe" | "qwen3_next";
  vocabSize: number;
  hiddenSize: number;
  /** Width of the MLP of layers without experts; 0 when there are none. */
  intermediateSize: number;
  layers: readonly LayerKind[];
  moe?: MoeSpec | undefined;
  /** Which layers have experts instead of an MLP. */
  hasExperts: readonly boolean[];
  normEps: number;
  contextLength: number;
  tieEmbeddings: boolean;
  attention: { heads: number; kvHeads: number; headDim: number; rotaryDim: number; ropeTheta: number };
  delta: {
    keyHeads: number;
    valueHeads: number;
    keyDim: number;
    valueDim: number;
    /** Width of the convolution: the token itself and those before it. */
    kernelSize: number;
    /** keyHeads · keyDim: columns of all keys, and of all queries. */
    keys: number;
    /** valueHeads · valueDim: columns of all values. */
    values: number;
    /** Columns of queries, keys and values together, which the convolution runs over. */
    channels: number;
    /**
     * Qwen3-Next: one matrix gives for each key head its query, key, values and output gates, and one its b and a. Else
     * each has a matrix of its own, except that one gives all queries, then all keys, then all values.
     */
    joined: boolean;
  };
}

function attentionOf(config: Fields, hiddenSize: number): Qwen3_5Config["attention"] {
  const heads = config.size("num_attention_heads");
  const kvHeads = config.size("num_key_value_heads", heads);
  const headDim = config.size("head_dim", Math.ceil(hiddenSize / heads));
  const { partial, ropeTheta } = config.rope(["default"], (rope) => ({
    partial: rope.number("partial_rotary_factor", 0, config.number("partial_rotary_factor", 0, 0.25)),
    ropeTheta: rope.number("rope_theta", 1, config.number("rope_theta", 1, 10000)),
  }));
  const rotaryDim = Math.trunc(headDim * partial);
  if (heads % kvHeads !== 0)
    config.refuse("num_attention_heads", `be a multiple of num_key_value_heads (${kvHeads})`, heads);
  if (rotaryDim < 2 || rotaryDim % 2 !== 0 || rotaryDim > headDim)
    config.refuse("rope_parameters.partial_rotary_factor", "give an even number of rotated dimensions", partial);
  return { heads, kvHeads, headDim, rotaryDim, ropeTheta };
}

function deltaOf(config: Fields): Qwen3_5Config["delta"] {
  const keyHeads = config.size("linear_num_key_heads");
  const valueHeads = config.size("linear_num_value_heads");
  if (valueHeads % keyHeads !== 0)
    config.refuse("linear_num_value_heads", `be a multiple of linear_num_key_heads (${keyHeads})`, valueHeads);
  const keyDim = config.size("linear_key_head_dim");
  const valueDim = config.size("linear_value_head_dim");
  const keys = keyHeads * keyDim;
  const values = valueHeads * valueDim;
  const kernelSize = config.size("linear_conv_kernel_dim");
  return {
    keyHeads,
    valueHeads,
    keyDim,
    valueDim,
    kernelSize,
    keys,
    values,
    channels: 2 * keys + values,
    joined: false,
  };
}

/** The kinds of the layers: listed one by one, or full attention in every n-th. */
function layersOf(config: Fields): readonly LayerKind[] {
  const count = config.size("num_hidden_layers", undefined, MAX_LAYERS);
  const interval = config.size("full_attention_interval", 4);
  const kindOf = (i: number): LayerKind => ((i + 1) % interval === 0 ? "full_attention" : "linear_attention");
  return (
    config.choices("layer_types", ["linear_attention", "full_attention"], count) ??
    Array.from({ length: count }, (_, i) => kindOf(i))
  );
}

/** Experts as all Qwen models have them: routing by softmax, and one shared expert behind a gate. */
export function moeOf(config: Fields, hiddenSize: number): MoeSpec {
  const experts = config.size("num_experts", undefined, MAX_EXPERTS);
  const topK = config.size("num_experts_per_tok");
  if (topK > experts) config.refuse("num_experts_per_tok", `be at most num_experts (${experts})`, topK);
  return {
    hiddenSize,
    experts,
    topK,
    width: config.size("moe_intermediate_size"),
    score: "softmax",
    groups: 1,
    topGroups: 1,
    groupScore: "top2",
    normalize: config.boolean("norm_topk_prob", true),
    scale: 1,
    shared: {
      name: "shared_expert",
      width: config.size("shared_expert_intermediate_size"),
      gate: "shared_expert_gate",
    },
  };
}

/** What all models of gated delta rule and gated attention say of themselves in the same way. */
export function hybridConfig(
  config: Fields,
  outer: Fields,
): Omit<Qwen3_5Config, "modelType" | "hasExperts" | "intermediateSize"> {
  config.choice("hidden_act", ["silu"], "silu");
  const hiddenSize = config.size("hidden_size");
  return {
    vocabSize: config.size("vocab_size"),
    hiddenSize,
    layers: layersOf(config),
    normEps: config.number("rms_norm_eps", 0, 1e-6),
    contextLength: config.size("max_position_embeddings"),
    tieEmbeddings: config.boolean("tie_word_embeddings", outer.boolean("tie_word_embeddings", false)),
    attention: attentionOf(config, hiddenSize),
    delta: deltaOf(config),
  };
}

/** The fields of the text model: of a multimodal config those under `text_config`. */
function textFields(json: Record<string, unknown>): { outer: Fields; config: Fields } {
  const outer = new Fields(json);
  return { outer, config: outer.has("text_config") ? outer.object("text_config") : outer };
}

/** Reads and checks the `config.json` of a dense model. */
export function qwen3_5Config(json: Record<string, unknown>): Qwen3_5Config {
  const { outer, config } = textFields(json);
  const common = hybridConfig(config, outer);
  const hasExperts = common.layers.map(() => false);
  return { modelType: "qwen3_5", ...common, intermediateSize: config.size("intermediate_size"), hasExperts };
}

/** Reads and checks the `config.json` of a model with experts in each layer. */
export function qwen3_5MoeConfig(json: Record<string, unknown>): Qwen3_5Config {
  const { outer, config } = textFields(json);
  const common = hybridConfig(config, outer);
  const hasExperts = common.layers.map(() => true);
  const moe = moeOf(config, common.hiddenSize);
  return { modelType: "qwen3_5_moe", ...common, intermediateSize: 0, moe, hasExperts };
}
