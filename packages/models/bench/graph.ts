// What optimizing does to recordings: node scripts/run-source.mjs packages/models/bench/graph.ts [CHECKPOINT..]
// A decode step: its dispatches and barriers, and what a token costs the host. A prefill: its scratch. `plain` is MLXTS_FUSE=0.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { Decoder, type LanguageModel, loadModel, prefill } from "@mlxts/models";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";

const PROMPT = 4096;
const STEPS = 64;
const tiny = () =>
  readdirSync(fixture("."))
    .filter((name) => name.startsWith("tiny-"))
    .map((name) => (existsSync(join(fixture(name), "model.safetensors")) ? fixture(name) : unpackedCheckpoint(name)));
const folders = process.argv.length > 2 ? process.argv.slice(2) : tiny();

const promptOf = (model: LanguageModel, length: number) =>
  Array.from({ length }, (_, i) => (i * 7919 + 3) % model.vocabSize);

/** A decode step: how it is recorded, and the tokens that follow each other. */
async function decode(device: Device, model: LanguageModel) {
  using state = model.newState({ capacity: 2 * STEPS });
  device.resetCounters();
  using decoder = new Decoder(model, state);
  const { dispatches, automaticBarriers, fusedPairs, movedNodes } = device.counters;
  const tokens = [1];
  for (let i = 0; i < STEPS; i++) tokens.push(await decoder.next(tokens.at(-1) as number));
  return { dispatches, barriers: automaticBarriers, fusedPairs, movedNodes, tokens: tokens.join() };
}

/** Bytes that a prefill takes beside weights and state, in one pass, and the logits that it gives. */
async function scratchOf(device: Device, model: LanguageModel, length: number) {
  using state = model.newState({ capacity: length });
  device.resetCounters();
  const { liveBytes } = device.counters;
  const [logits] = await prefill(model, state, promptOf(model, length), { blockLength: length });
  return { scratch: device.counters.peakBytes - liveBytes, logits: (logits as Float32Array).join() };
}

const rows: Record<string, Record<string, string | number>> = {};
for (const folder of folders) {
  using device = Device.open();
  const model = await loadModel(device, folder);
  const length = Math.min(PROMPT, model.contextLength);
  const measure = async (optimize: "0" | "1") => {
    process.env.MLXTS_FUSE = optimize;
    return { ...(await decode(device, model)), ...(await scratchOf(device, model, length)) };
  };
  const [plain, optimized] = [await measure("0"), await measure("1")];
  if (plain.tokens !== optimized.tokens) throw new Error(`${folder}: other tokens`);
  if (plain.logits !== optimized.logits) throw new Error(`${folder}: other logits`);
  const pair = (name: "dispatches" | "barriers") => `${plain[name]} → ${optimized[name]}`;
  const mib = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
  rows[folder.split("/").at(-1) as string] = {
    "dispatches of a step": pair("dispatches"),
    barriers: pair("barriers"),
    fused: optimized.fusedPairs,
    moved: optimized.movedNodes,
    [`scratch of ${length} tokens, MiB`]: `${mib(plain.scratch)} → ${mib(optimized.scratch)}`,
  };
  model.dispose();
}
console.table(rows);
