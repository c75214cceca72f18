import { createHash } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { Device, readSafetensors } from "@mlxts/core";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { quantizeCheckpoint } from "../src/index.ts";
import { temporary } from "./fixtures.ts";

const device = Device.open();
afterAll(() => device.dispose());

interface Variant {
  bits: 4 | 8;
  group_size: 32 | 64 | 128;
  quantization: Record<string, unknown>;
  tensors: Record<string, { dtype: string; shape: number[]; sha256: string }>;
}

const hash = (data: ArrayBufferView) =>
  createHash("sha256")
    .update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    .digest("hex");

describe.each([
  ["tiny-qwen3-next", unpackedCheckpoint("tiny-qwen3-next"), "model.layers.0.mlp.gate"],
  ["tiny-qwen3.5-moe", fixture("tiny-qwen3.5-moe"), "language_model.model.layers.0.mlp.gate"],
])("quantizeCheckpoint of %s", (name, source, router) => {
  const { variants } = JSON.parse(readFileSync(fixture(`goldens/${name}.mlx_hashes.json`), "utf8")) as {
    variants: Record<string, Variant>;
  };

  it.each(Object.keys(variants))("equals mlx_lm.convert word for word: %s", async (variant) => {
    const { bits, group_size: groupSize, quantization, tensors } = variants[variant] as Variant;
    const out = join(temporary(), "out");
    await quantizeCheckpoint(device, source, out, { bits, groupSize });
    const written = readSafetensors(join(out, "model.safetensors")).tensors;
    const dtypes: Record<string, string> = { U32: "u32", BF16: "bf16", F32: "f32" };
    expect(
      Object.fromEntries(
        [...written].map(([of, { dtype, shape, data }]) => [of, { dtype, shape, sha256: hash(data) }]),
      ),
    ).toEqual(
      Object.fromEntries(
        Object.entries(tensors).map(([of, { dtype, ...rest }]) => [of, { dtype: dtypes[dtype], ...rest }]),
      ),
    );
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
