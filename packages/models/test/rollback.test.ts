import { Device } from "@mlxts/core";
import { describe, expect, it } from "vitest";
import {
  Decoder,
  type Draft,
  type Ending,
  type GenerateOptions,
  generate,
  loadModel,
  type ModelState,
  prefill,
  prefillBatch,
  promptLookup,
  type Timings,
} from "../src/index.ts";
import { bits, liveBuffers, prompts, stateBits, tiny, tiny4bit, tinyOnCpu } from "./fixtures.ts";

const { device, model } = await tinyOnCpu();

const long = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]);
const { ids, greedy } = prompts[0] as (typeof prompts)[number];

async function run(prompt: readonly number[], options: GenerateOptions, of = model) {
  const out: number[] = [];
  for await (const id of generate(of, prompt, options)) out.push(id);
  return out;
}

/** Feeds passes of tokens on the recurrent path; passes of several rows all have the same matrix kernel. */
async function fed(state: ModelState, passes: readonly (readonly number[])[], of = model): Promise<void> {
  for (const pass of passes) await prefill(of, state, pass, { path: "recurrent", positions: [] });
}

describe("state.rollback", () => {
  it.each(["f32", "bf16"] as const)(
    "gives the state in which the tokens were never fed, to the bit: %s",
    async (activations) => {
      using of = await loadModel(device, tiny, { activationDtype: activations });
      // A single row has a kernel of its own, with other roundings: no row of a pass stays, or several do.
      for (const [before, pass, taken] of [
        [20, 6, 1],
        [20, 6, 4],
        [20, 4, 4],
        [0, 5, 5],
        [0, 3, 1],
        [2, 7, 5],
        // More tokens than the convolution looks back, and a pass longer than what can be rolled back.
        [9, 30, 5],
      ] as const) {
        const what = `${before} tokens, ${taken} of ${pass} taken back`;
        using state = of.newState({ capacity: 80, rollback: 5 });
        using plain = of.newState({ capacity: 80 });
        const start = long.slice(0, before);
        if (before > 0) for (const each of [state, plain]) await fed(each, [start], of);
        await fed(state, [long.slice(before, before + pass)], of);
        await state.rollback(taken);
        expect(state.tokens, what).toBe(before + pass - taken);
        if (pass > taken) await fed(plain, [long.slice(before, before + pass - taken)], of);
        expect(stateBits(await state.save()), what).toEqual(stateBits(await plain.save()));
        // What follows is the same, too.
        const next = long.slice(100, 103);
        const [a] = await prefill(of, state, next);
        const [b] = await prefill(of, plain, next);
        expect(bits(a as Float32Array), what).toBe(bits(b as Float32Array));
        await state.rollback(3);
        await fed(state, [next], of);
        expect(stateBits(await state.save()), what).toEqual(stateBits(await plain.save()));
      }
    },
  );

  it("can be repeated, within the last pass", async () => {
    using state = model.newState({ capacity: 80, rollback: 6 });
    using plain = model.newState({ capacity: 80 });
    await fed(state, [long.slice(0, 20), long.slice(20, 28)]);
    await fed(plain, [long.slice(0, 20), long.slice(20, 23)]);
    for (const taken of [2, 0, 1, 2]) await state.rollback(taken);
    expect(stateBits(await state.save())).toEqual(stateBits(await plain.save()));
    await expect(state.rollback(2)).rejects.toThrow(
      "state.rollback: `tokens` must be an integer from 0 to 1, what the last pass left to take back, got 2",
    );
    expect(state.tokens).toBe(23);
  });

  it("rolls back each sequence of a ragged batch by its own number", async () => {
    const batch = [long.slice(0, 30), long.slice(40, 52), long.slice(7, 27)];
    const drafts = [long.slice(30, 34), long.slice(60, 62), []];
    using state = model.newState({ capacity: 64, sequences: 3, rollback: 4 });
    await prefillBatch(model, state, batch, { path: "recurrent" });
    await prefillBatch(model, state, drafts, { path: "recurrent" });
    await expect(state.rollback([1, 3, 0])).rejects.toThrow(
      "state.rollback: `tokens` must be an integer from 0 to 2, what the last pass left to take back in sequence 1, got 3",
    );
    await state.rollback([2, 2, 0]);
    expect(state.lengths).toEqual([32, 12, 20]);
    for (const [at, prompt] of batch.entries()) {
      using single = model.newState({ capacity: 64 });
      await fed(single, [prompt, ...(at === 0 ? [long.slice(30, 32)] : [])]);
      expect(stateBits(await state.save(at)), `sequence ${at}`).toEqual(stateBits(await single.save()));
    }
  });

  it("rolls back the end of a prompt whose passes are all alike", async () => {
    using state = model.newState({ capacity: 80, rollback: 3 });
    using plain = model.newState({ capacity: 80 });
    const options = { path: "recurrent", blockLength: 16, positions: [] } as const;
    await prefill(model, state, long.slice(0, 48), options);
    await state.rollback(3);
    await prefill(model, plain, long.slice(0, 45), options);
    expect(stateBits(await state.save())).toEqual(stateBits(await plain.save()));
  });

  it("rolls back the end of a prompt on the chunk path", async () => {
    using state = model.newState({ capacity: 160, rollback: 3 });
    using plain = model.newState({ capacity: 160, rollback: 3 });
    await prefill(model, state, long.slice(0, 133), { path: "chunk" });
    await state.rollback(3);
    expect(state.tokens).toBe(130);
    await prefill(model, plain, long.slice(0, 133), { path: "chunk" });
    await plain.rollback(3);
    await fed(plain, [long.slice(130, 133)]);
    await plain.rollback(3);
    expect(stateBits(await state.save())).toEqual(stateBits(await plain.save()));
  });

  it("needs a state that was made with it, and ends at the beginning of the last pass", async () => {
    const refused = (state: ModelState, tokens: number | number[], message: string) =>
      expect(state.rollback(tokens)).rejects.toThrow(`state.rollback: \`tokens\` must ${message}`);
    using plain = model.newState({ capacity: 16 });
    await prefill(model, plain, [1, 2, 3]);
    const left = (most: number) => `be an integer from 0 to ${most}, what the last pass left to take back`;
    await refused(plain, 1, `${left(0)}, got 1 — make the state with newState({ rollback })`);
    using state = model.newState({ capacity: 16, rollback: 2 });
    await refused(state, 1, `${left(0)}, got 1`);
    await prefill(model, state, [1, 2, 3]);
    await refused(state, 3, `${left(2)}, got 3`);
    await refused(state, -1, `${left(2)}, got -1`);
    await refused(state, 0.5, `${left(2)}, got 0.5`);
    await refused(state, [1, 1], "have one entry for each of the state's 1 sequences, got 2");
    await refused(state, "1" as never, `be a number or an array of numbers, got "1"`);
    const saved = await state.save();
    state.restore(saved);
    await refused(state, 1, `${left(0)}, got 1`);
    expect(() => model.newState({ rollback: 65 })).toThrow(
      "model.newState: `rollback` must be an integer from 0 to 64, got 65",
    );
    state.dispose();
    await expect(state.rollback(1)).rejects.toMatchObject({ code: "Disposed" });
  });

  it("adds nothing to a state without it", () => {
    using plain = model.newState({ capacity: 16 });
    using decoder = new Decoder(model, plain);
    expect(decoder.dispatches).toBe(46);
    // With it, a step copies the inputs of the convolution in each layer.
    using state = model.newState({ capacity: 16, rollback: 1 });
    using logging = new Decoder(model, state);
    expect(logging.dispatches).toBe(46 + 3);
  });
});

