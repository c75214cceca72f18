import { join } from "node:path";
import { inspect } from "node:util";
import { Device } from "@mlxts/core";
import { describe, expect, it } from "vitest";
import {
  Decoder,
  generate,
  generateBatch,
  loadModel,
  type ModelState,
  PrefixCache,
  prefill,
  prefillBatch,
  promptLookup,
  TextStream,
  Tokenizer,
} from "../src/index.ts";
import { stateBits, tiny, tinyOnCpu } from "./fixtures.ts";

const { device, model } = await tinyOnCpu();

describe("states of another model", () => {
  it("are refused everywhere", async () => {
    using other = await loadModel(device, tiny, { activationDtype: "f32" });
    using state = other.newState({ capacity: 16 });
    const text = (op: string) =>
      `${op}: \`state\` must belong to the model, got a state of another model — make it with model.newState`;
    expect(() => new Decoder(model, state)).toThrow(text("Decoder"));
    await expect(prefill(model, state, [1])).rejects.toThrow(text("prefill"));
    await expect(prefillBatch(model, state, [[1]])).rejects.toThrow(text("prefillBatch"));
    await expect(generate(model, [1], { state }).next()).rejects.toThrow(text("generate"));
    await expect(generateBatch(model, [[1]], { state }).next()).rejects.toThrow(text("generateBatch"));
    expect(state.tokens).toBe(0);
    expect(() => new Decoder(model, {} as ModelState)).toThrow(
      "Decoder: `state` must be a state made by model.newState, got Object",
    );
    await expect(prefill(model, undefined as never, [1])).rejects.toThrow(
      "prefill: `state` must be a state made by model.newState, got undefined",
    );
  });
});

describe("options", () => {
  it("with unknown names are refused everywhere", async () => {
    using state = model.newState({ capacity: 16, rollback: 2 });
    using decoder = new Decoder(model, state);
    const wrong = { tempature: 1 } as object;
    const text = (op: string, known: string) => `${op}: \`tempature\` must be one of ${known}, got an unknown option`;
    const common = "temperature, topK, topP, seed, maxTokens, stopTokens, signal, path, state, cache, timings";
    await expect(generate(model, [1], wrong).next()).rejects.toThrow(
      text("generate", `${common}, draft, draftTokens, ending`),
    );
    await expect(generateBatch(model, [[1]], wrong).next()).rejects.toThrow(
      text("generateBatch", `${common}, each, endings`),
    );
    await expect(generateBatch(model, [[1]], { each: [wrong] }).next()).rejects.toThrow(
      text("generateBatch", "temperature, topK, topP, seed, maxTokens, stopTokens"),
    );
    const prefilling = "path, blockLength, positions, cache, signal";
    await expect(prefill(model, state, [1], wrong)).rejects.toThrow(text("prefill", prefilling));
    await expect(prefillBatch(model, state, [[1]], wrong)).rejects.toThrow(text("prefillBatch", prefilling));
    expect(() => model.newState(wrong)).toThrow(text("model.newState", "capacity, sequences, rollback"));
    expect(() => new Decoder(model, state, wrong)).toThrow(text("Decoder", "temperature, topK, topP, seed"));
    expect(() => new Decoder(model, state, [wrong])).toThrow(text("Decoder", "temperature, topK, topP, seed"));
    expect(() => new PrefixCache(model, wrong)).toThrow(text("PrefixCache", "every, maxBytes"));
    expect(() => promptLookup(wrong)).toThrow(text("promptLookup", "longest, shortest"));
    await expect(state.save(0, wrong)).rejects.toThrow(text("state.save", "signal"));
    await expect(state.rollback(0, wrong)).rejects.toThrow(text("state.rollback", "signal"));
    await expect(decoder.next(1, wrong)).rejects.toThrow(text("decoder.next", "signal"));
    await expect(decoder.nextBatch([1], wrong)).rejects.toThrow(text("decoder.nextBatch", "signal"));
    await expect(decoder.speculate(1, [], wrong)).rejects.toThrow(text("decoder.speculate", "signal"));
    await expect(generate(model, [1], null as never).next()).rejects.toThrow(
      "generate: `options` must be an object, got null",
    );
    expect(state.tokens).toBe(0);
  });

  it("of the wrong kind are refused too", async () => {
    using state = model.newState({ capacity: 16 });
    const refused = (options: object, message: string) =>
      expect(generate(model, [1], options).next()).rejects.toThrow(`generate: ${message}`);
    await refused({ stopTokens: "</s>" }, "`stopTokens` must be an array of token ids, got </s>");
    await refused({ stopTokens: [1.5] }, "`stopTokens` must be integers ≥ 0, got 1.5 at position 0");
    await refused({ draft: "lookup" }, "`draft` must be a function, got lookup");
    await refused({ path: "fast" }, "`path` must be one of auto, recurrent, chunk, got fast");
    await refused({ timings: 1 }, "`timings` must be an object to fill in, got 1");
    await refused({ ending: null }, "`ending` must be an object to fill in, got null");
    await refused({ cache: {} }, "`cache` must be a PrefixCache, got Object");
    await refused({ signal: {} }, "`signal` must be an AbortSignal, got Object");
    await refused({ signal: { throwIfAborted: () => {} } }, "`signal` must be an AbortSignal, got Object");
    const batch = (options: object) => generateBatch(model, [[1]], options).next();
    await expect(batch({ each: {} })).rejects.toThrow("generateBatch: `each` must be an array of options, got Object");
    await expect(batch({ endings: {} })).rejects.toThrow(
      "generateBatch: `endings` must be an array to fill in, got Object",
    );
    await expect(prefill(model, state, [1], { path: "fast" as never })).rejects.toThrow(
      "prefill: `path` must be one of auto, recurrent, chunk, got fast",
    );
    await expect(prefill(model, state, [1], { positions: 0 as never })).rejects.toThrow(
      "prefill: `positions` must be an array of positions, got 0",
    );
    await expect(generateBatch(model, []).next()).rejects.toThrow(
      "generateBatch: `prompts` must have at least one prompt, got []",
    );
    await expect(generateBatch(model, [], { state }).next()).rejects.toThrow(
      "generateBatch: `prompts` must have one entry for each of the state's 1 sequences, got 0",
    );
    const restored = (saved: unknown, message: string) =>
      expect(() => state.restore(saved as never)).toThrow(`state.restore: \`saved\` must ${message}`);
    restored(null, "be what state.save returned, got null");
    restored({ tokens: 0 }, "be what state.save returned, got Object");
    const good = await state.save();
    const conv = good.tensors["conv.0"] as (typeof good.tensors)[string];
    const changed = (change: object) => ({ ...good, tensors: { ...good.tensors, "conv.0": { ...conv, ...change } } });
    const rule = "have `conv.0` as f32 [1, 3, 1024], got";
    restored(changed({ data: Array.from(conv.data as Float32Array) }), `${rule} data of another kind`);
    restored(changed({ data: new Float32Array(5) }), `${rule} 5 elements`);
    restored(changed({ dtype: "bf16" }), `${rule} bf16 [1, 3, 1024]`);
    restored(changed({ shape: [3, 1024] }), `${rule} f32 [3, 1024]`);
    expect(stateBits(await state.save())).toEqual(stateBits(good));
  });
});

