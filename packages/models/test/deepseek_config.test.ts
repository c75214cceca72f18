// Configs and files of DeepSeek models that are refused, each with an error that names the field or tensor.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Device, readSafetensors, writeSafetensors } from "@mlxts/core";
import { yarnRotary } from "@mlxts/mla";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, expect, it } from "vitest";
import { deepseekConfig, loadModel, quantizeCheckpoint } from "../src/index.ts";
import { liveBuffers, temporary, withConfig } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

const tinyV2 = fixture("tiny-deepseek-v2");
const yarn = { rope_type: "yarn", factor: 40, original_max_position_embeddings: 64 };

/** What the configs of published models have in common. */
const published = {
  hidden_act: "silu",
  kv_lora_rank: 512,
  qk_nope_head_dim: 128,
  qk_rope_head_dim: 64,
  v_head_dim: 128,
  max_position_embeddings: 163840,
  rope_theta: 10000,
  moe_layer_freq: 1,
  rms_norm_eps: 1e-6,
  tie_word_embeddings: false,
};
/** `mscale` of DeepSeek-V2. */
const V2_MSCALE = 707 / 1000;
const rope_scaling = { beta_fast: 32, beta_slow: 1, factor: 40, original_max_position_embeddings: 4096, type: "yarn" };

it("reads DeepSeek-V3's config", () => {
  const config = deepseekConfig({
    ...published,
    model_type: "deepseek_v3",
    vocab_size: 129280,
    hidden_size: 7168,
    intermediate_size: 18432,
    moe_intermediate_size: 2048,
    num_hidden_layers: 61,
    num_nextn_predict_layers: 1,
    first_k_dense_replace: 3,
    num_attention_heads: 128,
    num_key_value_heads: 128,
    q_lora_rank: 1536,
    n_routed_experts: 256,
    n_shared_experts: 1,
    num_experts_per_tok: 8,
    n_group: 8,
    topk_group: 4,
    topk_method: "noaux_tc",
    scoring_func: "sigmoid",
    norm_topk_prob: true,
    routed_scaling_factor: 2.5,
    rope_scaling: { ...rope_scaling, mscale: 1, mscale_all_dim: 1 },
  });
  expect(config.layers.map((kind) => kind === "dense")).toEqual(Array.from({ length: 61 }, (_, i) => i < 3));
  expect(config.attention).toMatchObject({ heads: 128, rank: 512, queryRank: 1536, pairing: "interleaved" });
  expect(yarnRotary(config.attention.rotary).softmaxScale).toBeCloseTo(0.135233779, 9);
  expect(config.moe).toEqual({
    hiddenSize: 7168,
    experts: 256,
    topK: 8,
    width: 2048,
    shared: { name: "shared_experts", width: 2048 },
    scale: 2.5,
    groups: 8,
    topGroups: 4,
    groupScore: "top2",
    score: "sigmoid",
    bias: "gate.e_score_correction_bias",
    normalize: true,
  });
});

it("reads DeepSeek-V2-Lite's config", () => {
  const config = deepseekConfig({
    ...published,
    model_type: "deepseek_v2",
    vocab_size: 102400,
    hidden_size: 2048,
    intermediate_size: 10944,
    moe_intermediate_size: 1408,
    num_hidden_layers: 27,
    first_k_dense_replace: 1,
    num_attention_heads: 16,
    num_key_value_heads: 16,
    q_lora_rank: null,
    n_routed_experts: 64,
    n_shared_experts: 2,
    num_experts_per_tok: 6,
    n_group: 1,
    topk_group: 1,
    topk_method: "greedy",
    scoring_func: "softmax",
    norm_topk_prob: false,
    routed_scaling_factor: 1,
    rope_scaling: { ...rope_scaling, mscale: V2_MSCALE, mscale_all_dim: V2_MSCALE },
  });
  expect(config.attention.queryRank).toBeUndefined();
  expect(yarnRotary(config.attention.rotary)).toMatchObject({
    amplitude: 1,
    softmaxScale: expect.closeTo(1.58962617 * 192 ** -0.5, 8),
  });
  const shared = { name: "shared_experts", width: 2816 };
  expect(config.moe).toMatchObject({ experts: 64, topK: 6, score: "softmax", normalize: false, groups: 1, shared });
});

