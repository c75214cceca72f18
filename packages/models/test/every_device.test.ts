// Batches, the prefix cache, rollback and guesses, with few tokens, on the device that the tests run on.
import { Device } from "@mlxts/core";
import { compare, within } from "@mlxts/core/testing";
import { fixture, goldens, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  Decoder,
  generate,
  generateBatch,
  type LanguageModel,
  loadModel,
  PrefixCache,
  prefill,
  prefillBatch,
  promptLookup,
} from "../src/index.ts";
import { bits, expectNear, stateBits } from "./fixtures.ts";
import { recordedPrompts } from "./parity_suite.ts";

const device = Device.open();
afterAll(() => device.dispose());

describe.each([
  { name: "tiny-qwen3.5", folder: fixture("tiny-qwen3.5"), hasExperts: false },
  { name: "tiny-qwen3-next", folder: unpackedCheckpoint("tiny-qwen3-next"), hasExperts: true },
  { name: "tiny-qwen3.5-moe", folder: fixture("tiny-qwen3.5-moe"), hasExperts: true },
])("$name", ({ name, folder, hasExperts }) => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await loadModel(device, folder, { activationDtype: "f32" });
  });
  afterAll(() => model.dispose());

  const prompts = recordedPrompts(goldens(`${name}/reference.safetensors`));
  const long = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]);

  it.each(["recurrent", "chunk"] as const)("ragged prompts have the bits of each alone: %s path", async (path) => {
    const batch = [long.slice(0, 19), long.slice(20, 29), long.slice(40, 52)];
    using state = model.newState({ capacity: 20, sequences: 3 });
    const logits = await prefillBatch(model, state, batch, { path });
    for (const [at, ids] of batch.entries()) {
      using single = model.newState({ capacity: 20 });
      const [own] = await prefill(model, single, ids, { path });
      const saved = [await state.save(at), await single.save()] as const;
      // An expert takes the tokens of all sequences at once, and their number decides its kernel.
      if (hasExperts) expectNear(...saved, 1e-5);
      else expect(stateBits(saved[0]), `sequence ${at}`).toEqual(stateBits(saved[1]));
      expect(within(compare(logits[at]?.[0] as Float32Array, own as Float32Array), 2e-6, 12)).toBe(true);
    }
  });

  it("logits that are all NaN are an error", async () => {
    using state = model.newState({ capacity: 4 });
    const empty = await state.save();
    for (const { dtype, data } of Object.values(empty.tensors))
      if (dtype === "f32") (data as Float32Array).fill(Number.NaN);
    state.restore(empty);
    // One or the other with each model: a step takes long where a GPU is simulated.
    using decoder = new Decoder(model, state, hasExperts ? { temperature: 1, seed: 2 } : { temperature: 0 });
    const details = { step: 1, sequence: 0, position: 0, token: 5 };
    await expect(decoder.next(5)).rejects.toMatchObject({ code: "NotANumber", details });
    expect(state.tokens).toBe(1);
  });

  it("a prompt has the same bits whether its beginning was in the cache or not", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    const run = async () => {
      using state = model.newState({ capacity: 80 });
      const [logits] = await prefill(model, state, long.slice(0, 77), { cache });
      return { logits: bits(logits as Float32Array), saved: stateBits(await state.save()) };
    };
    const cold = await run();
    expect(cache.match(long)).toBe(64);
    expect(await run()).toEqual(cold);
  });

  it("a rollback gives the state in which the tokens were never fed, to the bit, for each sequence", async () => {
    const batch = [long.slice(0, 11), long.slice(30, 41)];
    using state = model.newState({ capacity: 20, sequences: 2, rollback: 4 });
    using plain = model.newState({ capacity: 20, sequences: 2 });
    for (const each of [state, plain]) await prefillBatch(model, each, batch, { path: "recurrent" });
    // So few rows that one kernel computes them, here and below.
    await prefillBatch(model, state, [long.slice(11, 16), long.slice(50, 53)], { path: "recurrent" });
    await state.rollback([3, 3]);
    await prefillBatch(model, plain, [long.slice(11, 13), []], { path: "recurrent" });
    for (const at of [0, 1]) expect(stateBits(await state.save(at))).toEqual(stateBits(await plain.save(at)));
  });

  it("a rollback of one sequence does not change one that was reset meanwhile", async () => {
    using state = model.newState({ capacity: 8, sequences: 2, rollback: 4 });
    await prefillBatch(model, state, [long.slice(0, 3), long.slice(9, 12)], { path: "recurrent" });
    state.reset(0);
    await state.rollback([0, 1]);
    using fresh = model.newState({ capacity: 8, rollback: 4 });
    expect(stateBits(await state.save(0))).toEqual(stateBits(await fresh.save()));
    await prefill(model, fresh, long.slice(9, 12), { path: "recurrent" });
    await fresh.rollback(1);
    expect(stateBits(await state.save(1))).toEqual(stateBits(await fresh.save()));
  });

  it("several prompts at once, and one with guesses, give the same texts", async () => {
    const batch = prompts.map(({ ids }) => ids.slice(-12));
    const plain: number[][] = [];
    for (const [at, ids] of batch.entries()) {
      plain.push([]);
      const options = { maxTokens: 3 + at, stopTokens: [], draft: promptLookup(), draftTokens: 2 };
      for await (const id of generate(model, ids, options)) plain[at]?.push(id);
    }
    const together: number[][] = [[], [], []];
    const options = { stopTokens: [], each: [{ maxTokens: 3 }, { maxTokens: 4 }, { maxTokens: 5 }] };
    for await (const ids of generateBatch(model, batch, options))
      for (const [at, id] of ids.entries()) if (id !== undefined) together[at]?.push(id);
    expect(together).toEqual(plain);
  });

  it("a saved sequence goes on elsewhere as it would have gone on", async () => {
    using state = model.newState({ capacity: 20, sequences: 2 });
    await prefillBatch(model, state, [long.slice(0, 3), long.slice(20, 29)]);
    using other = model.newState({ capacity: 16 });
    const saved = await state.save(1);
    other.restore(saved);
    expect(stateBits(await other.save())).toEqual(stateBits(saved));
    using fed = model.newState({ capacity: 16 });
    fed.restore(saved);
    const [a] = await prefill(model, other, long.slice(29, 32));
    const [b] = await prefill(model, fed, long.slice(29, 32));
    expect(bits(a as Float32Array)).toBe(bits(b as Float32Array));
    const [, c] = await prefillBatch(model, state, [[], long.slice(29, 32)]);
    expect(within(compare(c?.[0] as Float32Array, a as Float32Array), 2e-6, 12)).toBe(true);
  });
});
