import { createHash } from "node:crypto";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device, readSafetensors, writeSafetensors } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { fixture, type Goldens, goldens } from "@mlxts/test-kit/goldens";
import { temporaryFolder } from "@mlxts/test-kit/temporary_folder";
import { afterAll, expect } from "vitest";
import { type LanguageModel, loadModel, type SavedState } from "../src/index.ts";

export const tiny = fixture("tiny-qwen3.5");
export const tiny4bit = fixture("tiny-qwen3.5-4bit");

const recorded = goldens("tiny-qwen3.5/reference.safetensors");
const mlx = goldens("goldens/mlx_lm_4bit_logits.safetensors");

const floats = (file: Goldens, name: string) => file.tensor(name).data as Float32Array;
const ids = (file: Goldens, name: string) => Array.from(file.tensor(name).data as Int32Array);

/** The three prompts with the outputs of the original model code. */
export const prompts = [0, 1, 2].map((i) => ({
  ids: ids(recorded, `prompt${i}.ids`),
  logits: floats(recorded, `prompt${i}.logits`),
  greedy: ids(recorded, `prompt${i}.greedy`),
  fourBit: {
    mlxLogits: floats(mlx, `prompt${i}.logits.mlx_f32`),
    f64Logits: floats(mlx, `prompt${i}.logits.float64`),
    greedy: ids(mlx, `prompt${i}.greedy.mlx_f32`),
  },
}));

export const texts = JSON.parse(readFileSync(join(tiny, "reference.json"), "utf8")) as {
  prompts: string[];
  greedy_texts: string[];
};

/** The tiny model on a device of the test file's own: on the CPU, since simulated GPUs are slow and have every_device.test.ts. */
export const tinyOnCpu = () => openOnCpu(tiny);

/** The model of a checkpoint on a device of the test file's own, on the CPU. */
export async function openOnCpu(folder: string): Promise<{ device: Device; model: LanguageModel }> {
  const device = Device.open("cpu");
  const model = await loadModel(device, folder, { activationDtype: "f32" });
  afterAll(() => {
    model.dispose();
    device.dispose();
  });
  return { device, model };
}

/** The SHA-256 of the bytes of an array, to compare arrays to the bit. */
export const bits = (data: ArrayBufferView): string =>
  createHash("sha256")
    .update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength))
    .digest("hex");

/** Hashes of everything that a saved sequence holds. */
export const stateBits = ({ tokens, tensors }: SavedState) => ({
  tokens,
  ...Object.fromEntries(Object.entries(tensors).map(([name, { data }]) => [name, bits(data)])),
});

/** Two saved sequences have the same tokens, and tensors that differ by less than `ratio`. */
export function expectNear(actual: SavedState, expected: SavedState, ratio: number): void {
  expect(actual.tokens).toBe(expected.tokens);
  expect(Object.keys(actual.tensors)).toEqual(Object.keys(expected.tensors));
  for (const [name, { data }] of Object.entries(actual.tensors)) {
    const own = compare(data as Float32Array, expected.tensors[name]?.data as Float32Array);
    expect(own.ratio, name).toBeLessThan(ratio);
  }
}

/** The number of live buffers when nothing is in flight: buffers disposed in flight live until the work with them has ended. */
export async function liveBuffers(device: Device): Promise<number> {
  await device.encoder().commit();
  return device.counters.liveBuffers;
}

/** A folder that is removed after the file's tests. */
export const temporary = () => temporaryFolder("models");

/** A copy of the tiny checkpoint with another config. */
export function withConfig(change: (config: Record<string, unknown>) => void, from = tiny): string {
  const folder = temporary();
  cpSync(from, folder, { recursive: true, filter: (path) => !path.endsWith("reference.safetensors") });
  const config = JSON.parse(readFileSync(join(from, "config.json"), "utf8")) as Record<string, unknown>;
  change(config);
  writeFileSync(join(folder, "config.json"), JSON.stringify(config));
  return folder;
}

// Tensors at both ends of a file that are in no index: who opens a file reads its first pages, and others with them, and the
// system does not evict the last ones. The writer puts f32 first and u8 last.
const FIRST = { dtype: "f32", shape: [1 << 15], data: new Float32Array(1 << 15) } as const;
const LAST = { dtype: "u8", shape: [1 << 17], data: new Uint8Array(1 << 17) } as const;

/** A copy of a checkpoint of one file as several files with an index; `fileOf` says which file a tensor goes to. */
export function sharded(from: string, files: number, fileOf: (name: string, place: number) => number): string {
  const folder = temporary();
  cpSync(from, folder, { recursive: true, filter: (path) => !path.endsWith(".safetensors") });
  const tensors = [...readSafetensors(join(from, "model.safetensors")).tensors];
  const weightMap: Record<string, string> = {};
  for (let file = 0; file < files; file++) {
    const own = tensors.filter(([name], place) => Math.max(fileOf(name, place), 0) === file);
    const path = `model-0000${file + 1}-of-0000${files}.safetensors`;
    for (const [name] of own) weightMap[name] = path;
    writeSafetensors(join(folder, path), [["first", FIRST], ...own, ["last", LAST]]);
  }
  writeFileSync(join(folder, "model.safetensors.index.json"), JSON.stringify({ weight_map: weightMap }));
  return folder;
}

/** Makes a safetensors file's header a byte longer: what it aligned it aligns no more. */
export function misalign(path: string): void {
  const bytes = readFileSync(path);
  const header = Number(bytes.readBigUInt64LE(0));
  bytes.writeBigUInt64LE(BigInt(header + 1), 0);
  writeFileSync(path, Buffer.concat([bytes.subarray(0, 8 + header), Buffer.from(" "), bytes.subarray(8 + header)]));
}
