import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Device, readSafetensors } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { afterAll, beforeAll, expect, it } from "vitest";
import { registerFamily } from "../src/families.ts";
import {
  Decoder,
  generate,
  generateBatch,
  type LanguageModel,
  loadModel,
  PrefixCache,
  prefill,
  prefillBatch,
  quantizeCheckpoint,
} from "../src/index.ts";
import { stateBits, temporary } from "./fixtures.ts";
import { toyCheckpoint, toyFamily } from "./toy_family.ts";

const known = registerFamily(toyFamily);
const checkpoint = toyCheckpoint();
const device = Device.open();
let model: LanguageModel;
beforeAll(async () => {
  model = await loadModel(device, checkpoint, { activationDtype: "f32" });
});
afterAll(() => {
  model.dispose();
  device.dispose();
});

const ids = Array.from({ length: 60 }, (_, i) => 1 + ((i * 37) % 95));

async function text(prompt: readonly number[], options: Parameters<typeof generate>[2] = {}): Promise<number[]> {
  const out: number[] = [];
  for await (const id of generate(model, prompt, { maxTokens: 12, stopTokens: [], ...options })) out.push(id);
  return out;
}

it("a config names its family by model_type; errors list the types that are registered", async () => {
  expect(model).toMatchObject({ modelType: "toy", vocabSize: 96, contextLength: 128, stopTokens: [0] });
  const other = toyCheckpoint({ model_type: "llama" });
  await expect(loadModel(device, other)).rejects.toThrow(
    /^loadModel: `config\.model_type` must be one of qwen3_5, qwen3_5_text, \w+(, \w+)*, toy, got llama$/,
  );
  await expect(quantizeCheckpoint(device, other, join(temporary(), "out"))).rejects.toThrow(
    /^quantize: `config\.model_type` must be one of qwen3_5, qwen3_5_text, \w+(, \w+)*, toy, got llama$/,
  );
  known[Symbol.dispose]();
  await expect(loadModel(device, checkpoint)).rejects.toThrow(
    /must be one of qwen3_5, qwen3_5_text, (?!.*toy,)\w+(, \w+)*, got toy$/,
  );
  registerFamily(toyFamily);
});

it("a config that its family refuses, and weights that do not fit, leave nothing open", async () => {
  await expect(loadModel(device, toyCheckpoint({ hidden_size: 0 }))).rejects.toThrow(
    "loadModel: `config.hidden_size` must be an integer from 1 to 2147483647, got 0",
  );
  await device.encoder().commit();
  const { liveBuffers } = device.counters;
  await expect(loadModel(device, toyCheckpoint({ vocab_size: 97 }))).rejects.toThrow(
    "tensor toy.embed.weight must have shape [97, 64], got [96, 64]",
  );
  expect(device.counters.liveBuffers).toBe(liveBuffers);
});

it("paths are those of the model, the first one is the default", async () => {
  using state = model.newState();
  expect(model.paths).toEqual(["whole"]);
  await prefill(model, state, ids, { path: "whole" as never });
  await expect(prefill(model, state, ids, { path: "chunk" })).rejects.toThrow(
    "prefill: `path` must be one of whole, got chunk",
  );
  await expect(text(ids, { path: "chunk" })).rejects.toThrow("generate: `path` must be one of whole, got chunk");
  expect(() => new PrefixCache(model, { every: 8 }).match(ids, "chunk")).toThrow(
    "cache.match: `path` must be one of whole, got chunk",
  );
  expect(() => model.newState({ rollback: 9 })).toThrow("`rollback` must be an integer from 0 to 8, got 9");
});

it("a prompt in blocks and token by token gives the logits of one pass", async () => {
  using state = model.newState();
  const [whole] = await prefill(model, state, ids);
  for (const blockLength of [1, 7]) {
    using other = model.newState();
    const [logits] = await prefill(model, other, ids, { blockLength });
    expect(compare(logits as Float32Array, whole as Float32Array).ratio).toBeLessThan(2e-6);
  }
  // The text depends on every token: on the first one through attention alone.
  using changed = model.newState();
  const [logits] = await prefill(model, changed, [2, ...ids.slice(1)]);
  expect(compare(logits as Float32Array, whole as Float32Array).ratio).toBeGreaterThan(1e-3);
});

it("generate, generateBatch and guesses give one text, and leave it in the state", async () => {
  const prompts = [ids.slice(0, 20), ids.slice(5, 12), ids.slice(30, 31)];
  const texts = [];
  for (const prompt of prompts) texts.push(await text(prompt));
  expect(new Set(texts.flat()).size).toBeGreaterThan(3);
  const together: number[][] = [[], [], []];
  using state = model.newState({ sequences: 3 });
  for await (const step of generateBatch(model, prompts, { maxTokens: 12, stopTokens: [], state }))
    for (const [at, id] of step.entries()) together[at]?.push(id as number);
  expect(together).toEqual(texts);
  expect(state.lengths).toEqual(prompts.map(({ length }) => length + 12));

  const [prompt, expected] = [prompts[0] as number[], texts[0] as number[]];
  const guess = (all: readonly number[], most: number) =>
    expected
      .slice(all.length - prompt.length)
      .slice(0, most)
      .map((id, i) => (i === 2 ? id ^ 1 : id));
  expect(await text(prompt, { draft: guess, draftTokens: 4 })).toEqual(expected);
  await expect(text(prompt, { draft: guess, draftTokens: 9 })).rejects.toThrow(
    "generate: `draftTokens` must be an integer from 1 to 8, got 9",
  );
});