it.each<[string, Record<string, unknown>, string]>([
  ["topK", { num_experts_per_tok: 9 }, "`config.num_experts_per_tok` must be an integer from 1 to 8, got 9"],
  ["no topK", { num_experts_per_tok: null }, "`config.num_experts_per_tok` must be a number"],
  ["experts", { n_routed_experts: 1e9 }, "`config.n_routed_experts` must be an integer from 1 to 65536"],
  ["shared", { n_shared_experts: 1.5 }, "`config.n_shared_experts` must be an integer from 1 to 65536, got 1.5"],
  ["layers", { num_hidden_layers: 1e6 }, "`config.num_hidden_layers` must be an integer from 1 to 4096"],
  ["dense layers", { first_k_dense_replace: -1 }, "`config.first_k_dense_replace` must be at least 0"],
  ["part of a layer", { first_k_dense_replace: 0.5 }, "`config.first_k_dense_replace` must be an integer, got 0.5"],
  ["frequency of experts", { moe_layer_freq: 0 }, "`config.moe_layer_freq` must be an integer from 1"],
  ["scores", { scoring_func: "sigmoid" }, "`config.scoring_func` must be one of softmax, got"],
  [
    "method",
    { topk_method: "noaux_tc" },
    "`config.topk_method` must be one of greedy, gready, group_limited_greedy, got",
  ],
  ["normalize", { norm_topk_prob: true }, "`config.norm_topk_prob` must be false for deepseek_v2, got true"],
  ["huge scale", { routed_scaling_factor: 1e300 }, "`config.routed_scaling_factor` must be at most 10000, got 1e+300"],
  ["scale", { routed_scaling_factor: 0 }, "`config.routed_scaling_factor` must be > 0, got 0"],
  [
    "scale below f32",
    { routed_scaling_factor: 1e-300 },
    "`config.routed_scaling_factor` must be > 0 as f32, got 1e-300",
  ],
  ["eps", { rms_norm_eps: 1e39 }, "`config.rms_norm_eps` must be at most 3.4028234663852886e+38, got 1e+39"],
  [
    "two rotary embeddings",
    { rope_parameters: yarn, rope_scaling: { ...yarn, factor: 20 } },
    "`config.rope_scaling` must say the same as rope_parameters, got another rotary embedding",
  ],
  [
    "two types",
    { rope_parameters: { ...yarn, type: "default" } },
    "`config.rope_parameters.rope_type` must be one of default, got yarn",
  ],
  [
    "groups",
    { topk_method: "group_limited_greedy", n_group: 3, topk_group: 1 },
    "`config.n_group` must divide n_routed_experts (8), got 3",
  ],
  [
    "groups kept",
    { topk_method: "group_limited_greedy", n_group: 4, topk_group: 5 },
    "`config.topk_group` must be an integer from 1 to 4, got 5",
  ],
  [
    "reach",
    { topk_method: "group_limited_greedy", n_group: 4, topk_group: 1 },
    "`config.num_experts_per_tok` must be at most 2, the experts of topk_group groups, got 3",
  ],
  ["heads of keys", { num_key_value_heads: 2 }, "`config.num_key_value_heads` must be num_attention_heads (4), got 2"],
  ["rank", { kv_lora_rank: 0 }, "`config.kv_lora_rank` must be an integer from 1"],
  ["odd rope", { qk_rope_head_dim: 15 }, "`config.qk_rope_head_dim` must be even, got 15"],
  ["activation", { hidden_act: "gelu" }, "`config.hidden_act` must be one of silu"],
  [
    "rope type",
    { rope_parameters: { rope_type: "llama3" } },
    "`config.rope_parameters.rope_type` must be one of default",
  ],
  [
    "factor",
    { rope_parameters: { ...yarn, factor: 0.5 } },
    "`config.rope_parameters.factor` must be at least 1, got 0.5",
  ],
  ["base", { rope_parameters: { ...yarn, rope_theta: 1 } }, "`config.rope_parameters.rope_theta` must be > 1, got 1"],
  [
    "betas",
    { rope_parameters: { ...yarn, beta_fast: 1, beta_slow: 2 } },
    "`config.rope_parameters.beta_fast` must be at least beta_slow (2), got 1",
  ],
  ["mscale", { rope_parameters: { ...yarn, mscale: -1 } }, "`config.rope_parameters.mscale` must be at least 0"],
  [
    "huge mscale",
    { rope_parameters: { ...yarn, mscale_all_dim: 1e308 } },
    "`config.rope_parameters.mscale_all_dim` must be at least 0 and at most 10000, got 1e+308",
  ],
  [
    "original length",
    { rope_parameters: null, rope_scaling: { ...yarn, original_max_position_embeddings: 0 } },
    "`config.rope_scaling.original_max_position_embeddings` must be > 0, got 0",
  ],
])("refuses a config: %s", async (_, changes, message) => {
  const folder = withConfig((config) => Object.assign(config, changes), tinyV2);
  const error = await loadModel(device, folder).catch((reason) => reason);
  expect(error).toMatchObject({ code: "InvalidArgument", message: expect.stringContaining(`loadModel: ${message}`) });
});

