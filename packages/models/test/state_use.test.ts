import { Device, MlxtsError } from "@mlxts/core";
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
} from "../src/index.ts";
import { bits, liveBuffers, prompts, stateBits, tiny, tinyOnCpu } from "./fixtures.ts";

const { model } = await tinyOnCpu();

const long = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]);
const part = (begin: number, size: number) => long.slice(begin, begin + size);
const saved = async (state: ModelState, at = 0) => stateBits(await state.save(at));

describe("rollback of one sequence does not change another one", () => {
  async function two(): Promise<ModelState> {
    const state = model.newState({ capacity: 64, sequences: 2, rollback: 4 });
    await prefillBatch(model, state, [part(0, 12), part(30, 12)], { path: "recurrent" });
    return state;
  }

  it("that was reset", async () => {
    using state = await two();
    state.reset(0);
    await state.rollback([0, 1]);
    using fresh = model.newState({ capacity: 64 });
    expect(await saved(state, 0)).toEqual(await saved(fresh));
    const logits = await prefillBatch(model, state, [part(50, 9), []], { path: "recurrent" });
    const [expected] = await prefill(model, fresh, part(50, 9), { path: "recurrent" });
    expect(bits(logits[0]?.[0] as Float32Array)).toBe(bits(expected as Float32Array));
  });

  it("that was restored after a rollback", async () => {
    using state = await two();
    const other = await state.save(1);
    await state.rollback([2, 1]);
    state.restore(other, 0);
    await state.rollback([0, 2]);
    await state.rollback([0, 1]);
    expect(await saved(state, 0)).toEqual(stateBits(other));
    using plain = model.newState({ capacity: 64, rollback: 4 });
    await prefill(model, plain, part(30, 12), { path: "recurrent" });
    await plain.rollback(4);
    expect(await saved(state, 1)).toEqual(await saved(plain));
  });

  it("that is rolled back by 0 tokens, whatever its log holds", async () => {
    using state = await two();
    const before = await saved(state, 0);
    for (const part of state.tensors)
      if (part.kind === "log") {
        const own = part.tensor.slice(0, 1);
        own.write(Array(own.size).fill(7));
      }
    await state.rollback([0, 3]);
    expect(await saved(state, 0)).toEqual(before);
  });
});

