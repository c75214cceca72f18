import { Device, MlxtsError } from "@mlxts/core";
import { embedding } from "@mlxts/nn";
import { describe, expect, it, vi } from "vitest";
import {
  Decoder,
  generate,
  generateBatch,
  type LanguageModel,
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

describe("rollback of one sequence leaves the others alone:", () => {
  async function two(): Promise<ModelState> {
    const state = model.newState({ capacity: 64, sequences: 2, rollback: 4 });
    await prefillBatch(model, state, [part(0, 12), part(30, 12)], { path: "recurrent" });
    return state;
  }

  it("one that was reset", async () => {
    using state = await two();
    state.reset(0);
    await state.rollback([0, 1]);
    using fresh = model.newState({ capacity: 64 });
    expect(await saved(state, 0)).toEqual(await saved(fresh));
    const logits = await prefillBatch(model, state, [part(50, 9), []], { path: "recurrent" });
    const [expected] = await prefill(model, fresh, part(50, 9), { path: "recurrent" });
    expect(bits(logits[0]?.[0] as Float32Array)).toBe(bits(expected as Float32Array));
  });

  it("one that was restored, after a part of it had been taken back", async () => {
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

  it("and one that has nothing to take back keeps its bytes, whatever its log says", async () => {
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
  /** Calls that change a state of one sequence, and wait. */
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

  it.each(changing)("by %s refuses every other call, and is as if they had not been", async (user, call) => {
    // A generation uses its state until it ends.
    const text = user === "generate" ? "" : undefined;
    await withState((state) =>
      withState(async (plain) => {
        const ends = user.startsWith("generate");
        const running = Promise.resolve(call(state));
        for (const other of others)
          for (const when of ["at once", "later"]) {
            if (when === "later" && !ends) continue;
            if (when === "later") await running;
            const error = await refusal(other, state);
            const what = `${other[0]} ${when}${text ?? ""}`;
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

  it("by save refuses what changes it; several saves overlap", async () => {
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

  it("can be disposed: what had not ended rejects with Disposed, and nothing is left", async () => {
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

  it("is no business of calls on other states: they run side by side", async () => {
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

  it("does not see what a caller does to its arguments meanwhile", async () => {
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

describe("a device that fails in a pass", () => {
  it("leaves sequences undefined: refused until they are reset or restored", async () => {
    using state = model.newState({ capacity: 32, sequences: 2, rollback: 2 });
    await prefillBatch(model, state, [part(0, 5), part(9, 5)]);
    const good = await state.save(1);
    const failing = vi.spyOn(state.device.encoder().constructor.prototype, "commit").mockImplementation(() => ({
      // biome-ignore lint/suspicious/noThenProperty: it stands for a submission
      then: (_: unknown, failed: (error: Error) => void) => failed(new Error("the device was lost")),
    }));
    await expect(prefillBatch(model, state, [[1], [2]])).rejects.toThrow("the device was lost");
    failing.mockRestore();
    expect(state.lengths).toEqual([5, 5]);
    const text = (op: string, at: number) =>
      `${op}: sequence ${at} of the state is undefined since work on it failed — reset or restore it first`;
    await expect(state.save(1)).rejects.toThrow(text("state.save", 1));
    await expect(prefillBatch(model, state, [[], [2]])).rejects.toMatchObject({
      code: "CommandBuffer",
      message: text("prefillBatch", 1),
      cause: new Error("the device was lost"),
    });
    await expect(state.rollback([0, 1])).rejects.toThrow("must be an integer from 0 to 0");
    state.restore(good, 1);
    expect(await saved(state, 1)).toEqual(stateBits(good));
    await expect(state.save(0)).rejects.toThrow(text("state.save", 0));
    state.reset(0);
    await prefillBatch(model, state, [[1], [2]]);
    expect(state.lengths).toEqual([1, 6]);
  });
});

describe("a kernel that finds a fault in a pass", () => {
  it("leaves sequences undefined, and nothing of it after they are reset or restored", async () => {
    using own = Device.open("cpu");
    using of = await loadModel(own, tiny);
    using state = of.newState({ capacity: 32, sequences: 2, rollback: 2 });
    await prefillBatch(of, state, [part(0, 5), part(9, 5)]);
    const good = await state.save(1);
    const bad = own.tensor("u32", [1], [99]);
    const weight = own.tensor("f32", [4, 8]);
    const { encodeLogits } = Object.getPrototypeOf(of) as LanguageModel;
    vi.spyOn(of, "encodeLogits").mockImplementationOnce((encoder, hidden, rows) => {
      embedding(encoder, { ids: bad, weight }, {});
      return encodeLogits.call(of, encoder, hidden, rows);
    });
    await expect(prefillBatch(of, state, [[1, 2], [2]])).rejects.toThrow("embedding: `ids` must");
    expect(state.lengths).toEqual([5, 5]);
    await expect(state.save(0)).rejects.toMatchObject({ code: "CommandBuffer" });
    await expect(generateBatch(of, [[1], [2]], { state }).next()).rejects.toMatchObject({ code: "CommandBuffer" });
    state.reset(0);
    state.restore(good, 1);
    expect(await saved(state, 1)).toEqual(stateBits(good));
    await prefillBatch(of, state, [part(3, 7), part(40, 9)], { path: "recurrent" });
    await state.rollback([1, 2]);
    using fresh = of.newState({ capacity: 32, sequences: 2, rollback: 2 });
    fresh.restore(good, 1);
    await prefillBatch(of, fresh, [part(3, 7), part(40, 9)], { path: "recurrent" });
    await fresh.rollback([1, 2]);
    for (const at of [0, 1]) expect(await saved(state, at)).toEqual(await saved(fresh, at));
    bad.dispose();
    weight.dispose();
  });

  it("ends a generation with that error; its own state is let go", async () => {
    using own = Device.open("cpu");
    using of = await loadModel(own, tiny);
    using state = of.newState({ capacity: 32 });
    const bad = own.tensor("u32", [1], [99]);
    const weight = own.tensor("f32", [4, 8]);
    const before = await liveBuffers(own);
    const { encodeLogits } = Object.getPrototypeOf(of) as LanguageModel;
    for (const given of [{ state }, {}]) {
      const ending = {};
      const spy = vi.spyOn(of, "encodeLogits").mockImplementation((encoder, hidden, rows) => {
        embedding(encoder, { ids: bad, weight }, {});
        return encodeLogits.call(of, encoder, hidden, rows);
      });
      await expect(generate(of, [1, 2], { ...given, ending }).next()).rejects.toThrow("embedding: `ids` must");
      spy.mockRestore();
      expect(ending).toEqual({ finishReason: "error" });
      expect(await liveBuffers(own)).toBe(before);
    }
    await expect(generate(of, [1], { state }).next()).rejects.toMatchObject({ code: "CommandBuffer" });
    state.reset();
    expect((await generate(of, [1], { state }).next()).done).toBe(false);
  });
});

describe("when there is no more memory", () => {
  it("nothing that was made is left, wherever it ends", async () => {
    using own = Device.open("cpu");
    using of = await loadModel(own, tiny);
    const runs: [string, () => unknown][] = [
      ["loadModel", async () => (await loadModel(own, tiny)).dispose()],
      ["newState", () => of.newState({ capacity: 16, rollback: 3 }).dispose()],
      [
        "Decoder",
        async () => {
          using state = of.newState({ capacity: 16, rollback: 3 });
          using decoder = new Decoder(of, state);
          await decoder.speculate(1, [2, 3, 4]);
        },
      ],
      [
        "rollback",
        async () => {
          using state = of.newState({ capacity: 16, sequences: 2, rollback: 3 });
          await prefillBatch(of, state, [part(0, 9), part(0, 4)]);
          await state.rollback([1, 1]);
        },
      ],
      [
        "a prompt with a cache",
        async () => {
          using state = of.newState({ capacity: 256 });
          await prefill(of, state, part(0, 130), { cache: new PrefixCache(of, { every: 64 }) });
        },
      ],
      [
        "generate",
        async () => {
          for await (const _ of generate(of, part(0, 5), { maxTokens: 2, draft: promptLookup() }));
        },
      ],
    ];
    for (const [name, run] of runs) {
      let failures = 0;
      for (let allowed = 0; ; allowed++) {
        const before = await liveBuffers(own);
        const real = Device.prototype.buffer;
        let left = allowed;
        const spy = vi.spyOn(Device.prototype, "buffer").mockImplementation(function (this: Device, bytes) {
          if (left-- > 0) return real.call(this, bytes);
          throw new MlxtsError("BufferAllocation", "no more memory");
        });
        let error: unknown;
        try {
          await run();
        } catch (caught) {
          error = caught;
        }
        spy.mockRestore();
        if (error === undefined) break;
        expect(error, name).toMatchObject({ code: "BufferAllocation" });
        expect(await liveBuffers(own), `${name} after ${allowed} allocations`).toBe(before);
        failures++;
      }
      expect(failures, name).toBeGreaterThan(3);
    }
  });
});