describe("speculation", () => {
  /** A guess whose first tokens are right, so many of them. */
  const oracle =
    (expected: readonly number[], right: number): Draft =>
    (text, most) => {
      const at = text.length - ids.length;
      return expected.slice(at, at + most).map((id, i) => (i < right ? id : (id + 1) % 4096));
    };

  it.each(prompts)("64 greedy tokens of prompt $# are those of plain decoding", async ({ ids, greedy }) => {
    const timings: Partial<Timings> = {};
    expect(await run(ids, { draft: promptLookup(), maxTokens: 64, stopTokens: [], timings })).toEqual(greedy);
    expect(timings).toMatchObject({ generatedTokens: 64 });
  });

  it("with guesses that are right, half right and wrong, of every length", async () => {
    for (const draftTokens of [1, 3, 7])
      for (const right of [0, 1, 2, 7]) {
        const timings: Partial<Timings> = {};
        const options = { draft: oracle(greedy, right), draftTokens, maxTokens: 30, stopTokens: [], timings };
        expect(await run(ids, options), `${right} of ${draftTokens}`).toEqual(greedy.slice(0, 30));
        if (right === 0) expect(timings.acceptedTokens).toBe(0);
        if (right === 7) expect(timings.acceptedTokens).toBe(timings.draftedTokens);
      }
  });

  it("with 4-bit weights", async () => {
    using quantized = await loadModel(device, tiny4bit, { activationDtype: "f32" });
    for (const { ids, fourBit } of prompts)
      expect(await run(ids, { draft: promptLookup(), maxTokens: 40, stopTokens: [] }, quantized)).toEqual(
        fourBit.greedy.slice(0, 40),
      );
  });

  it("draws the tokens that plain decoding draws", async () => {
    const sampling = { temperature: 0.8, topP: 0.95, seed: 3, maxTokens: 30, stopTokens: [] };
    const plain = await run(ids, sampling);
    expect(await run(ids, { ...sampling, draft: oracle(plain, 2) })).toEqual(plain);
    expect(await run(ids, { ...sampling, draft: promptLookup() })).toEqual(plain);
  });

  it("leaves the state of single steps, wherever it ends", async () => {
    const stop = greedy[9] as number;
    const at = greedy.indexOf(stop);
    for (const options of [{ maxTokens: 8 }, { maxTokens: 40, stopTokens: [stop] }]) {
      using state = model.newState({ capacity: 128, rollback: 4 });
      using plain = model.newState({ capacity: 128 });
      const wanted = { stopTokens: [], ...options };
      const text = await run(ids, { ...wanted, state, draft: oracle(greedy, 4) });
      expect(text).toEqual(await run(ids, { ...wanted, state: plain }));
      expect(text).toHaveLength(options.stopTokens ? at : 8);
      expect(state.tokens).toBe(plain.tokens);
    }
    // The loop ends after the second token.
    using state = model.newState({ capacity: 128, rollback: 4 });
    let count = 0;
    for await (const _ of generate(model, ids, { state, draft: oracle(greedy, 4), stopTokens: [] }))
      if (++count === 2) break;
    expect(state.tokens).toBe(ids.length + 2);
    // The end of the context.
    using tight = model.newState({ capacity: ids.length + 6, rollback: 4 });
    expect(await run(ids, { state: tight, draft: oracle(greedy, 4), stopTokens: [] })).toEqual(greedy.slice(0, 7));
    // The loop ends before ids whose guesses fill the context.
    using full = model.newState({ capacity: ids.length + 4, rollback: 4 });
    const ending: Partial<Ending> = {};
    count = 0;
    for await (const _ of generate(model, ids, { state: full, draft: oracle(greedy, 4), stopTokens: [], ending }))
      if (++count === 2) break;
    expect(ending).toEqual({ finishReason: "aborted" });
    expect(full.tokens).toBe(ids.length + 2);
  });

  it("step by step", async () => {
    using state = model.newState({ capacity: 128, rollback: 3 });
    await prefill(model, state, ids.slice(0, -1), { positions: [] });
    using decoder = new Decoder(model, state);
    const [a, b, c, d] = greedy as [number, number, number, number];
    const last = ids.at(-1) as number;
    expect(await decoder.speculate(last, [a, b, d])).toEqual([a, b, c]);
    expect(state.tokens).toBe(ids.length + 2);
    expect(await decoder.speculate(c, [])).toEqual([d]);
    expect(await decoder.next(d)).toBe(greedy[4]);
    await expect(decoder.speculate(d, [1, 2, 3, 4])).rejects.toThrow(
      "decoder.speculate: `draft.length` must be an integer from 0 to 3, got 4",
    );
    await expect(decoder.speculate(d, [4096])).rejects.toThrow(
      "decoder.speculate: `draft` must be integers from 0 to 4095, got 4096 at position 0",
    );
  });

  it("refuses wrong arguments, with exact texts", async () => {
    using state = model.newState({ capacity: 64, rollback: 2 });
    const refused = (options: GenerateOptions, message: string) =>
      expect(run(ids, { draft: promptLookup(), ...options })).rejects.toThrow(`generate: ${message}`);
    await refused({ draftTokens: 0 }, "`draftTokens` must be an integer from 1 to 64, got 0");
    await refused({ state, draftTokens: 3 }, "`draftTokens` must be an integer from 1 to 2, got 3");
    using plain = model.newState({ capacity: 64 });
    await refused(
      { state: plain },
      "`state` must be made with `rollback` when there is a `draft`, got a state without it",
    );
    expect(state.tokens).toBe(0);
    expect(() => promptLookup({ longest: 0 })).toThrow("promptLookup: `longest` must be an integer ≥ 1, got 0");
    expect(() => promptLookup({ longest: 2, shortest: 3 })).toThrow(
      "promptLookup: `shortest` must be at most longest (2), got 3",
    );
  });

  it("leaves no buffers behind", async () => {
    using own = Device.open("cpu");
    using loaded = await loadModel(own, tiny);
    const before = await liveBuffers(own);
    await run(ids, { draft: promptLookup(), maxTokens: 20, stopTokens: [] }, loaded);
    expect(await liveBuffers(own)).toBe(before);
  });
});

describe("promptLookup", () => {
  it("finds the latest of the longest repetitions", () => {
    const draft = promptLookup({ shortest: 1 });
    expect(draft([1, 2, 3, 9, 1, 2, 3, 8, 5, 1, 2, 3], 2)).toEqual([8, 5]);
    expect(draft([7, 3, 4, 2, 3, 6, 3], 4)).toEqual([6, 3]);
    expect(draft([1, 2, 3], 4)).toEqual([]);
    expect(draft([5, 5, 5], 4)).toEqual([5]);
    expect(promptLookup()([1, 2, 9, 2], 3)).toEqual([]);
    expect(draft([1], 3)).toEqual([]);
    expect(promptLookup()([1, 2, 3, 1, 2], 2)).toEqual([3, 1]);
  });
});