describe("a state in use", () => {
  type Call = readonly [name: string, call: (state: ModelState) => unknown];
  const decoders = new WeakMap<ModelState, Decoder>();
  const decoder = (state: ModelState) => decoders.get(state) as Decoder;
  /** Asynchronous calls that change a state of one sequence. */
  const changing: Call[] = [
    ["prefill", (state) => prefill(model, state, part(9, 40), { blockLength: 8 })],
    ["prefillBatch", (state) => prefillBatch(model, state, [part(3, 5)])],
    ["decoder.next", (state) => decoder(state).next(5)],
    ["decoder.nextBatch", (state) => decoder(state).nextBatch([6])],
    ["decoder.speculate", (state) => decoder(state).speculate(5, [1, 2])],
    ["decoder.profile", (state) => decoder(state).profile(8)],
    ["generate", (state) => generate(model, [1, 2], { state, maxTokens: 3, stopTokens: [] }).next()],
    ["generateBatch", (state) => generateBatch(model, [[1, 2]], { state, maxTokens: 3, stopTokens: [] }).next()],
    ["state.rollback", (state) => state.rollback(1)],
  ];
  const others: Call[] = [
    ...changing,
    ["state.save", (state) => state.save()],
    ["state.restore", (state) => state.restore({ tokens: 0, tensors: {} })],
    ["state.reset", (state) => state.reset()],
  ];

  async function withState(run: (state: ModelState) => Promise<void>): Promise<void> {
    using state = model.newState({ capacity: 256, rollback: 4 });
    using own = new Decoder(model, state);
    decoders.set(state, own);
    await prefill(model, state, part(0, 10), { path: "recurrent" });
    await run(state);
  }

  const refusal = async (call: Call, state: ModelState) => {
    try {
      await call[1](state);
    } catch (error) {
      return error;
    }
    return undefined;
  };

  it.each(changing)("by %s refuses every other call, and the refused calls change nothing", async (user, call) => {
    // A generation uses its state until it ends, beyond the end of `next`.
    await withState((state) =>
      withState(async (plain) => {
        const ends = user.startsWith("generate");
        const running = Promise.resolve(call(state));
        for (const other of others)
          for (const when of ["at once", "later"]) {
            if (when === "later" && !ends) continue;
            if (when === "later") await running;
            const error = await refusal(other, state);
            const what = `${other[0]} ${when}`;
            expect(error, what).toBeInstanceOf(MlxtsError);
            expect(error, what).toMatchObject({
              code: "Busy",
              message: `${other[0]}: the model state is in use by ${user} — await its end first`,
            });
          }
        await running;
        if (ends) return;
        await call(plain);
        expect(await saved(state)).toEqual(await saved(plain));
        for (const [, next] of changing.slice(0, 6)) {
          await next(state);
          await next(plain);
        }
        expect(await saved(state)).toEqual(await saved(plain));
      }),
    );
  });

  it("by save refuses calls that change it; several saves overlap", async () => {
    await withState(async (state) => {
      const before = await saved(state);
      const running = [state.save(), state.save()];
      for (const other of others) {
        if (other[0] === "state.save") continue;
        expect(await refusal(other, state), other[0]).toMatchObject({
          code: "Busy",
          message: `${other[0]}: the model state is in use by state.save — await its end first`,
        });
      }
      expect((await Promise.all(running)).map(stateBits)).toEqual([before, before]);
      state.reset();
    });
  });

  it("is free after calls that were refused or failed, and after generations that ended in any way", async () => {
    await withState(async (state) => {
      await expect(prefill(model, state, [9999])).rejects.toThrow("prefill: `ids` must be");
      await expect(prefill(model, state, Array(300).fill(1))).rejects.toThrow("prefill: `ids` must fit");
      await expect(state.rollback(9)).rejects.toThrow("state.rollback: `tokens` must be");
      await expect(decoder(state).next(-1)).rejects.toThrow("decoder.next: `ids` must be");
      await expect(generate(model, [1], { state, topP: 3 }).next()).rejects.toThrow("sample: `topP` must be");
      const thrower = generate(model, [1, 2], { state, stopTokens: [] });
      await thrower.next();
      await expect(thrower.throw(new Error("mine"))).rejects.toThrow("mine");
      for await (const _ of generateBatch(model, [[1, 2]], { state, stopTokens: [] })) break;
      expect(await state.save()).toMatchObject({ tokens: state.tokens });
    });
  });

  it("can be disposed: calls that have not ended reject with Disposed, and no buffer is left", async () => {
    using own = Device.open("cpu");
    using of = await loadModel(own, tiny);
    const before = await liveBuffers(own);
    for (const [name, start] of [
      ["prefill", (state: ModelState) => prefill(of, state, part(0, 60), { blockLength: 8 })],
      ["prefill of one pass", (state: ModelState) => prefill(of, state, part(0, 6))],
      ["save", (state: ModelState) => state.save()],
      ["generate", (state: ModelState) => generate(of, [1, 2], { state }).next()],
    ] as const) {
      const state = of.newState({ capacity: 64 });
      const running = start(state);
      state.dispose();
      await expect(running, name).rejects.toMatchObject({ code: "Disposed" });
      expect(await liveBuffers(own), name).toBe(before);
    }
    const state = of.newState({ capacity: 64 });
    const decoding = new Decoder(of, state);
    const step = decoding.next(1);
    decoding.dispose();
    await expect(step).rejects.toMatchObject({ code: "Disposed" });
    await expect(decoding.next(1)).rejects.toThrow("the decoder has been disposed");
    state.dispose();
    expect(await liveBuffers(own)).toBe(before);
  });

  it("caches may be shared by calls on different states at the same time", async () => {
    const cache = new PrefixCache(model, { every: 64 });
    const ids = [...long, ...long].slice(0, 300);
    const run = async () => {
      using state = model.newState({ capacity: 320 });
      const [logits] = await prefill(model, state, ids, { cache, blockLength: 64 });
      return { logits: bits(logits as Float32Array), state: await saved(state) };
    };
    const together = await Promise.all([run(), run(), run()]);
    const alone = await run();
    expect(together).toEqual([alone, alone, alone]);
    expect(cache.blocks).toBe(4);
    const { byteLength } = cache;
    cache.clear();
    await run();
    expect(cache.byteLength).toBe(byteLength);
  });

  it("does not hinder calls on other states: they run side by side", async () => {
    const texts = async (ids: readonly number[], options: object) => {
      const out: number[] = [];
      for await (const id of generate(model, ids, { maxTokens: 12, stopTokens: [], ...options })) out.push(id);
      return out;
    };
    const runs: [readonly number[], object][] = [
      [part(0, 30), {}],
      [part(20, 9), { draft: promptLookup({ shortest: 1 }) }],
      [part(40, 21), { temperature: 1, seed: 4 }],
    ];
    const alone: number[][] = [];
    for (const [ids, options] of runs) alone.push(await texts(ids, options));
    expect(await Promise.all(runs.map(([ids, options]) => texts(ids, options)))).toEqual(alone);
  });

  it("has copies of the arguments: the caller may change its own meanwhile", async () => {
    using state = model.newState({ capacity: 80 });
    using plain = model.newState({ capacity: 80 });
    const ids = part(0, 60);
    const positions = [59];
    const running = prefill(model, state, ids, { blockLength: 8, positions });
    ids.fill(1);
    positions[0] = 3;
    const [expected] = await prefill(model, plain, part(0, 60), { blockLength: 8 });
    const got = await running;
    expect(bits(got[0] as Float32Array)).toBe(bits(expected as Float32Array));
    expect(await saved(state)).toEqual(await saved(plain));
    expect(ids).toEqual(Array(60).fill(1));
    class Fickle extends Array<number> {
      override *[Symbol.iterator](): ArrayIterator<number> {
        yield 4096;
      }
    }
    await prefill(model, state, Fickle.from([1, 2, 3]));
    expect(state.tokens).toBe(63);
  });
});

it("a model that has been disposed gives no state", async () => {
  const own = await loadModel(model.device, tiny, { activationDtype: "f32" });
  own.dispose();
  expect(() => own.newState()).toThrow(
    expect.objectContaining({ code: "Disposed", message: "the model has been disposed" }),
  );
});
