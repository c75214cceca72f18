import { copyFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device, readSafetensors, writeSafetensors } from "@mlxts/core";
import { afterAll, expect, it } from "vitest";
import { loadModel } from "../src/index.ts";
import { liveBuffers, temporary, tiny4bit } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());

/** The tiny model's 4-bit checkpoint with every second word of codes, and a config that says `bits`. */
function checkpointOf(bits: number): string {
  const folder = temporary();
  const { tensors } = readSafetensors(join(tiny4bit, "model.safetensors"));
  const entries = [...tensors].map(([name, tensor]) => {
    if (tensor.dtype !== "u32") return [name, tensor] as const;
    const shape = [...tensor.shape.slice(0, -1), (tensor.shape.at(-1) as number) / 2];
    const data = (tensor.data as Uint32Array).filter((_, i) => i % 2 === 0);
    return [name, { dtype: "u32", shape, data }] as const;
  });
  writeSafetensors(join(folder, "model.safetensors"), entries);
  const config = JSON.parse(readFileSync(join(tiny4bit, "config.json"), "utf8"));
  const quantization = { ...config.quantization, bits };
  writeFileSync(
    join(folder, "config.json"),
    JSON.stringify({ ...config, quantization, quantization_config: undefined }),
  );
  copyFileSync(join(tiny4bit, "tokenizer.json"), join(folder, "tokenizer.json"));
  return folder;
}

it("weights of 2 bits, which no product takes, are refused when the model is loaded", async () => {
  const before = await liveBuffers(device);
  await expect(loadModel(device, checkpointOf(2))).rejects.toMatchObject({
    code: "UnsupportedDtype",
    message: expect.stringMatching(/a width of 2 bits \(.+\) is not supported — bits 4, 8 are$/),
  });
  expect(await liveBuffers(device)).toBe(before);
});
