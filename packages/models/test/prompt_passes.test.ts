// Passes of a prompt that are alike are recorded once: what they compute is, to the bit, what passes compute that are
// recorded one by one.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { compare, within } from "@mlxts/core/testing";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, beforeEach, describe, expect, it, vi } from "vitest";
import { feed } from "../src/feed.ts";
import { type LanguageModel, loadModel, PrefixCache, prefill, prefillBatch } from "../src/index.ts";
import { PassTokens } from "../src/tokens.ts";
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

  describe("of many sequences have few tokens of all of them together", () => {
    const prompts = [19, 0, 11, 24, 3, 17].map(idsOf);
    /** Prefills a state of all prompts; `passes` are the tokens of each pass. */
    interface Settings {
      of?: LanguageModel;
      passTokens?: number;
      rollback?: number;
      cache?: PrefixCache;
    }
    const run = async ({ of = model, passTokens, rollback = 0, cache }: Settings) => {
      const write = vi.spyOn(PassTokens.prototype, "write");
      const state = model.newState({ capacity: CAPACITY, sequences: prompts.length, rollback });
      const positions = prompts.map(({ length }) => (length > 0 ? [length - 1] : []));
      using _ = state.begin("test");
      const blockLength = cache?.every ?? BLOCK;
      const options = { blockLength, positions, cache, ...(passTokens && { passTokens }) };
      const { logits } = await feed("test", of, state, prompts, options, "prompts");
      const passes = (write.mock.contexts as PassTokens[]).map(({ counts }) => counts.reduce((a, b) => a + b, 0));
      write.mockRestore();
      return { state, passes, logits: logits.flat() };
    };
    const expectClose = (actual: readonly Float32Array[], expected: readonly Float32Array[]) => {
      expect(actual.length).toBe(expected.length);
      for (const [at, each] of actual.entries())
        expect(within(compare(each, expected[at] as Float32Array), 0.1, 12)).toBe(true);
    };

    it.each([8, 20, 30])("%i, and compute what they compute otherwise", async (passTokens) => {
      const whole = await run({});
      const { state, passes, logits } = await run({ passTokens });
      expect(Math.max(...whole.passes)).toBeGreaterThan(30);
      expect(Math.max(...passes)).toBeLessThanOrEqual(passTokens);
      expect(state.lengths).toEqual(prompts.map(({ length }) => length));
      expectClose(logits, whole.logits);
      // Products of other sizes round differently: what the states hold shows in later logits.
      const next = prompts.map((ids) => ids.slice(0, 1));
      const later = await prefillBatch(model, whole.state, next);
      expectClose((await prefillBatch(model, state, next)).flat(), later.flat());
      whole.state.dispose();
      state.dispose();
    });

    it("and the last ones can be rolled back in all sequences", async () => {
      const { state, passes, logits } = await run({ passTokens: 12, rollback: 2 });
      expect(Math.max(...passes)).toBeLessThanOrEqual(12);
      await state.rollback(prompts.map(({ length }) => Math.min(length, 1)));
      const again = prompts.map((ids) => ids.slice(-1));
      expectClose((await prefillBatch(model, state, again)).flat(), logits);
      state.dispose();
    });

    it("and a cache gets the states of all of them", async () => {
      const { snapshotUnit: every } = model;
      const cache = new PrefixCache(model, { every });
      const first = await run({ passTokens: every, cache });
      const second = await run({ cache });
      expect(Math.max(...first.passes)).toBeLessThanOrEqual(every);
      expectClose(second.logits, first.logits);
      first.state.dispose();
      second.state.dispose();
    });

    it("and one of a vocabulary that is long has as many as logits can be counted", async () => {
      const { passes } = await run({ of: Object.create(model, { vocabSize: { value: 2 ** 28 } }) });
      expect(Math.max(...passes)).toBe(7);
    });
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
