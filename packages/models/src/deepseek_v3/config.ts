import type { YarnOptions } from "@mlxts/mla";
import type { MoeSpec } from "../experts.ts";
import { Fields, MAX_EXPERTS, MAX_LAYERS } from "../fields.ts";

/** Far more than any model has for weights of experts or for angles: products with it stay finite in f32. */
const MAX_FACTOR = 1e4;
/** The tensor of a router that is added to the scores where experts are chosen. */
const CORRECTION_BIAS = "gate.e_score_correction_bias";

/** The sizes and constants of a DeepSeek model, V2 or V3. */
export interface DeepseekConfig {
  modelType: "deepseek_v2" | "deepseek_v3";
  vocabSize: number;
  hiddenSize: number;
  /** Of the dense layers. */
  intermediateSize: number;
  /** Of each layer, what follows its attention. */
  layers: readonly ("dense" | "experts")[];
  normEps: number;
  contextLength: number;
  tieEmbeddings: boolean;
  attention: {
    heads: number;
    /** Columns of a head's query and key without position, and those that are rotated. */
    nope: number;
    rope: number;
    /** Columns of a head's value. */
    v: number;
    /** Width of a latent. */
    rank: number;
    /** Width of the compressed queries; undefined where queries come from one matrix. */
    queryRank: number | undefined;
    rotary: YarnOptions;
    pairing: "interleaved" | "half";
  };
  moe: MoeSpec | undefined;
}

type RopeDims = Pick<YarnOptions, "ropeDim" | "headDim">;

/** The rotary embedding. */
function rotaryOf(config: Fields, dims: RopeDims, contextLength: number): YarnOptions {
  return config.rope(["default", "yarn", "deepseek_yarn"], (rope, type) => {
    const base = rope.number("rope_theta", 1, config.number("rope_theta", 1, 10000));
    return type === "default" ? { ...dims, base } : { ...dims, base, ...yarnOf(rope, contextLength) };
  });
}

/** What stretches the rotary embedding. */
function yarnOf(rope: Fields, contextLength: number) {
  const originalLength = rope.number("original_max_position_embeddings", 0, contextLength);
  const factor = rope.number("factor", 0, contextLength / originalLength);
  if (factor < 1) rope.refuse("factor", "be at least 1", factor);
  const betaFast = rope.number("beta_fast", 0, 32);
  const betaSlow = rope.number("beta_slow", 0, 1);
  if (betaFast < betaSlow) rope.refuse("beta_fast", `be at least beta_slow (${betaSlow})`, betaFast);
  const optional = (of: string) => (rope.has(of) ? rope.between(of, 0, MAX_FACTOR) : undefined);
  return {
    factor,
    originalLength,
    betaFast,
    betaSlow,
    mscale: optional("mscale"),
    mscaleAllDim: optional("mscale_all_dim"),
    attentionFactor: optional("attention_factor"),
    truncate: rope.boolean("truncate", true),
  };
}

function attentionOf(config: Fields, isV3: boolean, contextLength: number): DeepseekConfig["attention"] {
  const heads = config.size("num_attention_heads");
  const kvHeads = config.size("num_key_value_heads", heads);
  if (kvHeads !== heads) config.refuse("num_key_value_heads", `be num_attention_heads (${heads})`, kvHeads);
  const nope = config.size("qk_nope_head_dim");
  const rope = config.size("qk_rope_head_dim");
  if (rope % 2 !== 0) config.refuse("qk_rope_head_dim", "be even", rope);
  const dims = { ropeDim: rope, headDim: nope + rope };
  return {
    heads,
    nope,
    rope,
    v: config.size("v_head_dim"),
    rank: config.size("kv_lora_rank"),
    queryRank: config.has("q_lora_rank") ? config.size("q_lora_rank") : undefined,
    rotary: rotaryOf(config, dims, contextLength),
    pairing: !isV3 || config.boolean("rope_interleave", true) ? "interleaved" : "half",
  };
}

