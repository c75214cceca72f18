// Generations of a state of their own, whose steps begin before the host knows their tokens.
import { Device, type Recording, type Submission } from "@mlxts/core";
import { embedding } from "@mlxts/nn";
import { unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { describe, expect, it, vi } from "vitest";
import {
  Decoder,
  type Ending,
  type GenerateOptions,
  generate,
  type LanguageModel,
  loadModel,
  prefill,
} from "../src/index.ts";
import { liveBuffers, openOnCpu, prompts, stateBits, tiny, tiny4bit, tinyOnCpu } from "./fixtures.ts";

const { ids } = prompts[0] as (typeof prompts)[number];
const TOKENS = 80;

async function textOf(model: LanguageModel, options: GenerateOptions, read?: (out: readonly number[]) => boolean) {
  const out: number[] = [];
  for await (const id of generate(model, ids, { maxTokens: TOKENS, stopTokens: [], ...options })) {
    out.push(id);
    if (read?.(out)) break;
  }
  return out;
}

/** Counts the replays, and those that begin while another one has not ended, until `stop` is called; one of them may fail. */
function countReplays(device: Device, failing?: { at: number; error: Error }) {
  using recording = device.encoder().finish();
  const prototype = Object.getPrototypeOf(recording) as Recording;
  const { replay } = prototype;
  let last: Submission | undefined;
  const counted = { all: 0, early: 0, stop: () => spy.mockRestore() };
  const spy = vi.spyOn(prototype, "replay").mockImplementation(function (this: Recording, options) {
    counted.all++;
    if (last?.state === "committed") counted.early++;
    last = replay.call(this, options);
    if (counted.all !== failing?.at) return last;
    // biome-ignore lint/suspicious/noThenProperty: it stands for a submission
    return { ...last, then: (_: unknown, failed: (error: Error) => void) => failed(failing.error) } as never;
  });
  return counted;
}

describe.each([
  ["tiny-qwen3.5", tiny],
  ["tiny-qwen3.5-4bit", tiny4bit],
  ["tiny-qwen3-next", unpackedCheckpoint("tiny-qwen3-next")],
  ["tiny-deepseek-v3", unpackedCheckpoint("tiny-deepseek-v3")],
])("steps of %s that begin early", async (_, folder) => {
  const { device, model } = await openOnCpu(folder);
  const sampled = { temperature: 1, topP: 0.95, seed: 3 };

  it.each([
    ["greedy", { temperature: 0 }],
    ["sampled", sampled],
  ])("give the text of steps that wait for each other: %s", async (_, sampling) => {
    const capacity = ids.length + TOKENS;
    using state = model.newState({ capacity });
    const counted = countReplays(device);
    const waiting = await textOf(model, { state, ...sampling });
    expect(counted.early).toBe(0);
    const early = await textOf(model, sampling);
    counted.stop();
    expect(counted.early).toBeGreaterThan(0);
    expect(early).toHaveLength(TOKENS);
    expect(early).toEqual(waiting);
  });
});

describe("nextMany of a decoder", async () => {
  const { device, model } = await tinyOnCpu();
  const last = ids.at(-1) as number;

  async function begun(options: { capacity?: number; rollback?: number } = {}, sampling = {}) {
    const state = model.newState({ capacity: 160, ...options });
    await prefill(model, state, ids.slice(0, -1));
    return { state, decoder: new Decoder(model, state, sampling) };
  }

  /** What so many steps give that wait for each other, and what the state then holds. */
  async function oneByOne(count: number, sampling = {}) {
    const { state, decoder } = await begun({}, sampling);
    const out: number[] = [];
    for (let i = 0; i < count; i++) out.push(await decoder.next(out.at(-1) ?? last));
    const bits = stateBits(await state.save());
    decoder.dispose();
    state.dispose();
    return { out, bits };
  }

  it.each([
    ["greedy", { temperature: 0 }],
    ["sampled", { temperature: 1, topP: 0.95, seed: 3 }],
  ])("gives what calls of next give, and leaves the same state: %s", async (_, sampling) => {
    const expected = await oneByOne(TOKENS, sampling);
    const { state, decoder } = await begun({}, sampling);
    const counted = countReplays(device);
    const out: number[] = [];
    for (const count of [1, 40, 1, 8, 30]) out.push(...(await decoder.nextMany(out.at(-1) ?? last, count)));
    counted.stop();
    expect(counted.early).toBeGreaterThan(30);
    expect(counted.all).toBe(TOKENS);
    expect(out).toEqual(expected.out);
    expect(stateBits(await state.save())).toEqual(expected.bits);
    expect(state.tokens).toBe(ids.length - 1 + TOKENS);
    decoder.dispose();
    state.dispose();
  });

  it("lets steps that have begun end when it is canceled: the state holds them", async () => {
    const { state, decoder } = await begun({}, { temperature: 0 });
    await decoder.nextMany(last, 40);
    const { out } = await oneByOne(TOKENS, { temperature: 0 });
    const controller = new AbortController();
    const running = decoder.nextMany(out[39] as number, 40, { signal: controller.signal });
    await expect(decoder.next(1)).rejects.toMatchObject({ code: "Busy" });
    setTimeout(() => controller.abort(new Error("enough")), 2);
    await expect(running).rejects.toThrow("enough");
    const fed = state.tokens - (ids.length - 1);
    expect(fed).toBeGreaterThan(40);
    expect(fed).toBeLessThan(TOKENS);
    expect(stateBits(await state.save())).toEqual((await oneByOne(fed, { temperature: 0 })).bits);
    expect(await decoder.next(out[fed - 1] as number)).toBe(out[fed]);
    decoder.dispose();
    state.dispose();
  });

  it("takes the log of a state that can roll back along, up to the end of the context", async () => {
    const { out } = await oneByOne(TOKENS, { temperature: 0 });
    const { state, decoder } = await begun({ capacity: ids.length + 40, rollback: 2 }, { temperature: 0 });
    expect(await decoder.nextMany(last, 40)).toEqual(out.slice(0, 40));
    await state.rollback(1);
    expect(await decoder.nextMany(out[38] as number, 2)).toEqual(out.slice(39, 41));
    await expect(decoder.nextMany(1, 1)).rejects.toThrow(/decoder\.nextMany: `count` must fit the context of/);
    await expect(decoder.nextMany(1, 0)).rejects.toThrow(/decoder\.nextMany: `count` must be/);
    await expect(decoder.nextMany(-1, 1)).rejects.toThrow(/decoder\.nextMany: `ids/);
    decoder.dispose();
    state.dispose();
  });

  it.each([1, 2, 5])("counts the steps that ran when the decoder is disposed meanwhile: after %d ms", async (ms) => {
    const { state, decoder } = await begun({}, { temperature: 0 });
    await decoder.nextMany(last, 40);
    const { out } = await oneByOne(TOKENS, { temperature: 0 });
    const running = decoder.nextMany(out[39] as number, 40);
    setTimeout(() => decoder.dispose(), ms);
    await expect(running).rejects.toMatchObject({ code: "Disposed" });
    const fed = state.tokens - (ids.length - 1);
    expect(fed).toBeGreaterThan(40);
    expect(stateBits(await state.save())).toEqual((await oneByOne(fed, { temperature: 0 })).bits);
    using other = new Decoder(model, state, { temperature: 0 });
    expect(await other.next(out[fed - 1] as number)).toBe(out[fed]);
    state.dispose();
  });

  it("fails with the step that fails, and waits for the one that has begun", async () => {
    const { state, decoder } = await begun({}, { temperature: 0 });
    const { out } = await oneByOne(40, { temperature: 0 });
    await decoder.nextMany(last, 40);
    const counted = countReplays(device, { at: 3, error: new Error("the device was lost") });
    await expect(decoder.nextMany(out[39] as number, 40)).rejects.toThrow("the device was lost");
    counted.stop();
    expect(counted.all).toBe(4);
    await expect(decoder.next(1)).rejects.toMatchObject({ code: "CommandBuffer" });
    decoder.dispose();
    state.dispose();
  });
});

describe("a generation with a step that has begun for nothing", async () => {
  const device = Device.open("cpu");
  const model = await loadModel(device, tiny, { activationDtype: "f32" });
  const text = await textOf(model, { temperature: 1, seed: 5 });
  const at = (count: number) => (out: readonly number[]) => out.length === count;

  it("gives the same text where a model sees positions as another dtype", async () => {
    const weight = device.tensor("f32", [ids.length + TOKENS, 8]);
    const { encode } = Object.getPrototypeOf(model) as LanguageModel;
    const spy = vi.spyOn(model, "encode").mockImplementation((encoder, state, tokens, options) => {
      embedding(encoder, { ids: tokens.positions.cast("u32"), weight }, {});
      return encode.call(model, encoder, state, tokens, options);
    });
    const counted = countReplays(device);
    expect(await textOf(model, { temperature: 1, seed: 5 })).toEqual(text);
    expect(counted.early).toBeGreaterThan(0);
    counted.stop();
    spy.mockRestore();
    weight.dispose();
  });

  it("ends as without, by a stop token, an abort or a break, and leaves nothing behind", async () => {
    const before = await liveBuffers(device);
    for (const count of [20, 33, 34]) {
      const ending: Partial<Ending> = {};
      const options = { temperature: 1, seed: 5, ending };
      const stop = text[count] as number;
      const first = text.indexOf(stop);
      expect(await textOf(model, { ...options, stopTokens: [stop] })).toEqual(text.slice(0, first));
      expect(ending).toEqual({ finishReason: "stop", stopToken: stop });
      expect(await textOf(model, options, at(count))).toEqual(text.slice(0, count));
      expect(ending).toEqual({ finishReason: "aborted" });
      const controller = new AbortController();
      const aborted = textOf(model, { ...options, signal: controller.signal }, (out) => {
        if (out.length === count) controller.abort(new Error("enough"));
        return false;
      });
      await expect(aborted).rejects.toThrow("enough");
      expect(ending).toEqual({ finishReason: "aborted" });
      expect(await liveBuffers(device)).toBe(before);
    }
  });

  it("fails when that step is needed and fails, and only then", async () => {
    const before = await liveBuffers(device);
    const options = { temperature: 1, seed: 5 };
    const yields = 36;
    const failing = { at: yields + 1, error: new Error("the device was lost") };
    const unneeded = countReplays(device, failing);
    expect(await textOf(model, options, at(yields))).toEqual(text.slice(0, yields));
    unneeded.stop();
    const needed = countReplays(device, failing);
    const ending: Partial<Ending> = {};
    const out: number[] = [];
    const run = textOf(model, { ...options, ending }, (now) => out.push(now.at(-1) as number) < 0);
    await expect(run).rejects.toThrow("the device was lost");
    needed.stop();
    expect(out).toEqual(text.slice(0, yields));
    expect(ending).toEqual({ finishReason: "error" });
    expect(await liveBuffers(device)).toBe(before);
    model.dispose();
    device.dispose();
  });
});