it("ragged prompts leave the states that each leaves alone, which can be saved and restored", async () => {
  const prompts = [ids.slice(0, 30), ids.slice(10, 19), ids.slice(3, 40)];
  using state = model.newState({ sequences: 3 });
  await prefillBatch(model, state, prompts);
  for (const [at, prompt] of prompts.entries()) {
    using single = model.newState();
    await prefill(model, single, prompt);
    const saved = await state.save(at);
    expect(stateBits(saved)).toEqual(stateBits(await single.save()));
    using copy = model.newState();
    copy.restore(saved);
    using decoder = new Decoder(model, single);
    using other = new Decoder(model, copy);
    expect(await decoder.next(9)).toBe(await other.next(9));
  }
});

it("a rollback gives the state in which the tokens were never fed, to the bit", async () => {
  using state = model.newState({ sequences: 2, rollback: 4 });
  using plain = model.newState({ sequences: 2 });
  for (const each of [state, plain]) await prefillBatch(model, each, [ids.slice(0, 20), ids.slice(5, 22)]);
  // So few rows that one kernel computes them, here and below.
  await prefillBatch(model, state, [ids.slice(20, 24), ids.slice(22, 26)]);
  await state.rollback([1, 3]);
  await state.rollback([1, 0]);
  await prefillBatch(model, plain, [ids.slice(20, 22), ids.slice(22, 23)]);
  expect(state.lengths).toEqual(plain.lengths);
  for (const at of [0, 1]) expect(stateBits(await state.save(at))).toEqual(stateBits(await plain.save(at)));
});

it("a prompt has the same bits whether its beginning was in the cache or not", async () => {
  const cache = new PrefixCache(model, { every: 8 });
  expect(() => new PrefixCache(model, { every: 6 })).toThrow("`every` must be a multiple of 4 tokens, got 6");
  const run = async (prompts: readonly number[][]) => {
    using state = model.newState({ sequences: prompts.length });
    const logits = await prefillBatch(model, state, prompts, { cache, blockLength: 16 });
    const saved = [];
    for (const at of prompts.keys()) saved.push(stateBits(await state.save(at)));
    return { logits, saved };
  };
  const prompts = [ids.slice(0, 45), ids.slice(7, 31)];
  const cold = await run(prompts);
  expect(prompts.map((prompt) => cache.match(prompt))).toEqual([40, 24]);
  expect(await run(prompts)).toEqual(cold);
  const timings: { cachedTokens?: number } = {};
  const plain = await text(prompts[0] as number[]);
  expect(await text(prompts[0] as number[], { cache: new PrefixCache(model, { every: 8 }) })).toEqual(plain);
  expect(await text(prompts[0] as number[], { cache, timings })).toEqual(plain);
  expect(timings.cachedTokens).toBe(40);
});

it("quantizeCheckpoint writes what the family plans, and loadModel opens it", async () => {
  const out = join(temporary(), "out");
  await quantizeCheckpoint(device, checkpoint, out, { groupSize: 32 });
  const config = JSON.parse(readFileSync(join(out, "config.json"), "utf8"));
  const setting = { group_size: 32, bits: 4, mode: "affine", head: { group_size: 32, bits: 8 } };
  expect(config).toMatchObject({ model_type: "toy", converted: true, quantization: setting });
  const { tensors } = readSafetensors(join(out, "model.safetensors"));
  expect(tensors.get("head.weight")).toMatchObject({ dtype: "u32", shape: [96, 16] });
  expect(tensors.get("embed.weight")).toMatchObject({ dtype: "u32", shape: [96, 8] });
  const norm = (of: typeof tensors, name: string) => Array.from(of.get(name)?.data as Float32Array);
  const before = readSafetensors(join(checkpoint, "model.safetensors")).tensors;
  expect(norm(tensors, "norm.weight")).toEqual(norm(before, "toy.norm.weight").map((w) => Math.fround(1 + w)));

  using quantized = await loadModel(device, out, { activationDtype: "f32" });
  const [logits = [], expected = []] = await Promise.all(
    [quantized, model].map(async (of) => {
      using state = of.newState();
      return (await prefill(of, state, ids))[0];
    }),
  );
  // Four bits of an embedding are coarse; another norm or another matrix would be far off.
  expect(compare(logits, expected).ratio).toBeLessThan(0.2);
});