it("takes the original class's default for the choice of experts, as greedy", () => {
  const config = JSON.parse(readFileSync(join(tinyV2, "config.json"), "utf8"));
  const of = (method: string) => deepseekConfig({ ...config, topk_method: method }).moe;
  expect(of("gready")).toEqual(of("greedy"));
  expect(of("greedy")).toMatchObject({ groups: 1, topGroups: 1 });
});

it.each<[string, Record<string, unknown>, string]>([
  ["rank", { kv_lora_rank: 31 }, "self_attn.kv_a_proj_with_mqa.weight must have shape [47, 32], got [48, 32]"],
  ["compressed queries", { q_lora_rank: 8 }, "self_attn.q_b_proj.weight is missing"],
  [
    "heads",
    { num_attention_heads: 5, num_key_value_heads: 5 },
    "self_attn.q_proj.weight must have shape [240, 32], got [192, 32]",
  ],
  ["values", { v_head_dim: 25 }, "self_attn.kv_b_proj.weight must have shape [228, 32], got [224, 32]"],
  ["a layer more", { num_hidden_layers: 4 }, "model.layers.3.input_layernorm.weight is missing"],
  ["dense layers", { first_k_dense_replace: 3 }, "model.layers.1.mlp.gate_proj.weight is missing"],
  ["experts", { n_routed_experts: 7 }, "mlp.gate.weight must have shape [7, 32], got [8, 32]"],
  ["width", { moe_intermediate_size: 16 }, "must have shape [16, 32], got [32, 32]"],
  ["V3 without its bias", { model_type: "deepseek_v3", topk_method: "noaux_tc" }, "e_score_correction_bias is missing"],
])("refuses tensors that do not fit the config: %s", async (_, changes, message) => {
  const before = await liveBuffers(device);
  const folder = withConfig((config) => Object.assign(config, changes), tinyV2);
  const error = await loadModel(device, folder).catch((reason) => reason);
  expect(error).toMatchObject({ code: "Safetensors", message: expect.stringContaining(message) });
  expect(await liveBuffers(device)).toBe(before);
});

it("refuses an expert that is missing", async () => {
  const folder = withConfig(() => {}, tinyV2);
  const { tensors } = readSafetensors(join(tinyV2, "model.safetensors"));
  const all = new Map(tensors);
  all.delete("model.layers.2.mlp.experts.5.down_proj.weight");
  writeSafetensors(join(folder, "model.safetensors"), all);
  await expect(loadModel(device, folder)).rejects.toMatchObject({
    code: "Safetensors",
    message: expect.stringContaining("model.layers.2.mlp.experts.5.down_proj.weight is missing"),
  });
});

it("refuses mlx-lm's matrices of keys and values when they do not fit the config or one is missing", async () => {
  const four = join(temporary(), "four");
  await quantizeCheckpoint(device, unpackedCheckpoint("tiny-deepseek-v3"), four);
  const loaded = (change: (config: Record<string, unknown>) => void, without?: string) => {
    const folder = withConfig(change, four);
    const { tensors } = readSafetensors(join(four, "model.safetensors"));
    if (without)
      writeSafetensors(
        join(folder, "model.safetensors"),
        [...tensors].filter(([name]) => name !== without),
      );
    return loadModel(device, folder).then((model) => model.dispose());
  };
  const values = "model.layers.0.self_attn.unembed_out.weight";
  await expect(loaded(() => {})).resolves.toBeUndefined();
  await expect(loaded((config) => Object.assign(config, { v_head_dim: 32 }))).rejects.toMatchObject({
    code: "Safetensors",
    message: expect.stringContaining(`${values} must hold a quantized [8, 32, 128] stack, got [8, 64, 128]`),
  });
  await expect(loaded(() => {}, values)).rejects.toThrow(values.slice(0, -".weight".length));
  await expect(loaded(() => {}, "model.layers.0.self_attn.embed_q.weight")).rejects.toThrow("self_attn.kv_b_proj");
});

it("does not read layers for further tokens", async () => {
  const folder = withConfig((config) => Object.assign(config, { num_nextn_predict_layers: 7 }), tinyV2);
  using model = await loadModel(device, folder);
  expect(JSON.parse(JSON.stringify(model))).toMatchObject({ type: "DeepseekV3", modelType: "deepseek_v2", layers: 3 });
});
