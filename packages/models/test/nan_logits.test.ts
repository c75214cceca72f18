// A token whose embedding is NaN: from the step that feeds it on, all logits are NaN.
import { cpSync } from "node:fs";
import { join } from "node:path";
import { Device, encodeNumbers, type HostTensor, readSafetensors, writeSafetensors } from "@mlxts/core";
import { unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  Decoder,
  type Draft,
  type Ending,
  type GenerateOptions,
  generate,
  generateBatch,
  type LanguageModel,
  loadModel,
  prefill,
  type SamplingOptions,
} from "../src/index.ts";
import { liveBuffers, stateBits, temporary } from "./fixtures.ts";

const prompt = [5, 1, 9, 200, 31];
const TOKENS = 80;

/** A copy of a checkpoint in which the embedding of one token is NaN. */
function broken(folder: string, token: number): string {
  const copy = temporary();
  cpSync(folder, copy, { recursive: true });
  const { tensors } = readSafetensors(join(folder, "model.safetensors"));
  const withNaN = ([name, tensor]: [string, HostTensor]): [string, HostTensor] => {
    if (!name.endsWith("embed_tokens.weight")) return [name, tensor];
    const width = tensor.shape[1] as number;
    const data = tensor.data.slice() as Float32Array;
    data.set(encodeNumbers(tensor.dtype, Array(width).fill(Number.NaN)) as Float32Array, token * width);
    return [name, { ...tensor, data }];
  };
  writeSafetensors(join(copy, "model.safetensors"), [...tensors].map(withNaN));
  return copy;
}

async function textOf(model: LanguageModel, ids: readonly number[], options: GenerateOptions, out: number[] = []) {
  for await (const id of generate(model, ids, { maxTokens: TOKENS, stopTokens: [], ...options })) out.push(id);
  return out;
}

/** From where on the first id of a text that neither prompts nor the text before it have. */
function firstNew(text: readonly number[], from: number): number {
  const at = text.findIndex((id, i) => i >= from && ![...prompt, 7, 8].includes(id) && text.indexOf(id) === i);
  expect(at).toBeGreaterThanOrEqual(from);
  return at;
}

/** The model with a token that is NaN after so many steps of the text, the text before, and what the error says. */
async function brokenAfter(device: Device, folder: string, sampling: SamplingOptions, from: number) {
  using whole = await loadModel(device, folder, { activationDtype: "f32" });
  const text = await textOf(whole, prompt, sampling);
  const at = firstNew(text, from);
  const token = text[at] as number;
  const model = await loadModel(device, broken(folder, token), { activationDtype: "f32" });
  // Step 1 fed the prompt's last token.
  const details = { step: at + 2, sequence: 0, position: prompt.length + at, token };
  return { model, text: text.slice(0, at + 1), error: { name: "MlxtsError", code: "NotANumber", details } };
}

const SAMPLINGS: [string, SamplingOptions][] = [
  ["greedy", { temperature: 0 }],
  ["sampled", { temperature: 1, topK: 50, seed: 4 }],
];
// The greedy text of tiny-deepseek-v3 repeats itself before a step begins ahead.
const cases = SAMPLINGS.flatMap(([how, sampling]) =>
  ["tiny-qwen3-next", ...(how === "sampled" ? ["tiny-deepseek-v3"] : [])].map((name) => ({ name, how, sampling })),
);

