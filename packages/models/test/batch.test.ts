import { Device } from "@mlxts/core";
import { compare, within } from "@mlxts/core/testing";
import { describe, expect, it } from "vitest";
import {
  Decoder,
  type GenerateBatchOptions,
  generate,
  generateBatch,
  loadModel,
  type ModelPath,
  prefill,
  prefillBatch,
} from "../src/index.ts";
import { liveBuffers, prompts, stateBits, tiny, tiny4bit, tinyOnCpu } from "./fixtures.ts";

const { device, model } = await tinyOnCpu();

const long = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]);
/** Lengths around those of chunks, and around the limits of kernels for few rows. */
const ragged = [long.slice(0, 65), long.slice(7, 16), long.slice(20, 148), long.slice(3, 40)];

interface Outcome {
  logits: Float32Array;
  state: ReturnType<typeof stateBits>;
}

async function alone(ids: readonly number[], path: ModelPath, of = model): Promise<Outcome> {
  using state = of.newState({ capacity: 150 });
  const [logits] = await prefill(of, state, ids, { path });
  return { logits: logits as Float32Array, state: stateBits(await state.save()) };
}

async function together(batch: readonly (readonly number[])[], path: ModelPath, of = model): Promise<Outcome[]> {
  using state = of.newState({ capacity: 150, sequences: batch.length });
  const logits = await prefillBatch(of, state, batch, { path });
  const saved = await Promise.all(batch.map((_, at) => state.save(at)));
  return saved.map((one, at) => ({ logits: logits[at]?.[0] as Float32Array, state: stateBits(one) }));
}

/** Sequences hold the bits that they hold alone. Their logits, from matrix products of other sizes, are within the bound. */
async function expectAlone(batch: readonly (readonly number[])[], path: ModelPath, of = model, bar = 2e-6) {
  const outcomes = await together(batch, path, of);
  for (const [at, ids] of batch.entries()) {
    const single = await alone(ids, path, of);
    expect(outcomes[at]?.state, `sequence ${at} on path ${path}`).toEqual(single.state);
    const c = compare(outcomes[at]?.logits as Float32Array, single.logits);
    expect(within(c, bar, 12), `sequence ${at} on path ${path}: ratio ${c.ratio}`).toBe(true);
  }
}

async function texts(batch: readonly (readonly number[])[], options: GenerateBatchOptions, of = model) {
  const out: number[][] = batch.map(() => []);
  for await (const ids of generateBatch(of, batch, options))
    for (const [at, id] of ids.entries()) if (id !== undefined) out[at]?.push(id);
  return out;
}

describe("prefillBatch", () => {
  it.each(["recurrent", "chunk"] as const)("ragged prompts have the bits of each alone: %s path", (path) =>
    expectAlone(ragged, path),
  );

  it.each(["recurrent", "chunk", "auto"] as const)(
    "prompts of one length have the bits of each alone: %s path",
    async (path) => {
      await expectAlone(
        [0, 11, 30].map((at) => long.slice(at, at + 70)),
        path,
      );
    },
  );

  it("very short prompts beside long ones agree within the bound", async () => {
    const batch = [long.slice(0, 100), long.slice(0, 1), long.slice(5, 8)];
    const outcomes = await together(batch, "auto");
    for (const [at, ids] of batch.entries()) {
      const single = await alone(ids, "auto");
      const c = compare(outcomes[at]?.logits as Float32Array, single.logits);
      expect(within(c, 2e-6, 40), `sequence ${at}: ratio ${c.ratio}`).toBe(true);
      if (at === 0) expect(outcomes[at]?.state).toEqual(single.state);
    }
  });

  it("continues sequences, and does not change those without a prompt", async () => {
    using state = model.newState({ capacity: 160, sequences: 3 });
    const batch = [long.slice(0, 64), long.slice(30, 94), long.slice(9, 73)];
    await prefillBatch(model, state, batch, { path: "chunk" });
    const before = stateBits(await state.save(1));
    const rest = [long.slice(64, 140), [], long.slice(73, 90)];
    const logits = await prefillBatch(model, state, rest, { path: "chunk", positions: [[75, 10], [], [16]] });
    expect(state.lengths).toEqual([140, 64, 81]);
    expect(state.tokens).toBe(285);
    expect(stateBits(await state.save(1))).toEqual(before);
    expect(logits.map((rows) => rows.length)).toEqual([2, 0, 1]);
    for (const at of [0, 2]) {
      using single = model.newState({ capacity: 160 });
      await prefill(model, single, batch[at] as number[], { path: "chunk" });
      const positions = at === 0 ? [75, 10] : [16];
      const rows = await prefill(model, single, rest[at] as number[], { path: "chunk", positions });
      for (const [i, row] of rows.entries())
        expect(within(compare(logits[at]?.[i] as Float32Array, row), 2e-6, 12)).toBe(true);
      expect(stateBits(await state.save(at))).toEqual(stateBits(await single.save()));
    }
  });

  it("feeds long prompts in blocks, with the bits of each alone", async () => {
    const batch = [long.slice(0, 140), long.slice(0, 70)];
    using state = model.newState({ capacity: 150, sequences: 2 });
    await prefillBatch(model, state, batch, { path: "chunk", blockLength: 48 });
    for (const [at, ids] of batch.entries()) {
      using single = model.newState({ capacity: 150 });
      await prefill(model, single, ids, { path: "chunk", blockLength: 48 });
      expect(stateBits(await state.save(at)), `sequence ${at}`).toEqual(stateBits(await single.save()));
    }
  });

  it("in bf16 and with 4-bit weights", async () => {
    using half = await loadModel(device, tiny, { activationDtype: "bf16" });
    await expectAlone(ragged, "chunk", half, 2.5e-3);
    using quantized = await loadModel(device, tiny4bit, { activationDtype: "f32" });
    await expectAlone(ragged, "chunk", quantized);
  });
});

