// What `quantize` writes for DeepSeek models, against the hashes of what mlx_lm.convert writes.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Device, type HostTensor, readSafetensors, writeSafetensors } from "@mlxts/core";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, expect, it } from "vitest";
import { quantizeCheckpoint } from "../src/index.ts";
import { temporary, withConfig } from "./fixtures.ts";
import { conversions, hashesOf } from "./mlx_hashes.ts";

const device = Device.open();
afterAll(() => device.dispose());

const tinyV2 = fixture("tiny-deepseek-v2");
const tinyV3 = unpackedCheckpoint("tiny-deepseek-v3");

async function quantized(from: string, bits: 4 | 8, groupSize: 32 | 64 | 128): Promise<string> {
  const out = join(temporary(), "out");
  await quantizeCheckpoint(device, from, out, { bits, groupSize });
  return out;
}

it.each([
  ["deepseek_checkpoint_hashes.json", tinyV3],
  ["deepseek_v2_checkpoint_hashes.json", tinyV2],
])("equals mlx_lm.convert word for word: %s", async (file, from) => {
  for (const { bits, group_size: groupSize, tensors } of Object.values(conversions(file)))
    expect(hashesOf(await quantized(from, bits, groupSize)), `${bits} bits, ${groupSize}`).toEqual(tensors);
});

it("stacks of experts, with gates and ups in one tensor, become the same files", async () => {
  const { tensors } = readSafetensors(join(tinyV2, "model.safetensors"));
  const stacked = new Map(tensors);
  for (const layer of [1, 2]) {
    const mlp = `model.layers.${layer}.mlp`;
    const all = (projection: string) => {
      const own = Array.from({ length: 8 }, (_, e) => {
        const name = `${mlp}.experts.${e}.${projection}.weight`;
        stacked.delete(name);
        return Array.from(tensors.get(name)?.data as Uint16Array);
      });
      return own;
    };
    const [gates, ups, downs] = [all("gate_proj"), all("up_proj"), all("down_proj")];
    const both = Uint16Array.from(gates.flatMap((gate, e) => [...gate, ...(ups[e] as number[])]));
    stacked.set(`${mlp}.experts.gate_up_proj`, { dtype: "bf16", shape: [8, 64, 32], data: both });
    stacked.set(`${mlp}.experts.down_proj`, {
      dtype: "bf16",
      shape: [8, 32, 32],
      data: Uint16Array.from(downs.flat()),
    });
  }
  const folder = withConfig(() => {}, tinyV2);
  writeSafetensors(join(folder, "model.safetensors"), stacked);
  expect(hashesOf(await quantized(folder, 4, 32))).toEqual(hashesOf(await quantized(tinyV2, 4, 32)));
});

it("keeps layers for the prediction of further tokens as they are, and gives the rotary embedding mlx-lm's name", async () => {
  const folder = withConfig((config) => {
    config.num_hidden_layers = 2;
    config.num_nextn_predict_layers = 1;
  }, tinyV2);
  await expect(quantized(folder, 4, 32)).rejects.toThrow(
    /^quantize: `config\.num_hidden_layers` must count the layer of model\.layers\.2\.\S+, got 2$/,
  );
  const { tensors } = readSafetensors(join(tinyV2, "model.safetensors"));
  const norm: HostTensor = { dtype: "f32", shape: [32], data: new Float32Array(32) };
  writeSafetensors(join(folder, "model.safetensors"), new Map(tensors).set("model.layers.2.enorm.weight", norm));
  const out = await quantized(folder, 4, 32);
  const isFurther = ([name]: [string, unknown]) => name.startsWith("model.layers.2.");
  const own = Object.entries(hashesOf(await quantized(tinyV2, 4, 32))).filter((entry) => !isFurther(entry));
  expect(hashesOf(out)).toEqual(Object.fromEntries(own));
  const further = Object.entries(hashesOf(folder)).filter(isFurther);
  expect(further.length).toBeGreaterThan(30);
  expect(hashesOf(out, "mtp.safetensors")).toEqual(Object.fromEntries(further));
  const [config, original] = [out, tinyV2].map((from) => JSON.parse(readFileSync(join(from, "config.json"), "utf8")));
  expect(config).toMatchObject({
    model_type: "deepseek_v2",
    rope_theta: 10000,
    rope_scaling: original.rope_parameters,
    quantization: { bits: 4, group_size: 32, mode: "affine" },
  });
});

it("refuses experts that are missing or differ, and another shape of kv_b_proj", async () => {
  const changed = (
    from: string,
    change: (tensors: Map<string, { dtype: "bf16"; shape: number[]; data: Uint16Array }>) => void,
  ) => {
    const folder = withConfig(() => {}, from);
    const { tensors } = readSafetensors(join(from, "model.safetensors"));
    const all = new Map(tensors) as Map<string, { dtype: "bf16"; shape: number[]; data: Uint16Array }>;
    change(all);
    writeSafetensors(join(folder, "model.safetensors"), all);
    return quantizeCheckpoint(device, folder, join(temporary(), "out"), { groupSize: 32 });
  };
  const expert = "model.layers.1.mlp.experts.3.up_proj.weight";
  await expect(changed(tinyV2, (tensors) => tensors.delete(expert))).rejects.toThrow(`\`${expert}\`: is missing`);
  await expect(
    changed(tinyV2, (tensors) => tensors.set(expert, { dtype: "bf16", shape: [1, 32], data: new Uint16Array(32) })),
  ).rejects.toMatchObject({
    code: "Safetensors",
    message: expect.stringContaining("must be bf16 [32, 32] as that of expert 0"),
  });
  await expect(
    changed(tinyV2, (tensors) =>
      tensors.set("model.layers.1.mlp.experts.gate_up_proj", {
        dtype: "bf16",
        shape: [1, 3, 32],
        data: new Uint16Array(96),
      }),
    ),
  ).rejects.toThrow("must be a stack of gates and ups, got [1, 3, 32]");
  await expect(
    changed(tinyV3, (tensors) =>
      tensors.set("model.layers.0.self_attn.kv_b_proj.weight", {
        dtype: "bf16",
        shape: [1023, 128],
        data: new Uint16Array(1023 * 128),
      }),
    ),
  ).rejects.toThrow(
    "quantize: `model.layers.0.self_attn.kv_b_proj.weight` must have shape [1024, 128], got [1023, 128]",
  );
});
