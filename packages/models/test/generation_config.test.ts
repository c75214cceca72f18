import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { afterAll, describe, expect, it } from "vitest";
import { Decoder, generate, generateBatch, type LanguageModel, loadModel, type SamplingOptions } from "../src/index.ts";
import { prompts, withConfig } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());
const ids = prompts[0]?.ids as number[];

async function withGeneration(config: Record<string, unknown>): Promise<LanguageModel> {
  const folder = withConfig(() => {});
  writeFileSync(join(folder, "generation_config.json"), JSON.stringify({ eos_token_id: 0, ...config }));
  return loadModel(device, folder, { activationDtype: "f32" });
}

async function text(model: LanguageModel, options: SamplingOptions): Promise<number[]> {
  const out: number[] = [];
  for await (const id of generate(model, ids, { maxTokens: 24, seed: 5, ...options })) out.push(id);
  return out;
}

describe("generation_config.json", () => {
  it("gives the sampling options that the caller leaves out", async () => {
    using plain = await withGeneration({});
    using sampled = await withGeneration({ do_sample: true, temperature: 1.5, top_k: 40, top_p: 0.9 });
    expect(plain.generationDefaults).toEqual({ temperature: 0, topK: 0, topP: 1 });
    expect(sampled.generationDefaults).toEqual({ temperature: 1.5, topK: 40, topP: 0.9 });
    const wanted = await text(plain, { temperature: 1.5, topK: 40, topP: 0.9 });
    expect(wanted).not.toEqual(await text(plain, { temperature: 1.5 }));
    expect(await text(sampled, {})).toEqual(wanted);
    expect(await text(sampled, { topK: undefined } as unknown as SamplingOptions)).toEqual(wanted);
    // Options that are given go before the fields of the file.
    expect(await text(sampled, { topK: 0, topP: 1 })).toEqual(await text(plain, { temperature: 1.5 }));
    expect(await text(sampled, { temperature: 0 })).toEqual(await text(plain, {}));
    const rows: number[] = [];
    for await (const [id] of generateBatch(sampled, [ids], { maxTokens: 24, seed: 5 })) rows.push(id as number);
    expect(rows).toEqual(wanted);
    using state = sampled.newState({ capacity: 8 });
    using other = plain.newState({ capacity: 8 });
    using ours = new Decoder(sampled, state, { seed: 5 });
    using theirs = new Decoder(plain, other, { seed: 5, temperature: 1.5, topK: 40, topP: 0.9 });
    for (const id of ids.slice(0, 6)) expect(await ours.next(id)).toBe(await theirs.next(id));
  });

  it("samples only where do_sample is true, as Hugging Face transformers does", async () => {
    using greedy = await withGeneration({ temperature: 0.6, top_k: 20, top_p: 0.95 });
    expect(greedy.generationDefaults).toEqual({ temperature: 0, topK: 20, topP: 0.95 });
    expect(await text(greedy, {})).toEqual(prompts[0]?.greedy.slice(0, 24));
    // Where the caller wants tokens drawn, the file says from which.
    const drawn = await text(greedy, { temperature: 1.5 });
    expect(drawn).toEqual(await text(greedy, { temperature: 1.5, topK: 20, topP: 0.95 }));
    expect(drawn).not.toEqual(await text(greedy, { temperature: 1.5, topK: 0, topP: 1 }));
    using bare = await withGeneration({ do_sample: true, temperature: null, top_k: null, top_p: null });
    expect(bare.generationDefaults).toEqual({ temperature: 1, topK: 0, topP: 1 });
  });

  it.each([
    [{ temperature: -1 }, "loadModel: `generation_config.temperature` must be at least 0 and finite, got -1"],
    [{ temperature: "hot" }, "loadModel: `generation_config.temperature` must be a number, got hot"],
    [{ top_k: -2 }, "loadModel: `generation_config.top_k` must be at least 0 and at most 2147483647, got -2"],
    [{ top_k: 1.5 }, "loadModel: `generation_config.top_k` must be an integer from 1 to 2147483647, got 1.5"],
    [{ top_p: -1 }, "loadModel: `generation_config.top_p` must be above 0 and at most 1, got -1"],
    [{ top_p: 1.5 }, "loadModel: `generation_config.top_p` must be above 0 and at most 1, got 1.5"],
    [{ do_sample: 1 }, "loadModel: `generation_config.do_sample` must be a boolean, got 1"],
    [{ eos_token_id: [-1] }, "loadModel: `generation_config.eos_token_id` must be token ids, got [-1]"],
  ])("%j is refused", async (config, message) => {
    await expect(withGeneration(config)).rejects.toThrow(message);
  });

  it("lists stop tokens as a number or a list", async () => {
    using one = await withGeneration({ eos_token_id: 7 });
    expect(one.stopTokens).toEqual([7]);
    using more = await withGeneration({ eos_token_id: [7, 9] });
    expect(more.stopTokens).toEqual([7, 9]);
  });

  it("takes top_k -1 and top_p 0 for what they mean, and ignores them where no token is drawn", async () => {
    using greedy = await withGeneration({ do_sample: false, top_p: 0, top_k: -1 });
    expect(greedy.generationDefaults).toEqual({ temperature: 0, topK: 0, topP: 1 });
    using all = await withGeneration({ do_sample: true, top_k: -1 });
    expect(all.generationDefaults).toEqual({ temperature: 1, topK: 0, topP: 1 });
    using one = await withGeneration({ do_sample: true, top_p: 0 });
    expect(await text(one, {})).toEqual(prompts[0]?.greedy.slice(0, 24));
  });

  it("has the tokenizer's eos_token among the stop tokens, wherever its files name it", async () => {
    const stopsOf = async (files: Record<string, object>) => {
      const folder = withConfig(() => {});
      for (const [name, json] of Object.entries({ "generation_config.json": { eos_token_id: 5 }, ...files }))
        writeFileSync(join(folder, name), JSON.stringify(json));
      using model = await loadModel(device, folder);
      return model.stopTokens;
    };
    expect(await stopsOf({})).toEqual([5]);
    expect(await stopsOf({ "tokenizer_config.json": { eos_token: "<|im_end|>" } })).toEqual([5, 2]);
    expect(await stopsOf({ "special_tokens_map.json": { eos_token: { content: "<|im_end|>" } } })).toEqual([5, 2]);
    expect(await stopsOf({ "tokenizer_config.json": { eos_token: "a" } })).toHaveLength(2);
    expect(await stopsOf({ "tokenizer_config.json": { eos_token: "nowhere" } })).toEqual([5]);
    const decoder = { "7": { content: "<end>" }, "99999": { content: "<far>" } };
    expect(await stopsOf({ "tokenizer_config.json": { eos_token: "<end>", added_tokens_decoder: decoder } })).toEqual([
      5, 7,
    ]);
    expect(await stopsOf({ "tokenizer_config.json": { eos_token: "<far>", added_tokens_decoder: decoder } })).toEqual([
      5,
    ]);
    expect(
      await stopsOf({
        "generation_config.json": { eos_token_id: [2, 5] },
        "tokenizer_config.json": { eos_token: "<|im_end|>" },
      }),
    ).toEqual([2, 5]);
  });
});