describe("console.log and JSON.stringify", () => {
  it("show a summary of an object", async () => {
    const state = model.newState({ capacity: 16, sequences: 2, rollback: 1 });
    await prefillBatch(model, state, [[1, 2], [3]]);
    const fields = {
      ...{ type: "ModelState", modelType: "qwen3_5", sequences: 2, capacity: 16, lengths: [2, 1], rollback: 1 },
      ...{ bytes: expect.any(Number), disposed: false },
    };
    expect(JSON.parse(JSON.stringify(state))).toEqual(fields);
    expect(inspect(state)).toMatch(/^ModelState \{\s+modelType: 'qwen3_5',\s+sequences: 2,[^<]+lengths: \[ 2, 1 \]/);
    const decoder = new Decoder(model, state);
    expect(JSON.parse(JSON.stringify(decoder))).toEqual({
      ...{ type: "Decoder", state: fields, dispatches: decoder.dispatches, disposed: false },
    });
    expect(inspect(decoder)).toMatch(/^Decoder \{/);
    expect(JSON.parse(JSON.stringify(model))).toMatchObject({ type: "Qwen3_5", layers: 4, device: "cpu" });
    expect(inspect(model)).toMatch(/^Qwen3_5 \{/);
    expect(inspect(new PrefixCache(model))).toMatch(/^PrefixCache \{\s+modelType: 'qwen3_5',\s+every: 256/);
    const tokenizer = new Tokenizer(tiny);
    const about = { type: "Tokenizer", path: join(tiny, "tokenizer.json"), chatTemplates: [] };
    expect(JSON.parse(JSON.stringify(tokenizer))).toEqual(about);
    expect(inspect(tokenizer)).toMatch(/^Tokenizer \{/);
    const stream = new TextStream(tokenizer);
    expect(JSON.parse(JSON.stringify(stream))).toEqual({ type: "TextStream", tokenizer: about });
    for (const one of [state, decoder, model, tokenizer, stream]) expect(inspect(one).length).toBeLessThan(400);
    decoder.dispose();
    state.dispose();
    expect(JSON.parse(JSON.stringify(decoder))).toMatchObject({ dispatches: 0, disposed: true });
    expect(JSON.parse(JSON.stringify(state))).toEqual({ ...fields, disposed: true });
    const dead = Device.open("cpu");
    const gone = await loadModel(dead, tiny);
    const left = gone.newState({ capacity: 4 });
    gone.dispose();
    dead.dispose();
    for (const one of [gone, left]) expect(inspect(one)).toContain("qwen3_5");
  });
});
