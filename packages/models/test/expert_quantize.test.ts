import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Device, readSafetensors } from "@mlxts/core";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { quantizeCheckpoint } from "../src/index.ts";
import { temporary } from "./fixtures.ts";
import { type Conversion, conversions, hashesOf } from "./mlx_hashes.ts";

const device = Device.open();
afterAll(() => device.dispose());

describe.each([
  ["tiny-qwen3-next", unpackedCheckpoint("tiny-qwen3-next"), "model.layers.0.mlp.gate"],
  ["tiny-qwen3.5-moe", fixture("tiny-qwen3.5-moe"), "language_model.model.layers.0.mlp.gate"],
])("quantizeCheckpoint of %s", (name, source, router) => {
  const variants = conversions(`${name}.mlx_hashes.json`);

  it.each(Object.keys(variants))("equals mlx_lm.convert word for word: %s", async (variant) => {
    const { bits, group_size: groupSize, quantization, tensors } = variants[variant] as Conversion;
    const out = join(temporary(), "out");
    await quantizeCheckpoint(device, source, out, { bits, groupSize });
    expect(hashesOf(out)).toEqual(tensors);
    const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
    expect(config.quantization).toEqual(quantization);
    expect(config.quantization_config).toEqual(quantization);
    expect(config.quantization[router]).toEqual({ group_size: 64, bits: 8 });
  });
});

it("layers that predict further tokens are kept as they are, where mlx-lm does not read", async () => {
  const source = fixture("tiny-qwen3.5-moe");
  const out = join(temporary(), "out");
  const done: string[] = [];
  await quantizeCheckpoint(device, source, out, { groupSize: 32, onProgress: (_, __, name) => done.push(name) });
  const given = readSafetensors(join(source, "model.safetensors")).tensors;
  const kept = readSafetensors(join(out, "mtp.safetensors")).tensors;
  const names = [...given.keys()].filter((name) => name.startsWith("mtp."));
  expect(names.length).toBe(2);
  expect([...kept]).toEqual(names.map((name) => [name, given.get(name)]));
  expect(done).toEqual(expect.arrayContaining(names));
  expect(readFileSync(join(out, "model.safetensors.index.json"), "utf8")).not.toContain("mtp");
});

it("a checkpoint without such layers has no file for them", async () => {
  const out = join(temporary(), "out");
  await quantizeCheckpoint(device, unpackedCheckpoint("tiny-qwen3-next"), out);
  expect(existsSync(join(out, "mtp.safetensors"))).toBe(false);
  // mlx-lm asks for these at the top level; the source has the first only under rope_parameters.
  const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
  expect(config).toMatchObject({ model_type: "qwen3_next", rope_theta: 10000, partial_rotary_factor: 0.25 });
});
