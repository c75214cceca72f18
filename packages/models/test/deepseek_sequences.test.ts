// Latent caches in states: batches, ragged prompts, kept prefixes, rollback, guesses, saved sequences, on the device that the
// tests run on, with a tiny DeepSeek-V2.
import { Device } from "@mlxts/core";
import { compare, within } from "@mlxts/core/testing";
import { fixture, goldens } from "@mlxts/test-kit/goldens";
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
} from "../src/index.ts";
import { bits, expectNear, stateBits } from "./fixtures.ts";

const device = Device.open();
afterAll(() => device.dispose());

const recorded = goldens("goldens/deepseek_v2.safetensors");
const long = Array.from(recorded.numbers("prompt0.ids"));

describe.each(["f32", "bf16"] as const)("activations in %s", (activationDtype) => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await loadModel(device, fixture("tiny-deepseek-v2"), { activationDtype });
  });
  afterAll(() => model.dispose());

  async function text(prompt: readonly number[], options: Parameters<typeof generate>[2] = {}) {
    const out: number[] = [];
    for await (const id of generate(model, prompt, { maxTokens: 8, stopTokens: [], ...options })) out.push(id);
    return out;
  }
  const near = (a: Float32Array, b: Float32Array) =>
    activationDtype === "f32" ? within(compare(a, b), 2e-6, 40) : compare(a, b).ratio < 3e-2;

  it("a state has a latent and a rotated key for each token and layer", () => {
    using state = model.newState({ capacity: 12, sequences: 2 });
    const own = [0, 1, 2].flatMap((layer) => [
      { name: `latent.${layer}`, dtype: activationDtype, shape: [2, 12, 32], kind: "cache" },
      { name: `rope_key.${layer}`, dtype: activationDtype, shape: [2, 12, 16], kind: "cache" },
    ]);
    expect(state.tensors.map(({ tensor: _, ...spec }) => spec)).toEqual(own);
    expect(state.toJSON()).toMatchObject({ bytes: 3 * 2 * 12 * 48 * (activationDtype === "f32" ? 4 : 2) });
  });

  it.each(["folded", "materialized"] as const)("ragged prompts have the states of each alone: %s", async (path) => {
    const batch = [long.slice(0, 19), long.slice(20, 29), [], long.slice(40, 59)];
    using state = model.newState({ capacity: 20, sequences: 4 });
    const logits = await prefillBatch(model, state, batch, { path });
    expect(state.lengths).toEqual([19, 9, 0, 19]);
    for (const [at, ids] of batch.entries()) {
      if (ids.length === 0) continue;
      using single = model.newState({ capacity: 20 });
      const [own] = await prefill(model, single, ids, { path });
      // An expert takes the tokens of all sequences at once, and their number decides its kernel.
      const [saved, alone] = [await state.save(at), await single.save()];
      expect(saved.tensors["latent.0"]?.data).toEqual(alone.tensors["latent.0"]?.data);
      if (activationDtype === "f32") expectNear(saved, alone, 1e-5);
      expect(near(logits[at]?.[0] as Float32Array, own as Float32Array), `sequence ${at}`).toBe(true);
    }
  });

  it("a saved sequence goes on as the one it was saved from", async () => {
    using state = model.newState({ capacity: 40, sequences: 2 });
    await prefillBatch(model, state, [long.slice(0, 11), long.slice(11, 30)]);
    const saved = await state.save(1);
    expect(saved.tensors["latent.2"]).toMatchObject({ shape: [1, 19, 32] });
    using other = model.newState({ capacity: 25 });
    other.restore(saved);
    using first = new Decoder(model, other);
    using both = new Decoder(model, state);
    let [a, b] = [5, 5];
    for (let step = 0; step < 3; step++) {
      a = await first.next(a);
      b = (await both.nextBatch([undefined, b]))[1] as number;
      expect(a).toBe(b);
    }
    expect(stateBits(await other.save())).toEqual(stateBits(await state.save(1)));
    const cut = { ...saved, tensors: { ...saved.tensors } };
    delete cut.tensors["rope_key.1"];
    expect(() => other.restore(cut)).toThrow("have `rope_key.1` as");
  });

  it("a rollback lowers the length of each sequence, and the text goes on as if the tokens had never been fed", async () => {
    const batch = [long.slice(0, 11), long.slice(30, 41)];
    using state = model.newState({ capacity: 20, sequences: 2, rollback: 8 });
    using plain = model.newState({ capacity: 20, sequences: 2 });
    for (const each of [state, plain]) await prefillBatch(model, each, batch, { path: "folded" });
    await prefillBatch(model, state, [long.slice(11, 16), long.slice(50, 53)], { path: "folded" });
    const before = [await state.save(0), await state.save(1)];
    await state.rollback([2, 3]);
    await state.rollback([1, 0]);
    expect(state.lengths).toEqual([13, 11]);
    for (const [at, { tensors }] of before.entries()) {
      const after = await state.save(at);
      for (const [name, { data }] of Object.entries(after.tensors)) {
        const kept = (tensors as Record<string, { data: unknown }>)[name] as { data: Uint16Array };
        expect(bits(data), name).toBe(bits(kept.data.subarray(0, data.length)));
      }
    }
    // Other kernels may have other last bits: f32 has few of them for so few rows.
    await prefillBatch(model, plain, [long.slice(11, 13), []], { path: "folded" });
    if (activationDtype === "f32")
      for (const at of [0, 1]) expect(stateBits(await state.save(at))).toEqual(stateBits(await plain.save(at)));
    const [next, expected] = await Promise.all(
      [state, plain].map((of) => prefillBatch(model, of, [[9, 8], [3]], { path: "folded" })),
    );
    for (const at of [0, 1])
      expect(near(next?.[at]?.[0] as Float32Array, expected?.[at]?.[0] as Float32Array)).toBe(true);
    await expect(state.rollback([3, 0])).rejects.toThrow("be an integer from 0 to 2, what the last pass left");
  });

  it("a prompt has the same bits whether its beginning was in the cache or not", async () => {
    const cache = new PrefixCache(model, { every: 7 });
    const run = async () => {
      using state = model.newState({ capacity: 60 });
      const [logits] = await prefill(model, state, long.slice(0, 52), { cache, blockLength: 49 });
      return { logits: bits(logits as Float32Array), saved: stateBits(await state.save()) };
    };
    const cold = await run();
    expect(cache.match(long)).toBe(49);
    expect(cache.byteLength).toBe(7 * (7 * 3 * 48 * (activationDtype === "f32" ? 4 : 2) + 4 * 7));
    expect(await run()).toEqual(cold);
    // A prompt that shares only a part of it.
    using state = model.newState({ capacity: 60 });
    using plain = model.newState({ capacity: 60 });
    const prompt = [...long.slice(0, 30), 3, 4, 5];
    const [logits] = await prefill(model, state, prompt, { cache, blockLength: 49 });
    const [expected] = await prefill(model, plain, prompt);
    expect(near(logits as Float32Array, expected as Float32Array)).toBe(true);
  });

  it("several prompts at once, and one with guesses, give the same texts", async () => {
    const prompts = [long.slice(0, 12), long.slice(20, 27), long.slice(33, 34)];
    const texts: number[][] = [];
    for (const prompt of prompts) texts.push(await text(prompt));
    const together: number[][] = [[], [], []];
    using state = model.newState({ sequences: 3, capacity: 40 });
    for await (const step of generateBatch(model, prompts, { maxTokens: 8, stopTokens: [], state }))
      for (const [at, id] of step.entries()) together[at]?.push(id as number);
    expect(state.lengths).toEqual(prompts.map(({ length }) => length + 8));
    if (activationDtype === "f32") expect(together).toEqual(texts);
    const [prompt, expected] = [prompts[0] as number[], texts[0] as number[]];
    const guess = (all: readonly number[], most: number) =>
      expected
        .slice(all.length - prompt.length)
        .slice(0, most)
        .map((id, i) => (i === 2 ? id ^ 1 : id));
    const timings: { acceptedTokens?: number } = {};
    const guessed = await text(prompt, { draft: guess, draftTokens: 4, timings });
    if (activationDtype === "f32") expect(guessed).toEqual(expected);
    expect(timings.acceptedTokens).toBeGreaterThan(0);
  });

  it("a guess is checked in one pass, and the wrong part taken back", async () => {
    using state = model.newState({ capacity: 40, rollback: 4 });
    using plain = model.newState({ capacity: 40 });
    for (const each of [state, plain]) await prefill(model, each, long.slice(0, 9));
    using decoder = new Decoder(model, state);
    using one = new Decoder(model, plain);
    const right = [await one.next(7)];
    right.push(await one.next(right[0] as number));
    const wrong = ((right[1] as number) + 1) % model.vocabSize;
    expect(await decoder.speculate(7, [right[0] as number, wrong])).toEqual(right);
    expect(state.lengths).toEqual([11]);
    const saved = [await state.save(), await plain.save()] as const;
    expect(saved[0].tokens).toBe(saved[1].tokens);
  });
});
