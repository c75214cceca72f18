import { randomFill } from "node:crypto";
import { promisify } from "node:util";
import { Device } from "@mlxts/core";
import { firstRing } from "@mlxts/test-kit/rings";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import {
  Decoder,
  type GenerateOptions,
  generate,
  type LanguageModel,
  loadModel,
  prefill,
  TextStream,
  Tokenizer,
} from "../src/index.ts";
import { prompts, texts, tiny } from "./fixtures.ts";

const device = Device.open();
let model: LanguageModel;
beforeAll(async () => {
  model = await loadModel(device, tiny, { activationDtype: "f32" });
});
afterAll(() => {
  model.dispose();
  device.dispose();
});

const { ids, greedy } = prompts[0] as (typeof prompts)[number];

async function run(prompt: readonly number[], options: GenerateOptions) {
  const out: number[] = [];
  for await (const id of generate(model, prompt, options)) out.push(id);
  return out;
}

describe("generate", () => {
  it("stops at maxTokens, at a stop token, and at the end of the context", async () => {
    expect(await run(ids, { maxTokens: 5, stopTokens: [] })).toEqual(greedy.slice(0, 5));
    expect(await run(ids, { maxTokens: 64, stopTokens: [greedy[7] as number] })).toEqual(
      greedy.slice(0, greedy.indexOf(greedy[7] as number)),
    );
    using state = model.newState({ capacity: ids.length + 3 });
    expect(await run(ids, { state, maxTokens: 64, stopTokens: [] })).toEqual(greedy.slice(0, 4));
  });

  it("gives the same text for the same seed, and another text for another seed", async () => {
    const sampled = (seed: number) =>
      run(ids, { maxTokens: 24, temperature: 1, topP: 0.95, topK: 50, seed, stopTokens: [] });
    expect(await sampled(7)).toEqual(await sampled(7));
    expect(await sampled(7)).not.toEqual(await sampled(8));
  });

  it("reports timings", async () => {
    const timings = {};
    await run(ids, { maxTokens: 3, stopTokens: [], timings });
    expect(timings).toMatchObject({
      promptTokens: ids.length,
      generatedTokens: 3,
      prefillMs: expect.any(Number),
      decodeMs: expect.any(Number),
    });
  });

  it("continues a restored state to the bit", async () => {
    using state = model.newState({ capacity: 200 });
    await prefill(model, state, ids.slice(0, -1), { positions: [] });
    const saved = await state.save();
    using decoder = new Decoder(model, state);
    const first = await decoder.next(ids.at(-1) as number);
    const second = await decoder.next(first);
    const [a] = await prefill(model, state, [second]);

    using other = model.newState({ capacity: 100 });
    other.restore(saved);
    expect(other.tokens).toBe(ids.length - 1);
    expect(await other.save()).toEqual(saved);
    using again = new Decoder(model, other);
    expect([await again.next(ids.at(-1) as number), await again.next(first)]).toEqual([first, second]);
    const [b] = await prefill(model, other, [second]);
    expect(b).toEqual(a);
  });

  it("a reset empties the state", async () => {
    using state = model.newState({ capacity: 64 });
    const [fresh] = await prefill(model, state, ids);
    state.reset();
    expect(state.tokens).toBe(0);
    expect((await prefill(model, state, ids))[0]).toEqual(fresh);
  });

  it("refuses prompts that do not fit before anything runs", async () => {
    using state = model.newState({ capacity: 8 });
    const refused = (given: readonly number[], message: string) =>
      expect(prefill(model, state, given)).rejects.toThrow(message);
    await refused([], "prefill: `ids` must have at least one token, got []");
    await refused([1, 4096], "prefill: `ids` must be integers from 0 to 4095, got 4096 at position 1");
    await refused([1, -1], "prefill: `ids` must be integers from 0 to 4095, got -1 at position 1");
    await refused([1.5], "prefill: `ids` must be integers from 0 to 4095, got 1.5 at position 0");
    await refused(Array(9).fill(1), "prefill: `ids` must fit the context of 8 tokens, got 0 tokens before and 9 more");
    expect(state.tokens).toBe(0);
    await expect(run(Array(5000).fill(1), {})).rejects.toThrow(
      "generate: `ids` must fit the context of 4096 tokens, got 0 tokens before and 5000 more",
    );
    await expect(run(ids, { maxTokens: 0 })).rejects.toThrow("generate: `maxTokens` must be an integer ≥ 1, got 0");
    await expect(run(ids, { temperature: -1 })).rejects.toThrow("sample: `temperature` must be");
  });

  it("a refused call leaves no buffers behind", async () => {
    // A device of its own, whose buffers other tests do not change.
    using other = Device.open();
    const own = await loadModel(other, tiny);
    using state = own.newState({ capacity: 64 });
    // Buffers that were disposed in flight live until the work that uses them has ended.
    const settled = async () => {
      await other.encoder().commit();
      return other.counters.liveBuffers;
    };
    const before = await settled();
    for (let i = 0; i < 3; i++)
      await expect(generate(own, ids, { state, topP: 2 }).next()).rejects.toThrow("sample: `topP` must be");
    expect(await settled()).toBe(before);
    own.dispose();
  });

  // A limit of wall time, which other work on the machine stretches: not before each commit.
  it.skipIf(firstRing)("spends less than 2 µs per dispatch outside kernels", async () => {
    // On one thread all time outside kernels is overhead. The least of many steps is the time without disturbances, of
    // which a busy machine has more. How fast threads hand work to each other there, a round trip of Node's own says.
    using single = Device.open("cpu", { threads: 1, poison: false });
    const own = await loadModel(single, tiny);
    using state = own.newState({ capacity: 512 });
    using decoder = new Decoder(own, state);
    const roundTrip = promisify((done: (error: Error | null) => void) => randomFill(new Uint8Array(1), done));
    const least = { step: 1e9, kernels: 1e9, submission: 1e9, roundTrip: 1e9 };
    const take = (name: keyof typeof least, us: number) => {
      least[name] = Math.min(least[name], us);
    };
    const time = async (name: keyof typeof least, work: () => PromiseLike<unknown>) => {
      const start = performance.now();
      await work();
      take(name, (performance.now() - start) * 1000);
    };
    const overhead = () => (least.step - least.kernels - least.submission) / decoder.dispatches;
    const ofSubmission = () => least.submission / least.roundTrip;
    for (let i = 0; i < 200 || (i < 2000 && (overhead() >= 2 || ofSubmission() >= 6)); i++) {
      if (i % 200 === 199) state.reset();
      await time("step", () => decoder.next(i));
      const { dispatches = [] } = await decoder.profile(i);
      take(
        "kernels",
        dispatches.reduce((sum, { us }) => sum + us, 0),
      );
      await time("submission", () => single.encoder().commit());
      await time("roundTrip", () => roundTrip());
    }
    expect(decoder.dispatches).toBeGreaterThan(40);
    expect(overhead()).toBeLessThan(2);
    expect(ofSubmission()).toBeLessThan(6);
    own.dispose();
  });

  it("refuses a saved state that does not fit", async () => {
    using state = model.newState({ capacity: 8 });
    const saved = await state.save();
    expect(() => state.restore({ ...saved, tokens: 9 })).toThrow(
      "state.restore: `saved` must hold at most 8 tokens, got 9",
    );
    expect(() => state.restore({ tokens: 0, tensors: {} })).toThrow(
      "state.restore: `saved` must have `conv.0` as f32 [1, 3, 1024], got nothing",
    );
    state.dispose();
    await expect(prefill(model, state, [1])).rejects.toMatchObject({ code: "Disposed" });
  });
});

describe("tokenizer", () => {
  const tokenizer = new Tokenizer(tiny);

  it("gives the recorded ids of the prompts", () => {
    for (const [i, prompt] of prompts.entries())
      expect(tokenizer.encode(texts.prompts[i] as string)).toEqual(prompt.ids);
  });

  it("streams the recorded texts", () => {
    for (const [i, prompt] of prompts.entries()) {
      const stream = new TextStream(tokenizer);
      const pieces = [...prompt.ids, ...prompt.greedy].map((id) => stream.push(id));
      expect(pieces.join("") + stream.end()).toBe(texts.greedy_texts[i]);
    }
  });

  it("holds back characters until all their bytes are there", () => {
    const text = "π ≈ 3.14159 🙂 naïve 漢字";
    const stream = new TextStream(tokenizer);
    const pieces = tokenizer.encode(text).map((id) => stream.push(id));
    expect(pieces.some((piece) => piece.includes("\ufffd"))).toBe(false);
    expect(pieces.join("") + stream.end()).toBe(text);
  });
});
