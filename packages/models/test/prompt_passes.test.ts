// Passes of a prompt that are alike are recorded once: what they compute is, to the bit, what passes compute that are
// recorded one by one.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { type LanguageModel, loadModel, PrefixCache, prefill, prefillBatch } from "../src/index.ts";
import { bits, stateBits } from "./fixtures.ts";

const CHECKPOINTS = ["tiny-qwen3.5-4bit", "tiny-qwen3-next", "tiny-deepseek-v3"] as const;
const BLOCK = 8;
const CAPACITY = 80;

const folderOf = (name: string) =>
  existsSync(join(fixture(name), "model.safetensors")) ? fixture(name) : unpackedCheckpoint(name);

const device = Device.open("cpu");
afterAll(() => device.dispose());

/** Tokens of a prompt, block by block. */
const blocksOf = (ids: readonly number[]) =>
  Array.from({ length: Math.ceil(ids.length / BLOCK) }, (_, i) => ids.slice(i * BLOCK, (i + 1) * BLOCK));

describe.each(CHECKPOINTS)("%s: passes of a prompt", async (name) => {
  const model: LanguageModel = await loadModel(device, folderOf(name));
  afterAll(() => model.dispose());
  const idsOf = (length: number) => Array.from({ length }, (_, i) => (i * 7919 + 3) % model.vocabSize);
  beforeEach(() => device.resetCounters());

  it.each([
    ["none", 5 * BLOCK, []],
    ["the last one", 5 * BLOCK + 3, [5 * BLOCK + 2]],
    ["all of them", 4 * BLOCK, [...Array(4 * BLOCK).keys()]],
    ["one of a block in the middle", 5 * BLOCK, [2 * BLOCK + 1]],
  ] as const)("have the bits of passes one by one, with logits of %s", async (_, length, positions) => {
    const ids = idsOf(length);
    using state = model.newState({ capacity: CAPACITY });
    const logits = await prefill(model, state, ids, { blockLength: BLOCK, positions });
    using single = model.newState({ capacity: CAPACITY });
    const expected: Float32Array[] = [];
    for (const [i, block] of blocksOf(ids).entries()) {
      const own = positions.map((at) => at - i * BLOCK).filter((at) => at >= 0 && at < block.length);
      expected.push(...(await prefill(model, single, block, { positions: own })));
    }
    expect(logits.map(bits)).toEqual(expected.map(bits));
    expect(stateBits(await state.save())).toEqual(stateBits(await single.save()));
  });

  it("have the bits of passes one by one, in a batch of prompts of several lengths", async () => {
    const prompts = [idsOf(19), idsOf(11).reverse()];
    using state = model.newState({ capacity: CAPACITY, sequences: 2 });
    const logits = await prefillBatch(model, state, prompts, { blockLength: 4 });
    using single = model.newState({ capacity: CAPACITY, sequences: 2 });
    let last: Float32Array[][] = [];
    for (const [first, second] of [
      [[0, 4], []],
      [[4, 8], []],
      [
        [8, 12],
        [0, 4],
      ],
      [
        [12, 16],
        [4, 8],
      ],
      [
        [16, 19],
        [8, 11],
      ],
    ] as const)
      last = await prefillBatch(model, single, [
        prompts[0]?.slice(...first) ?? [],
        second.length > 0 ? (prompts[1] ?? []).slice(...second) : [],
      ]);
    expect(logits.map((each) => each.map(bits))).toEqual(last.map((each) => each.map(bits)));
    for (const at of [0, 1]) expect(stateBits(await state.save(at))).toEqual(stateBits(await single.save(at)));
  });

  it("are recorded once for all that are alike", async () => {
    const recorded = async (length: number, options = {}) => {
      using state = model.newState({ capacity: 640 });
      device.resetCounters();
      await prefill(model, state, idsOf(length), { blockLength: BLOCK, ...options });
      return device.counters.dispatches;
    };
    const two = await recorded(2 * BLOCK);
    expect(two).toBeGreaterThan(await recorded(BLOCK));
    for (const blocks of [3, 6, 9]) expect(await recorded(blocks * BLOCK)).toBe(two);
    // The states that a cache gets of each of them are their own.
    const { snapshotUnit: every } = model;
    const cached = (blocks: number) =>
      recorded(blocks * every, { blockLength: every, cache: new PrefixCache(model, { every }) });
    expect(await cached(4)).toBe(await cached(2));
  });

  it("leave no memory behind", async () => {
    using state = model.newState({ capacity: CAPACITY });
    await prefill(model, state, idsOf(3 * BLOCK), { blockLength: BLOCK });
    const { liveBuffers, liveBytes } = device.counters;
    state.reset();
    await prefill(model, state, idsOf(5 * BLOCK), { blockLength: BLOCK });
    const controller = new AbortController();
    controller.abort();
    await expect(
      prefill(model, state, idsOf(3 * BLOCK), { blockLength: BLOCK, signal: controller.signal }),
    ).rejects.toThrow();
    expect(device.counters).toMatchObject({ liveBuffers, liveBytes });
  });
});
