// The commands on a DeepSeek model: its experts and latents are shown, it is quantized, and both run.
import { join } from "node:path";
import { readSafetensors } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { goldens, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { expect, it } from "vitest";
import { greedyIds, inProcess, testFolder } from "./helpers.ts";

const tiny = unpackedCheckpoint("tiny-deepseek-v3");
const recorded = goldens("tiny-deepseek-v3/reference.safetensors");
const mlx = goldens("goldens/deepseek_4bit_logits.safetensors");
const ids = Array.from(recorded.numbers("prompt0.ids"));
const folder = testFolder();
const four = join(folder, "four");

/** Weights of the model, and those of the experts that a token does not go to: 6 of 8 in each of 3 layers. */
const weights = 6_890_776;
const active = weights - 3 * 6 * 3 * 128 * 256;

async function inspected(path: string, ...options: string[]) {
  const { status, stdout } = await inProcess("inspect", path, ...options);
  expect(status).toBe(0);
  return Object.fromEntries(stdout.split("\n").map((line) => [line.slice(0, 12).trim(), line.slice(12)]));
}

it("inspect shows experts, active parameters, latents, and the cache of each token", async () => {
  expect(await inspected(tiny, "--activation-dtype", "f32")).toMatchObject({
    "model type": "deepseek_v3",
    runs: "yes, with mlxts",
    parameters: weights.toLocaleString("en"),
    active: `${active.toLocaleString("en")} parameters for each token`,
    experts: "8 in each of 3 layers, of which a token goes to 2, and to shared experts",
    latents: "128 numbers for each token, and a rotated key of 32, in 4 layers",
    cache: "2,560 bytes (2.5 KiB) for each token, with f32 activations",
  });
  const options = ["--json", "--context", "1000", "--activation-dtype", "bf16"];
  expect(JSON.parse((await inProcess("inspect", tiny, ...options)).stdout)).toMatchObject({
    experts: { count: 8, perToken: 2, layers: 3, shared: true },
    activeParameters: active,
    latents: { width: 128, rotated: 32, layers: 4 },
    cache: { bytesPerToken: 4 * 160 * 2, bytesPerSequence: 0 },
    memory: { context: 1000, sequences: 1, stateBytes: 1000 * 4 * 160 * 2 },
  });
});

it("quantize writes a model that inspect and generate know", async () => {
  expect(await inProcess("quantize", tiny, four)).toMatchObject({ status: 0 });
  expect(await inspected(four)).toMatchObject({
    runs: "yes, with mlxts",
    parameters: weights.toLocaleString("en"),
    active: `${active.toLocaleString("en")} parameters for each token`,
  });
  for (const [path, greedy] of [
    [tiny, recorded.numbers("prompt0.greedy")],
    [four, mlx.numbers("prompt0.greedy")],
  ] as const) {
    expect(await greedyIds(path, ids)).toEqual(Array.from(greedy.slice(0, 8)));
  }
});

it.each(["auto", "folded", "materialized"])("logits on the path %s", async (path) => {
  const out = join(folder, `${path}.safetensors`);
  const options = ["--activation-dtype", "f32", "--path", path, "--out", out];
  expect(await inProcess("logits", tiny, "--ids", ids.join(), ...options)).toMatchObject({
    status: 0,
  });
  const logits = readSafetensors(out).tensors.get("logits")?.data as Float32Array;
  expect(compare(logits, recorded.numbers("prompt0.logits")).ratio).toBeLessThanOrEqual(1e-5);
});