describe("generateBatch", () => {
  it("gives each prompt the text that it has alone, whenever the others end", async () => {
    const batch = prompts.map(({ ids }) => ids);
    const each = [
      { maxTokens: 20 },
      { maxTokens: 6 },
      { maxTokens: 13, stopTokens: [prompts[2]?.greedy[9] as number] },
    ];
    const out = await texts(batch, { stopTokens: [], each });
    const expected = prompts.map(({ greedy }, at) => greedy.slice(0, each[at]?.maxTokens));
    expected[2] = (expected[2] as number[]).slice(0, expected[2]?.indexOf(prompts[2]?.greedy[9] as number));
    expect(out).toEqual(expected);
  });

  it("greedy tokens with 4-bit weights are those of each alone", async () => {
    using quantized = await loadModel(device, tiny4bit, { activationDtype: "f32" });
    const out = await texts(
      prompts.map(({ ids }) => ids),
      { stopTokens: [], maxTokens: 16 },
      quantized,
    );
    expect(out).toEqual(prompts.map(({ fourBit }) => fourBit.greedy.slice(0, 16)));
  });

  it("draws for each sequence the tokens that it draws alone", async () => {
    const batch = prompts.map(({ ids }) => ids);
    const sampling = { temperature: 0.9, topP: 0.95, topK: 50 };
    const each = [{ seed: 5, maxTokens: 4 }, {}, { seed: 9, temperature: 0 }];
    const out = await texts(batch, { ...sampling, seed: 40, stopTokens: [], maxTokens: 12, each });
    for (const [at, ids] of batch.entries()) {
      const single: number[] = [];
      const own = { ...sampling, seed: 40 + at, stopTokens: [], maxTokens: 12, ...each[at] };
      for await (const id of generate(model, ids, own)) single.push(id);
      expect(out[at], `sequence ${at}`).toEqual(single);
    }
    const unsaid = { temperature: undefined, topK: undefined, topP: undefined, seed: undefined, maxTokens: undefined };
    const all = { ...sampling, seed: 40, stopTokens: [], maxTokens: 6 };
    expect(await texts(batch, { ...all, each: batch.map(() => unsaid) as never })).toEqual(await texts(batch, all));
  });

  it("ends sequences where the context of a state ends, and leaves each as generate does", async () => {
    const batch = prompts.map(({ ids }) => ids);
    const capacity = Math.max(...batch.map((ids) => ids.length)) + 3;
    using state = model.newState({ capacity, sequences: 3 });
    const out = await texts(batch, { state, stopTokens: [], maxTokens: 8 });
    for (const [at, ids] of batch.entries()) {
      using single = model.newState({ capacity });
      const own: number[] = [];
      for await (const id of generate(model, ids, { state: single, stopTokens: [], maxTokens: 8 })) own.push(id);
      expect(out[at]).toEqual(own);
      expect(state.lengths[at]).toBe(single.tokens);
    }
  });

  it("reports timings, and leaves no buffers behind", async () => {
    using other = Device.open("cpu");
    const own = await loadModel(other, tiny);
    const before = await liveBuffers(other);
    const timings = {};
    const batch = prompts.map(({ ids }) => ids);
    await texts(batch, { maxTokens: 3, stopTokens: [], timings }, own);
    expect(timings).toMatchObject({ promptTokens: batch.flat().length, generatedTokens: 9 });
    expect(await liveBuffers(other)).toBe(before);
    own.dispose();
  });
});