/** Groups of experts: how many there are, and how many of them a token may choose from. */
function groupsOf(config: Fields, experts: number, topK: number): { groups: number; topGroups: number } {
  const groups = config.size("n_group", 1);
  if (experts % groups !== 0) config.refuse("n_group", `divide n_routed_experts (${experts})`, groups);
  const topGroups = config.size("topk_group", groups, groups);
  const reachable = (topGroups * experts) / groups;
  if (topK > reachable)
    config.refuse("num_experts_per_tok", `be at most ${reachable}, the experts of topk_group groups`, topK);
  return { groups, topGroups };
}

function moeOf(config: Fields, isV3: boolean, hiddenSize: number): MoeSpec | undefined {
  if (!config.has("n_routed_experts")) return undefined;
  const experts = config.size("n_routed_experts", undefined, MAX_EXPERTS);
  const topK = config.size("num_experts_per_tok", undefined, experts);
  const width = config.size("moe_intermediate_size");
  const sharedExperts = config.has("n_shared_experts") ? config.size("n_shared_experts", undefined, MAX_EXPERTS) : 0;
  const shared = sharedExperts > 0 ? { name: "shared_experts", width: sharedExperts * width } : undefined;
  const scale = config.number("routed_scaling_factor", 0, 1, MAX_FACTOR);
  const common = { hiddenSize, experts, topK, width, shared, scale };
  if (isV3) {
    config.choice("scoring_func", ["sigmoid"], "sigmoid");
    config.choice("topk_method", ["noaux_tc"], "noaux_tc");
    const normalize = config.boolean("norm_topk_prob", true);
    const groups = groupsOf(config, experts, topK);
    return { ...common, ...groups, score: "sigmoid", bias: CORRECTION_BIAS, groupScore: "top2", normalize };
  }
  config.choice("scoring_func", ["softmax"], "softmax");
  // Implementations disagree on what it means for V2, and no published model has it.
  if (config.boolean("norm_topk_prob", false)) config.refuse("norm_topk_prob", "be false for deepseek_v2", true);
  // "gready" is the default of the original's class.
  const methods = ["greedy", "gready", "group_limited_greedy"] as const;
  const grouped = config.choice("topk_method", methods, "greedy") === "group_limited_greedy";
  const groups = grouped ? groupsOf(config, experts, topK) : { groups: 1, topGroups: 1 };
  return { ...common, ...groups, score: "softmax", groupScore: "max", normalize: false };
}

/** Reads and checks a `config.json`. Layers for the prediction of further tokens (`num_nextn_predict_layers`) are not read. */
export function deepseekConfig(json: Record<string, unknown>, op = "loadModel"): DeepseekConfig {
  const config = new Fields(json, "config", op);
  const modelType = config.choice("model_type", ["deepseek_v2", "deepseek_v3"]);
  const isV3 = modelType === "deepseek_v3";
  config.choice("hidden_act", ["silu"], "silu");
  const contextLength = config.size("max_position_embeddings");
  const hiddenSize = config.size("hidden_size");
  const moe = moeOf(config, isV3, hiddenSize);
  const count = config.size("num_hidden_layers", undefined, MAX_LAYERS);
  const firstDense = config.between("first_k_dense_replace", 0, MAX_LAYERS, 0);
  if (!Number.isInteger(firstDense)) config.refuse("first_k_dense_replace", "be an integer", firstDense);
  const every = config.size("moe_layer_freq", 1);
  const hasExperts = (layer: number) => moe !== undefined && layer >= firstDense && layer % every === 0;
  return {
    modelType,
    vocabSize: config.size("vocab_size"),
    hiddenSize,
    intermediateSize: config.size("intermediate_size"),
    layers: Array.from({ length: count }, (_, layer) => (hasExperts(layer) ? "experts" : "dense")),
    normEps: config.number("rms_norm_eps", 0, 1e-6),
    contextLength,
    tieEmbeddings: config.boolean("tie_word_embeddings", false),
    attention: attentionOf(config, isV3, contextLength),
    moe,
  };
}
