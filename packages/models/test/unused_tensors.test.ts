// Tensors that a model would leave out though they belong to a layer or module that it computes: refused, in all families.
import { rmSync, symlinkSync } from "node:fs";
import { join } from "node:path";
import { Device, type HostTensor, writeSafetensors } from "@mlxts/core";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { loadModel } from "../src/index.ts";
import { liveBuffers, withConfig } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

const moe = fixture("tiny-qwen3.5-moe");
const v2 = fixture("tiny-deepseek-v2");

/** A checkpoint with further tensors, in a file of their own. */
function withMore(from: string, names: readonly string[], config: Record<string, unknown> = {}): string {
  const folder = withConfig((own) => Object.assign(own, config), from);
  for (const file of ["model.safetensors", "model.safetensors.index.json"]) rmSync(join(folder, file), { force: true });
  symlinkSync(join(from, "model.safetensors"), join(folder, "model-1.safetensors"));
  const more: HostTensor = { dtype: "f32", shape: [8], data: new Float32Array(8) };
  writeSafetensors(
    join(folder, "model-2.safetensors"),
    names.map((name) => [name, more]),
  );
  return folder;
}

const layer = "model.layers.1";
const nested = "model.language_model.layers.1";

describe.each([
  [
    "qwen3_5",
    fixture("tiny-qwen3.5"),
    [
      "model.embed_tokens.bias",
      "model.norm.bias",
      `${layer}.input_layernorm.bias`,
      `${layer}.linear_attn.conv1d.bias`,
      "model.layers.3.self_attn.sinks",
      `${layer}.mlp.gate_proj.weight_scale`,
    ],
  ],
  [
    "qwen3_5, quantized",
    fixture("tiny-qwen3.5-4bit"),
    [
      "language_model.model.layers.1.linear_attn.norm.biases",
      "language_model.model.norm.scales",
      "language_model.model.layers.1.mlp.gate_proj.weight_scale",
    ],
  ],
  [
    "qwen3_5_moe",
    moe,
    [
      `${nested}.mlp.experts.gate_up_proj_bias`,
      `${nested}.mlp.experts.0.gate_proj.bias`,
      `${nested}.mlp.experts.1.up_proj.weight`,
      `${nested}.mlp.switch_mlp.down_proj.bias`,
      `${nested}.mlp.gate.e_score_correction_bias`,
    ],
  ],
  [
    "qwen3_next",
    unpackedCheckpoint("tiny-qwen3-next"),
    [
      `${layer}.mlp.experts.3.up_proj.bias`,
      `${layer}.mlp.experts.8.up_proj.weight`,
      `${layer}.linear_attn.conv1d.bias`,
    ],
  ],
  [
    "deepseek_v3",
    unpackedCheckpoint("tiny-deepseek-v3"),
    [
      `${layer}.mlp.experts.3.gate_proj.bias`,
      `${layer}.mlp.experts.8.gate_proj.weight`,
      `${layer}.self_attn.kv_b_proj.bias`,
      `${layer}.self_attn.kv_a_layernorm.bias`,
      `${layer}.self_attn.q_proj.weight`,
      "model.embed_tokens.bias",
    ],
  ],
  [
    "deepseek_v2",
    v2,
    [
      `${layer}.mlp.experts.7.down_proj.bias`,
      `${layer}.mlp.gate.e_score_correction_bias`,
      `${layer}.mlp.shared_expert_gate.weight`,
    ],
  ],
])("%s refuses", (_, from, names) => {
  it.each(names)("%s", async (name) => {
    const before = await liveBuffers(device);
    await expect(loadModel(device, withMore(from, [name]))).rejects.toMatchObject({
      code: "Safetensors",
      message: expect.stringContaining(`tensor ${name} would be left out: `),
      details: { tensor: name },
    });
    expect(await liveBuffers(device)).toBe(before);
  });
});

it("refuses a config without the shared experts that the tensors have", async () => {
  await expect(loadModel(device, withMore(v2, [], { n_shared_experts: null }))).rejects.toMatchObject({
    code: "Safetensors",
    details: { tensor: expect.stringMatching(/^model\.layers\.1\.mlp\.shared_experts\./) },
  });
});

it.each([
  ["qwen3_5_moe", moe, "layers.1", { num_hidden_layers: 1, layer_types: null }],
  ["deepseek_v2", v2, "layers.2", { num_hidden_layers: 2 }],
])("refuses a config of %s with fewer layers than the checkpoint has", async (_, from, layer, changes) => {
  const shorter = withConfig((config) => Object.assign(config.text_config ?? config, changes), from);
  await expect(loadModel(device, shorter)).rejects.toMatchObject({
    code: "Safetensors",
    message: expect.stringContaining("would be left out: the config does not ask for it"),
    details: { tensor: expect.stringContaining(`.${layer}.`) },
  });
});

it("refuses what predicts further tokens in a layer that the model computes", async () => {
  const tensor = "model.layers.1.enorm.weight";
  await expect(loadModel(device, withMore(v2, [tensor]))).rejects.toMatchObject({ details: { tensor } });
});

it("leaves out whole modules and layers that take no part, and frequencies that follow from the config", async () => {
  const others: [from: string, names: string[]][] = [
    [moe, ["model.visual.blocks.0.attn.proj.bias", "mtp.layers.1.mlp.gate.weight", "lm_head_2.weight"]],
    [v2, ["model.layers.3.mlp.experts.0.gate_proj.bias", "model.layers.3.enorm.weight"]],
    [v2, ["model.layers.0.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq"]],
  ];
  for (const [from, names] of others) (await loadModel(device, withMore(from, names))).dispose();
});

it("reads the biases of matrices", async () => {
  const folder = withMore(fixture("tiny-qwen3.5"), []);
  const path = join(folder, "model-2.safetensors");
  const names = ["model.layers.0.mlp.gate_proj.bias", "model.layers.1.mlp.up_proj.bias"];
  writeSafetensors(
    path,
    names.map((name) => [name, { dtype: "f32", shape: [768], data: new Float32Array(768) }]),
  );
  using model = await loadModel(device, folder);
  for (const name of names) expect([...model.tensorNames]).toContain(name);
});