describe("a state of several sequences", () => {
  it("moves sequences between states, to the bit", async () => {
    using several = model.newState({ capacity: 100, sequences: 2 });
    await prefillBatch(model, several, [long.slice(0, 33), long.slice(40, 70)]);
    const saved = await several.save(1);
    using single = model.newState({ capacity: 64 });
    single.restore(saved);
    expect(stateBits(await single.save())).toEqual(stateBits(saved));
    several.restore(saved, 0);
    expect(stateBits(await several.save(0))).toEqual(stateBits(saved));
    expect(several.lengths).toEqual([30, 30]);
    several.reset(0);
    expect(several.lengths).toEqual([0, 30]);
    expect(stateBits(await several.save(1))).toEqual(stateBits(saved));
    await prefillBatch(model, several, [long.slice(0, 9), []], { path: "recurrent" });
    expect(stateBits(await several.save(0))).toEqual((await alone(long.slice(0, 9), "recurrent")).state);
  });

  it("adds no dispatches to the steps of a single sequence", () => {
    using one = model.newState({ capacity: 8 });
    using three = model.newState({ capacity: 8, sequences: 3 });
    using single = new Decoder(model, one);
    using several = new Decoder(model, three);
    expect(single.dispatches).toBe(46);
    // With one row columns are views; with several one dispatch copies those of each layer.
    expect(several.dispatches).toBe(46 + 3);
  });

  it("refuses wrong arguments, with exact texts", async () => {
    using state = model.newState({ capacity: 8, sequences: 2 });
    const refused = (promise: Promise<unknown>, message: string) => expect(promise).rejects.toThrow(message);
    await refused(prefill(model, state, [1]), "prefill: `state` must hold one sequence, got 2 — use prefillBatch");
    await refused(
      prefillBatch(model, state, [[1]]),
      "prefillBatch: `prompts` must have one entry for each of the state's 2 sequences, got 1",
    );
    await refused(prefillBatch(model, state, [[], []]), "prefillBatch: `prompts` must have at least one token, got");
    await refused(
      prefillBatch(model, state, [[1], [4096]]),
      "prefillBatch: `prompts[1]` must be integers from 0 to 4095, got 4096 at position 0",
    );
    await refused(
      prefillBatch(model, state, [[1], Array(9).fill(1)]),
      "prefillBatch: `prompts` must fit the context of 8 tokens, got 0 tokens before and 9 more in sequence 1",
    );
    await refused(
      prefillBatch(model, state, [[1], [2]], { positions: [[0]] }),
      "prefillBatch: `positions` must have one list for each of the 2 prompts, got",
    );
    await refused(
      prefillBatch(model, state, [[1], [2]], { positions: [[0], [1]] }),
      "prefillBatch: `positions[1]` must be integers from 0 to 0, got 1",
    );
    using decoder = new Decoder(model, state);
    await refused(decoder.next(1), "decoder.next: `state` must hold one sequence, got 2 — use nextBatch");
    await refused(
      decoder.nextBatch([1]),
      "decoder.nextBatch: `ids` must have one entry for each of the state's 2 sequences, got 1",
    );
    await refused(
      decoder.nextBatch([undefined, undefined]),
      "decoder.nextBatch: `ids` must have at least one token, got []",
    );
    expect(() => new Decoder(model, state, [{}])).toThrow(
      "Decoder: `sampling` must have one entry for each of 2 sequences, got 1",
    );
    const first = (options: GenerateBatchOptions, batch = [[1], [2]]) => generateBatch(model, batch, options).next();
    await refused(first({ each: [{}] }), "generateBatch: `each` must have one entry for each of the 2 prompts, got 1");
    await refused(first({}, [[1], []]), "generateBatch: `prompts[1]` must have at least one token, got []");
    await refused(first({ each: [{}, null as never] }), "generateBatch: `each[1]` must be an object, got null");
    await refused(
      first({ seed: "5" as never }),
      "generateBatch: `seed` must be an integer from 0 to 4294967295, got 5",
    );
    await refused(first({ maxTokens: 0 }), "generateBatch: `maxTokens` must be an integer ≥ 1, got 0");
    await refused(
      generate(model, [1], { state }).next(),
      "generate: `state` must hold one sequence, got 2 — use generateBatch",
    );
    expect(() => model.newState({ sequences: 0 })).toThrow("model.newState: `sequences` must be an integer ≥ 1, got 0");
    expect(() => model.newState({ capacity: 1.5 })).toThrow(
      "model.newState: `capacity` must be an integer ≥ 1, got 1.5",
    );
    await refused(state.save(2), "state.save: `sequence` must be an integer from 0 to 1, got 2");
    expect(() => state.reset(-1)).toThrow("state.reset: `sequence` must be an integer from 0 to 1, got -1");
    expect(state.lengths).toEqual([0, 0]);
  });
});
