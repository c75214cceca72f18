// What a state holds after calls that were canceled.
import { getEventListeners } from "node:events";
import { describe, expect, it } from "vitest";
import { Decoder, generate, generateBatch, PrefixCache, prefill, prefillBatch } from "../src/index.ts";
import { prompts, stateBits, tinyOnCpu } from "./fixtures.ts";

const { model } = await tinyOnCpu();

const { ids } = prompts[0] as (typeof prompts)[number];

describe("a signal", () => {
  const aborted = AbortSignal.abort(new Error("too late"));

  it("that is aborted before a call: the call is refused, nothing changes", async () => {
    using state = model.newState({ capacity: 64, rollback: 4 });
    using decoder = new Decoder(model, state);
    await prefill(model, state, ids.slice(0, 8));
    const before = stateBits(await state.save());
    const options = { signal: aborted };
    const calls: [string, () => Promise<unknown>][] = [
      ["prefill", () => prefill(model, state, [1], options)],
      ["prefillBatch", () => prefillBatch(model, state, [[1]], options)],
      ["generate", () => generate(model, [1], { state, ...options }).next()],
      ["generateBatch", () => generateBatch(model, [[1]], { state, ...options }).next()],
      ["next", () => decoder.next(1, options)],
      ["nextMany", () => decoder.nextMany(1, 2, options)],
      ["nextBatch", () => decoder.nextBatch([1], options)],
      ["speculate", () => decoder.speculate(1, [2], options)],
      ["save", () => state.save(0, options)],
      ["rollback", () => state.rollback(1, options)],
    ];
    for (const [name, call] of calls) await expect(call(), name).rejects.toBe(aborted.reason);
    expect(stateBits(await state.save())).toEqual(before);
  });

  it("that is aborted between blocks of a prompt: the state and the cache hold the passes that ran", async () => {
    const long = prompts.flatMap((prompt) => [...prompt.ids, ...prompt.greedy]);
    const cache = new PrefixCache(model, { every: 64 });
    for (const cached of [false, true]) {
      const controller = new AbortController();
      using state = model.newState({ capacity: 200 });
      const running = prefill(model, state, long.slice(0, 192), {
        blockLength: 64,
        signal: controller.signal,
        ...(cached && { cache }),
      });
      controller.abort();
      await expect(running).rejects.toBe(controller.signal.reason);
      expect(controller.signal.reason).toMatchObject({ name: "AbortError" });
      expect(state.tokens).toBe(64);
      await prefill(model, state, long.slice(64, 192), { blockLength: 64, positions: [] });
      using whole = model.newState({ capacity: 200 });
      await prefill(model, whole, long.slice(0, 192), { blockLength: 64, positions: [] });
      expect(stateBits(await state.save())).toEqual(stateBits(await whole.save()));
    }
    expect(cache.match(long)).toBe(64);
  });

  it("that is aborted in the last pass: the pass runs, the call rejects", async () => {
    using state = model.newState({ capacity: 64, rollback: 2 });
    using decoder = new Decoder(model, state);
    const canceled = async (call: (signal: AbortSignal) => Promise<unknown>) => {
      const controller = new AbortController();
      const running = call(controller.signal);
      controller.abort("stop");
      await expect(running).rejects.toBe("stop");
      expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
    };
    await canceled((signal) => prefill(model, state, ids.slice(0, 6), { signal }));
    expect(state.tokens).toBe(6);
    await canceled((signal) => decoder.next(1, { signal }));
    expect(state.tokens).toBe(7);
    await canceled((signal) => state.rollback(1, { signal }));
    expect(state.tokens).toBe(6);
    await canceled((signal) => decoder.nextBatch([1], { signal }));
    await canceled((signal) => state.save(0, { signal }));
    expect(state.tokens).toBe(7);
    await canceled((signal) => decoder.speculate(2, [4095, 4095], { signal }));
    expect(state.tokens).toBe(8);
    using plain = model.newState({ capacity: 64 });
    await prefill(model, plain, ids.slice(0, 6));
    using single = new Decoder(model, plain);
    await single.next(1);
    await prefill(model, state, [9]);
    await prefill(model, plain, [2, 9]);
    expect(state.tokens).toBe(plain.tokens);
  });
});
