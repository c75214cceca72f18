import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device, openCheckpoint, readSafetensors, writeSafetensors } from "@mlxts/core";
import { afterAll, describe, expect, it } from "vitest";
import { quantizeCheckpoint } from "../src/index.ts";
import { fixtures, temporary, tiny, tiny4bit, withConfig } from "./fixtures.ts";

const device = Device.open();
afterAll(() => device.dispose());

type Hashes = Record<string, { shape: number[]; sha256: string }>;
const { variants } = JSON.parse(readFileSync(join(fixtures, "goldens", "mlx_checkpoint_hashes.json"), "utf8")) as {
  variants: Record<string, { bits: 4 | 8; group_size: 32 | 64 | 128; tensors: Hashes }>;
};

function hashes(path: string): Hashes {
  const { tensors } = readSafetensors(path);
  return Object.fromEntries(
    [...tensors].map(([name, { shape, data }]) => [
      name,
      {
        shape,
        sha256: createHash("sha256")
          .update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
          .digest("hex"),
      },
    ]),
  );
}

describe("quantizeCheckpoint", () => {
  it.each(["4bit-g64", "8bit-g32", "4bit-g32", "4bit-g128"])(
    "equals mlx_lm.convert word for word: %s",
    async (variant) => {
      const { bits, group_size: groupSize, tensors } = variants[variant] as (typeof variants)[string];
      const out = join(temporary(), "out");
      await quantizeCheckpoint(device, tiny, out, { bits, groupSize });
      const expected = Object.fromEntries(
        Object.entries(tensors).map(([name, { shape, sha256 }]) => [name, { shape, sha256 }]),
      );
      expect(hashes(join(out, "model.safetensors"))).toEqual(expected);
    },
  );

  it("writes the directory that mlx-lm opens", async () => {
    const out = join(temporary(), "out");
    const progress: number[] = [];
    await quantizeCheckpoint(device, tiny, out, { onProgress: (done) => progress.push(done) });
    expect(progress).toEqual(progress.map((_, i) => i + 1));
    expect(readdirSync(out).sort()).toEqual([
      "config.json",
      "generation_config.json",
      "model.safetensors",
      "model.safetensors.index.json",
      "tokenizer.json",
    ]);
    const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
    const theirs = JSON.parse(readFileSync(join(tiny4bit, "config.json"), "utf8"));
    expect(config.quantization).toEqual(theirs.quantization);
    expect(config.quantization_config).toEqual(theirs.quantization_config);
    expect(config.model_type).toBe(theirs.model_type);
    const index = JSON.parse(readFileSync(join(out, "model.safetensors.index.json"), "utf8"));
    const theirIndex = JSON.parse(readFileSync(join(tiny4bit, "model.safetensors.index.json"), "utf8"));
    expect(index.weight_map).toEqual(theirIndex.weight_map);
    expect(index.metadata.total_size).toBe(theirIndex.metadata.total_size);
    using checkpoint = openCheckpoint(device, out);
    expect(checkpoint.metadata).toEqual({ format: "mlx" });
  });

  it("refuses a quantised checkpoint, odd settings and a full folder, and leaves nothing behind", async () => {
    const folder = temporary();
    const out = join(folder, "out");
    await expect(quantizeCheckpoint(device, tiny4bit, out)).rejects.toThrow(
      "quantize: `checkpoint` must not be quantised already, got a quantised checkpoint — start from the original weights",
    );
    await expect(quantizeCheckpoint(device, tiny, out, { bits: 3 as 4 })).rejects.toThrow(
      "quantize: `bits` must be 4 or 8, got 3",
    );
    await expect(quantizeCheckpoint(device, tiny, out, { groupSize: 48 as 64 })).rejects.toThrow(
      "quantize: `groupSize` must be 32, 64 or 128, got 48",
    );
    const stop = quantizeCheckpoint(device, tiny, out, {
      onProgress: () => {
        throw new RangeError("stopped");
      },
    });
    await expect(stop).rejects.toThrow("stopped");
    expect(readdirSync(folder)).toEqual([]);
    mkdirSync(out);
    writeFileSync(join(out, "mine"), "");
    await expect(quantizeCheckpoint(device, tiny, out)).rejects.toThrow("must be new or an empty directory");
    expect(existsSync(join(out, "mine"))).toBe(true);
    const file = join(out, "mine");
    await expect(quantizeCheckpoint(device, tiny, file)).rejects.toThrow("must be new or an empty directory");
    for (const nowhere of [join(file, "out"), join(folder, "none", "out")])
      await expect(quantizeCheckpoint(device, tiny, nowhere)).rejects.toMatchObject({ code: "Io" });
    expect(readdirSync(folder)).toEqual(["out"]);
  });

  it("leaves out the output matrix of a tied model, and refuses dtypes it cannot write", async () => {
    const { tensors } = readSafetensors(join(tiny, "model.safetensors"));
    const embedding = tensors.get("model.embed_tokens.weight");
    if (!embedding) throw new Error("the fixture has no embedding");
    const folder = withConfig(() => {});
    writeSafetensors(join(folder, "model.safetensors"), [...tensors, ["lm_head.weight", embedding]]);
    const out = join(temporary(), "out");
    await quantizeCheckpoint(device, folder, out);
    expect(
      [...readSafetensors(join(out, "model.safetensors")).tensors.keys()].filter((name) => name.includes("lm_head")),
    ).toEqual([]);

    const header = JSON.stringify({
      "model.layers.0.linear_attn.A_log": { dtype: "F64", shape: [1], data_offsets: [0, 8] },
    });
    const bytes = Buffer.alloc(8 + header.length + 8);
    bytes.writeBigUInt64LE(BigInt(header.length));
    bytes.write(header, 8);
    writeFileSync(join(folder, "model.safetensors"), bytes);
    await expect(quantizeCheckpoint(device, folder, join(temporary(), "out"))).rejects.toMatchObject({
      code: "Safetensors",
      message: expect.stringContaining("A_log has dtype F64; weights must be F32, F16 or BF16"),
    });
  });
});