describe.each(cases)("logits that are all NaN: $name, $how", ({ name, sampling }) => {
  const device = Device.open("cpu");
  let model: LanguageModel;
  let text: number[];
  let error: { details: { step: number; position: number; token: number } };
  const op = (name: string) => ({ ...error, details: { ...error.details, op: name } });
  beforeAll(async () => {
    ({ model, text, error } = await brokenAfter(device, unpackedCheckpoint(name), sampling, 40));
  });
  afterAll(() => {
    model.dispose();
    device.dispose();
  });

  /** What a state holds that was fed the prompt and so many tokens of the text. */
  async function held(tokens: number) {
    using state = model.newState({ capacity: 140 });
    await prefill(model, state, prompt.slice(0, -1), { positions: [] });
    using decoder = new Decoder(model, state, sampling);
    for (const id of [prompt.at(-1) as number, ...text].slice(0, tokens - prompt.length + 1))
      await decoder.next(id).catch((caught) => expect(caught).toMatchObject({ code: "NotANumber" }));
    return stateBits(await state.save());
  }

  it("end a generation of its own state with an error that names the step, after all ids before it", async () => {
    // A model keeps what it makes for the length of a state.
    await textOf(model, [7], { maxTokens: TOKENS + prompt.length - 1 });
    const before = await liveBuffers(device);
    const [out, ending]: [number[], Partial<Ending>] = [[], {}];
    await expect(textOf(model, prompt, { ...sampling, ending }, out)).rejects.toMatchObject(op("generate"));
    expect(out).toEqual(text);
    expect(ending).toEqual({ finishReason: "error" });
    expect(await liveBuffers(device)).toBe(before);
  });

  it("end a generation of the caller's state, which holds what was yielded", async () => {
    using state = model.newState({ capacity: 140 });
    const out: number[] = [];
    const { step, position, token } = error.details;
    await expect(textOf(model, prompt, { ...sampling, state }, out)).rejects.toThrow(
      `generate: step ${step} gave nothing but NaN as logits, after token ${token} at position ${position} — `,
    );
    expect(out).toEqual(text);
    expect(state.tokens).toBe(prompt.length + text.length);
    expect(stateBits(await state.save())).toEqual(await held(state.tokens));
  });

  it("end a generation with guesses after the same ids, whatever is guessed of what follows", async () => {
    for (const beyond of [0, 3]) {
      // The first id of a row of NaN is 0, which a guess may be, too.
      const draft: Draft = (ids, most) => [...text, beyond, 0, 0].slice(ids.length - prompt.length).slice(0, most);
      using state = model.newState({ capacity: 140, rollback: 4 });
      const out: number[] = [];
      const run = textOf(model, prompt, { ...sampling, state, draft }, out);
      await expect(run).rejects.toMatchObject({ code: "NotANumber", details: { token: text.at(-1), sequence: 0 } });
      expect(out).toEqual(text);
      expect(state.tokens).toBe(prompt.length + text.length);
    }
  });

  it("a last id that is fed when the loop ends is no error: nobody wants what follows", async () => {
    using state = model.newState({ capacity: 140 });
    const out: number[] = [];
    for await (const id of generate(model, prompt, { ...sampling, state, maxTokens: text.length })) out.push(id);
    expect(out).toEqual(text);
    expect(state.tokens).toBe(prompt.length + text.length);
  });

  it("end steps of a decoder; the state holds what they fed, also the one that has begun ahead", async () => {
    using state = model.newState({ capacity: 140 });
    await prefill(model, state, prompt.slice(0, -1), { positions: [] });
    using decoder = new Decoder(model, state, sampling);
    const first = await decoder.nextMany(prompt.at(-1) as number, 30);
    expect(first).toEqual(text.slice(0, 30));
    const next = decoder.nextMany(text[29] as number, TOKENS);
    await expect(next).rejects.toMatchObject(op("decoder.nextMany"));
    const fed = state.tokens - prompt.length;
    expect([text.length, text.length + 1]).toContain(fed);
    text.push(0);
    expect(stateBits(await state.save())).toEqual(await held(state.tokens));
    text.pop();
    await expect(decoder.next(text.at(-1) as number)).rejects.toMatchObject({ code: "NotANumber" });
    expect(state.tokens).toBe(prompt.length + fed + 1);
    state.reset();
    expect(await decoder.next(7)).toEqual(expect.any(Number));
  });

  it("end a batch with an error that names the sequence; the state holds what was yielded of each", async () => {
    const other = [7, 8];
    using state = model.newState({ capacity: 140, sequences: 2 });
    const endings: Partial<Ending>[] = [];
    const out: (number | undefined)[][] = [];
    const read = async () => {
      const options = { each: [{ ...sampling }, sampling], maxTokens: TOKENS, stopTokens: [], state, endings };
      for await (const ids of generateBatch(model, [other, prompt], options)) out.push(ids);
    };
    const details = { ...error.details, sequence: 1, op: "generateBatch" };
    const failure = expect(read()).rejects;
    await failure.toMatchObject({ code: "NotANumber", details });
    expect(out.map(([, id]) => id)).toEqual(text);
    expect(endings).toEqual([{ finishReason: "error" }, { finishReason: "error" }]);
    expect(state.lengths).toEqual([other.length + text.length, prompt.length + text.length]);
    using decoder = new Decoder(model, state, sampling);
    await expect(decoder.nextBatch([3, 4])).rejects.toThrow(/^decoder\.nextBatch: step 1 .* in sequence 1 — /);
    expect(state.lengths).toEqual([other.length + text.length + 1, prompt.length + text.length + 1]);
  });
});
