import { Device } from "@mlxts/core";
import { describe, expect, it } from "vitest";
import {
  generate,
  loadModel,
  type ModelPath,
  type ModelState,
  PrefixCache,
  prefill,
  prefillBatch,
} from "../src/index.ts";
import { bits, liveBuffers, prompts, stateBits, tiny, tinyOnCpu } from "./fixtures.ts";

const { device, model } = await tinyOnCpu();

const text = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]);
const long = [...text, ...text].slice(0, 330);
const other = [...long.slice(0, 70), ...long.slice(200, 300)];

/** The logits of a prompt, and the bits of the state after it. */
async function run(ids: readonly number[], path: ModelPath, cache?: PrefixCache, of = model) {
  using state = of.newState({ capacity: 400 });
  const [logits] = await prefill(of, state, ids, { path, ...(cache && { cache }), blockLength: 128 });
  return { logits: bits(logits as Float32Array), saved: stateBits(await state.save()) };
}

/** Bytes of a block: states of three layers, inputs of their convolutions, keys and values of one layer, ids. */
const BLOCK = 3 * (4 * 128 * 128 + 3 * 1024) * 4 + 2 * 2 * 64 * 64 * 4 + 64 * 4;

describe("PrefixCache", () => {
  it.each(["auto", "chunk", "recurrent"] as const)(
    "a prompt has the same bits whether its beginning was in the cache or not: %s path",
    async (path) => {
      const cache = new PrefixCache(model, { every: 64 });
      // Prompts that end at the end of a block, right after one, and inside one.
      for (const length of [320, 321, 300, 128, 65, 64, 63]) {
        const ids = long.slice(0, length);
        cache.clear();
        const cold = await run(ids, path, cache);
        expect(cache.match(ids, path)).toBe(Math.floor(length / 64) * 64);
        expect(await run(ids, path, cache), `${length} tokens`).toEqual(cold);
        // The cache has only a part of the beginning.
        cache.clear();
        await run(long.slice(0, 130), path, cache);
        expect(await run(ids, path, cache), `${length} tokens after 128`).toEqual(cold);
      }
    },
  );

  it("and the bits of the run without a cache, when more than a few rows follow", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    for (const length of [320, 300, 128, 100]) {
      const ids = long.slice(0, length);
      expect(await run(ids, "chunk", cache), `${length} tokens`).toEqual(await run(ids, "chunk"));
    }
    expect(cache.blocks).toBe(5);
  });

  it("shares common beginnings of prompts, and keeps paths apart", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    await run(long, "chunk", cache);
    expect([cache.blocks, cache.byteLength]).toEqual([5, 5 * BLOCK]);
    expect(cache.match(other, "chunk")).toBe(64);
    expect(await run(other, "chunk", cache)).toEqual(await run(other, "chunk"));
    expect([cache.blocks, cache.byteLength]).toEqual([6, 6 * BLOCK]);
    expect(cache.match(long, "recurrent")).toBe(0);
    await run(long.slice(0, 64), "recurrent", cache);
    expect(cache.blocks).toBe(7);
    cache.clear();
    expect([cache.blocks, cache.byteLength, cache.match(long, "chunk")]).toEqual([0, 0, 0]);
  });

  it("tells prompts apart whose ids have the same digits", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    const rest = long.slice(0, 62);
    await run([1, 23, ...rest], "chunk", cache);
    expect(cache.match([1, 23, ...rest], "chunk")).toBe(64);
    expect(cache.match([12, 3, ...rest], "chunk")).toBe(0);
  });

  it("stays within maxBytes: drops the block unused for longest, never one that others follow", async () => {
    const cache = new PrefixCache(model, { every: 64, maxBytes: 6 * BLOCK + 100 });
    await run(long, "chunk", cache);
    await run(other, "chunk", cache);
    expect(cache.blocks).toBe(6);
    const third = long.slice(100, 250);
    await run(third, "chunk", cache);
    expect(cache.byteLength).toBe(6 * BLOCK);
    expect([long, other, third].map((ids) => cache.match(ids, "chunk"))).toEqual([192, 128, 128]);
    // Of a prompt that does not fit, the beginning is kept.
    const small = new PrefixCache(model, { every: 64, maxBytes: 2 * BLOCK });
    await run(long, "chunk", small);
    expect([small.match(long, "chunk"), small.byteLength]).toEqual([128, 2 * BLOCK]);
    const none = new PrefixCache(model, { every: 64, maxBytes: 0 });
    await run(long, "chunk", none);
    expect([none.blocks, none.byteLength]).toEqual([0, 0]);
  });

  it("counts what it restores as used", async () => {
    const cache = new PrefixCache(model, { every: 64, maxBytes: 3 * BLOCK + 100 });
    const [first, second, third, fourth] = [0, 65, 130, 195].map((begin) =>
      long.slice(begin, begin + 65),
    ) as number[][];
    for (const ids of [first, second, third]) await run(ids as number[], "chunk", cache);
    await run(first as number[], "chunk", cache);
    await run(fourth as number[], "chunk", cache);
    const held = [first, second, third, fourth].map((ids) => cache.match(ids as number[], "chunk"));
    expect(held).toEqual([64, 0, 64, 64]);
  });

  it("restores for each sequence of a batch the beginning that it shares with others", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    const batch = [long.slice(0, 300), other, long.slice(0, 170)];
    const both = async (cached: boolean) => {
      using state = model.newState({ capacity: 400, sequences: 3 });
      const logits = await prefillBatch(model, state, batch, {
        path: "chunk",
        blockLength: 128,
        ...(cached && { cache }),
      });
      const saved = await Promise.all([0, 1, 2].map((at) => state.save(at)));
      return { logits: logits.flat().map(bits), saved: saved.map(stateBits) };
    };
    const plain = await both(false);
    expect(await both(true)).toEqual(plain);
    expect(cache.blocks).toBe(5);
    expect(await both(true)).toEqual(plain);
    expect(cache.blocks).toBe(5);
  });

  it("holds copies: states may be disposed, filled anew and rolled back", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    const cold = await run(long.slice(0, 200), "chunk", cache);
    using state = model.newState({ capacity: 400, rollback: 4 });
    await prefill(model, state, long.slice(0, 200), { path: "chunk", cache, blockLength: 128 });
    await state.rollback(4);
    await prefill(model, state, [1, 2, 3], { path: "chunk" });
    state.reset();
    expect(await run(long.slice(0, 200), "chunk", cache)).toEqual(cold);
  });

  it("leaves the last token of a prompt to be computed where it may be rolled back", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    const ids = long.slice(0, 128);
    await run(ids, "chunk", cache);
    expect(cache.match(ids, "chunk")).toBe(128);
    const afterRollback = async (cached: boolean) => {
      using state = model.newState({ capacity: 400, rollback: 4 });
      const options = { path: "chunk", positions: [], blockLength: 128, ...(cached && { cache }) } as const;
      await prefill(model, state, ids, options);
      await state.rollback(1);
      return [state.tokens, stateBits(await state.save())];
    };
    expect(await afterRollback(true)).toEqual(await afterRollback(false));
  });

  it("speeds up generate without changing it", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    const generated = async (state?: ModelState) => {
      const out: number[] = [];
      const timings: { cachedTokens?: number } = {};
      const options = { cache, timings, maxTokens: 5, stopTokens: [], ...(state && { state }) };
      for await (const id of generate(model, long, { ...options })) out.push(id);
      return { out, cached: timings.cachedTokens };
    };
    const cold = await generated();
    expect(cold.cached).toBe(0);
    expect(await generated()).toEqual({ out: cold.out, cached: 320 });
    using state = model.newState({ capacity: 400, rollback: 2 });
    expect(await generated(state)).toEqual({ out: cold.out, cached: 320 });
  });

  it("computes tokens again whose logits are wanted", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    await run(long, "chunk", cache);
    const ids = long.slice(0, 300);
    const wanted = { path: "chunk", blockLength: 128, positions: [130, 5, 299] } as const;
    using state = model.newState({ capacity: 400 });
    const rows = await prefill(model, state, ids, { ...wanted, cache });
    using fresh = model.newState({ capacity: 400 });
    const again = await prefill(model, fresh, ids, wanted);
    expect(rows.map(bits)).toEqual(again.map(bits));
  });

  it("leaves no buffers behind", async () => {
    using own = Device.open("cpu");
    using loaded = await loadModel(own, tiny);
    const before = await liveBuffers(own);
    const cache = new PrefixCache(loaded, { every: 64 });
    for (let i = 0; i < 2; i++) await run(long, "auto", cache, loaded);
    expect(cache.blocks).toBe(5);
    expect(await liveBuffers(own)).toBe(before);
  });

  it("refuses wrong arguments with exact texts, before anything is changed", async () => {
    expect(() => new PrefixCache(model, { every: 65 })).toThrow(
      "PrefixCache: `every` must be a multiple of 64 tokens, got 65",
    );
    expect(() => new PrefixCache(model, { every: 0 })).toThrow("PrefixCache: `every` must be an integer ≥ 1, got 0");
    expect(() => new PrefixCache(model, { maxBytes: -1 })).toThrow(
      "PrefixCache: `maxBytes` must be an integer ≥ 0, got -1",
    );
    const cache = new PrefixCache(model, { every: 64 });
    await run(long, "auto", cache);
    using state = model.newState({ capacity: 400 });
    const refused = (message: string, options = {}, of = model) =>
      expect(prefill(of, state, long, { cache, ...options })).rejects.toThrow(message);
    await refused("prefill: `blockLength` must be a multiple of the cache's 64 tokens, got 100", { blockLength: 100 });
    await refused("prefill: `positions` must be integers from 0 to 329, got 330", { positions: [330] });
    using half = await loadModel(device, tiny, { activationDtype: "bf16" });
    await refused("prefill: `cache` must belong to the model, got the cache of another model", {}, half);
    expect(state.tokens).toBe(0);
    await prefill(model, state, [1]);
    await refused("prefill: `state` must be empty when there is a `cache`, got 1 tokens");
    expect(state.tokens).toBe(1);
  });
});
