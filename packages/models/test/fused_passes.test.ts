// Passes of every tiny model are the same, to the bit, with optimized recordings and with MLXTS_FUSE=0: prompts, decode steps,
// batches, guesses and what is taken back.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { DEVICES } from "@mlxts/test-kit/devices";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, afterEach, describe, expect, it } from "vitest";
import { Decoder, type LanguageModel, loadModel, prefill, prefillBatch } from "../src/index.ts";
import { bits, stateBits } from "./fixtures.ts";

const CHECKPOINTS = [
  "tiny-qwen3.5",
  "tiny-qwen3.5-4bit",
  "tiny-qwen3-next",
  "tiny-qwen3.5-moe",
  "tiny-deepseek-v3",
  "tiny-deepseek-v2",
] as const;

const folderOf = (name: string) =>
  existsSync(join(fixture(name), "model.safetensors")) ? fixture(name) : unpackedCheckpoint(name);

afterEach(() => {
  delete process.env.MLXTS_FUSE;
});

const idsOf = (model: LanguageModel, length: number) =>
  Array.from({ length }, (_, i) => (i * 7919 + 3) % model.vocabSize);

/** What each kind of pass computes. */
const PASSES: Record<string, (model: LanguageModel) => Promise<unknown>> = {
  "a prompt in blocks, and decode steps": async (model) => {
    using state = model.newState({ capacity: 40 });
    const logits = await prefill(model, state, idsOf(model, 11), { blockLength: 8, positions: [0, 7, 10] });
    using decoder = new Decoder(model, state);
    const tokens = [1];
    for (let i = 0; i < 4; i++) tokens.push(await decoder.next(tokens.at(-1) as number));
    return [logits.map(bits), tokens, stateBits(await state.save())];
  },
  "a batch, of which not all take part in each step": async (model) => {
    using state = model.newState({ capacity: 40, sequences: 3 });
    const ids = idsOf(model, 20);
    const logits = await prefillBatch(model, state, [ids.slice(0, 7), ids.slice(7, 9), ids.slice(9, 20)]);
    using decoder = new Decoder(model, state, { temperature: 0.8, seed: 5 });
    const tokens = [
      await decoder.nextBatch([1, 2, 3]),
      await decoder.nextBatch([4, undefined, 5]),
      await decoder.nextBatch([6, 7, 8]),
    ];
    const saved = [await state.save(0), await state.save(1), await state.save(2)];
    return [logits.map((each) => each.map(bits)), tokens, saved.map(stateBits)];
  },
  "guesses, and tokens that are taken back": async (model) => {
    using state = model.newState({ capacity: 60, rollback: 6 });
    await prefill(model, state, idsOf(model, 12), { positions: [] });
    using decoder = new Decoder(model, state);
    const tokens = [];
    for (const length of [3, 0, 2]) tokens.push(await decoder.speculate(1, idsOf(model, length)));
    await prefill(model, state, idsOf(model, 6), { positions: [] });
    await state.rollback(4);
    return [tokens, stateBits(await state.save())];
  },
};

describe.each(DEVICES)("on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());

  describe.each(CHECKPOINTS)("%s", (name) => {
    it.each(Object.entries(PASSES))("%s", async (_, run) => {
      using model = await loadModel(device, folderOf(name));
      const outcomes = [];
      for (const fuse of ["0", "1"]) {
        process.env.MLXTS_FUSE = fuse;
        outcomes.push(await run(model));
      }
      expect(outcomes[1]).toEqual(outcomes[0]);
    });
  });
});

describe("a decode step takes at least a quarter fewer dispatches", () => {
  it.each(CHECKPOINTS)("%s", async (name) => {
    using device = Device.open("cpu");
    using model = await loadModel(device, folderOf(name));
    const dispatches = ["0", "1"].map((fuse) => {
      process.env.MLXTS_FUSE = fuse;
      using state = model.newState({ capacity: 8 });
      using decoder = new Decoder(model, state);
      return decoder.dispatches;
    }) as [number, number];
    expect(dispatches[1]).toBeLessThanOrEqual(0.75 * dispatches[0]);
  });
});
