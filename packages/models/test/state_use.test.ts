import { join } from "node:path";
import { inspect } from "node:util";
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
  TextStream,
  Tokenizer,
} from "../src/index.ts";
import { bits, liveBuffers, prompts, stateBits, tiny, tinyOnCpu } from "./fixtures.ts";

const { device, model } = await tinyOnCpu();

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
    for (const part of state.parts)
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
    const { bytes } = cache;
    cache.clear();
    await run();
    expect(cache.bytes).toBe(bytes);
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

describe("states of another model", () => {
  it("are refused everywhere", async () => {
    using other = await loadModel(device, tiny, { activations: "f32" });
    using state = other.newState({ capacity: 16 });
    const text = (op: string) =>
      `${op}: \`state\` must belong to the model, got a state of another model — make it with model.newState`;
    expect(() => new Decoder(model, state)).toThrow(text("Decoder"));
    await expect(prefill(model, state, [1])).rejects.toThrow(text("prefill"));
    await expect(prefillBatch(model, state, [[1]])).rejects.toThrow(text("prefillBatch"));
    await expect(generate(model, [1], { state }).next()).rejects.toThrow(text("generate"));
    await expect(generateBatch(model, [[1]], { state }).next()).rejects.toThrow(text("generateBatch"));
    expect(state.tokens).toBe(0);
    expect(() => new Decoder(model, {} as ModelState)).toThrow(
      "Decoder: `state` must be a state made by model.newState, got Object",
    );
    await expect(prefill(model, undefined as never, [1])).rejects.toThrow(
      "prefill: `state` must be a state made by model.newState, got undefined",
    );
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

describe("options", () => {
  it("that nobody knows are refused everywhere", async () => {
    using state = model.newState({ capacity: 16, rollback: 2 });
    using decoder = new Decoder(model, state);
    const wrong = { tempature: 1 } as object;
    const text = (op: string, known: string) => `${op}: \`tempature\` must be one of ${known}, got an unknown option`;
    const common = "temperature, topK, topP, seed, maxTokens, stopTokens, signal, path, state, cache, timings";
    await expect(generate(model, [1], wrong).next()).rejects.toThrow(
      text("generate", `${common}, draft, draftTokens, ending`),
    );
    await expect(generateBatch(model, [[1]], wrong).next()).rejects.toThrow(
      text("generateBatch", `${common}, each, endings`),
    );
    await expect(generateBatch(model, [[1]], { each: [wrong] }).next()).rejects.toThrow(
      text("generateBatch", "temperature, topK, topP, seed, maxTokens, stopTokens"),
    );
    const prefilling = "path, blockLength, positions, cache, signal";
    await expect(prefill(model, state, [1], wrong)).rejects.toThrow(text("prefill", prefilling));
    await expect(prefillBatch(model, state, [[1]], wrong)).rejects.toThrow(text("prefillBatch", prefilling));
    expect(() => model.newState(wrong)).toThrow(text("model.newState", "capacity, sequences, rollback"));
    expect(() => new Decoder(model, state, wrong)).toThrow(text("Decoder", "temperature, topK, topP, seed"));
    expect(() => new Decoder(model, state, [wrong])).toThrow(text("Decoder", "temperature, topK, topP, seed"));
    expect(() => new PrefixCache(model, wrong)).toThrow(text("PrefixCache", "every, maxBytes"));
    expect(() => promptLookup(wrong)).toThrow(text("promptLookup", "longest, shortest"));
    await expect(state.save(0, wrong)).rejects.toThrow(text("state.save", "signal"));
    await expect(state.rollback(0, wrong)).rejects.toThrow(text("state.rollback", "signal"));
    await expect(decoder.next(1, wrong)).rejects.toThrow(text("decoder.next", "signal"));
    await expect(decoder.nextBatch([1], wrong)).rejects.toThrow(text("decoder.nextBatch", "signal"));
    await expect(decoder.speculate(1, [], wrong)).rejects.toThrow(text("decoder.speculate", "signal"));
    await expect(generate(model, [1], null as never).next()).rejects.toThrow(
      "generate: `options` must be an object, got null",
    );
    expect(state.tokens).toBe(0);
  });

  it("of the wrong kind too", async () => {
    using state = model.newState({ capacity: 16 });
    const refused = (options: object, message: string) =>
      expect(generate(model, [1], options).next()).rejects.toThrow(`generate: ${message}`);
    await refused({ stopTokens: "</s>" }, "`stopTokens` must be an array of token ids, got </s>");
    await refused({ stopTokens: [1.5] }, "`stopTokens` must be integers ≥ 0, got 1.5 at position 0");
    await refused({ draft: "lookup" }, "`draft` must be a function, got lookup");
    await refused({ path: "fast" }, "`path` must be one of auto, recurrent, chunk, got fast");
    await refused({ timings: 1 }, "`timings` must be an object to fill in, got 1");
    await refused({ ending: null }, "`ending` must be an object to fill in, got null");
    await refused({ cache: {} }, "`cache` must be a PrefixCache, got Object");
    await refused({ signal: {} }, "`signal` must be an AbortSignal, got Object");
    const batch = (options: object) => generateBatch(model, [[1]], options).next();
    await expect(batch({ each: {} })).rejects.toThrow("generateBatch: `each` must be an array of options, got Object");
    await expect(batch({ endings: {} })).rejects.toThrow(
      "generateBatch: `endings` must be an array to fill in, got Object",
    );
    await expect(prefill(model, state, [1], { path: "fast" as never })).rejects.toThrow(
      "prefill: `path` must be one of auto, recurrent, chunk, got fast",
    );
    await expect(prefill(model, state, [1], { positions: 0 as never })).rejects.toThrow(
      "prefill: `positions` must be an array of positions, got 0",
    );
    await expect(generateBatch(model, []).next()).rejects.toThrow(
      "generateBatch: `prompts` must have at least one prompt, got []",
    );
    await expect(generateBatch(model, [], { state }).next()).rejects.toThrow(
      "generateBatch: `prompts` must have one entry for each of the state's 1 sequences, got 0",
    );
    const restored = (saved: unknown, message: string) =>
      expect(() => state.restore(saved as never)).toThrow(`state.restore: \`saved\` must ${message}`);
    restored(null, "be what state.save returned, got null");
    restored({ tokens: 0 }, "be what state.save returned, got Object");
    const good = await state.save();
    const conv = good.tensors["conv.0"] as (typeof good.tensors)[string];
    const changed = (change: object) => ({ ...good, tensors: { ...good.tensors, "conv.0": { ...conv, ...change } } });
    const rule = "have `conv.0` as f32 [1, 3, 1024], got";
    restored(changed({ data: Array.from(conv.data as Float32Array) }), `${rule} data of another kind`);
    restored(changed({ data: new Float32Array(5) }), `${rule} 5 elements`);
    restored(changed({ dtype: "bf16" }), `${rule} bf16 [1, 3, 1024]`);
    restored(changed({ shape: [3, 1024] }), `${rule} f32 [3, 1024]`);
    expect(stateBits(await state.save())).toEqual(stateBits(good));
  });
});

describe("console.log and JSON.stringify", () => {
  it("show what an object is, in short", async () => {
    const state = model.newState({ capacity: 16, sequences: 2, rollback: 1 });
    await prefillBatch(model, state, [[1, 2], [3]]);
    const fields = {
      ...{ type: "ModelState", modelType: "qwen3_5", sequences: 2, capacity: 16, lengths: [2, 1], rollback: 1 },
      ...{ bytes: expect.any(Number), disposed: false },
    };
    expect(JSON.parse(JSON.stringify(state))).toEqual(fields);
    expect(inspect(state)).toMatch(/^ModelState \{\s+modelType: 'qwen3_5',\s+sequences: 2,[^<]+lengths: \[ 2, 1 \]/);
    const decoder = new Decoder(model, state);
    expect(JSON.parse(JSON.stringify(decoder))).toEqual({
      ...{ type: "Decoder", state: fields, dispatches: decoder.dispatches, disposed: false },
    });
    expect(inspect(decoder)).toMatch(/^Decoder \{/);
    expect(JSON.parse(JSON.stringify(model))).toMatchObject({ type: "Qwen3_5", layers: 4, device: "cpu" });
    expect(inspect(model)).toMatch(/^Qwen3_5 \{/);
    expect(inspect(new PrefixCache(model))).toMatch(/^PrefixCache \{\s+modelType: 'qwen3_5',\s+every: 256/);
    const tokenizer = new Tokenizer(tiny);
    const about = { type: "Tokenizer", path: join(tiny, "tokenizer.json"), chatTemplates: [] };
    expect(JSON.parse(JSON.stringify(tokenizer))).toEqual(about);
    expect(inspect(tokenizer)).toMatch(/^Tokenizer \{/);
    const stream = new TextStream(tokenizer);
    expect(JSON.parse(JSON.stringify(stream))).toEqual({ type: "TextStream", tokenizer: about });
    for (const one of [state, decoder, model, tokenizer, stream]) expect(inspect(one).length).toBeLessThan(400);
    decoder.dispose();
    state.dispose();
    expect(JSON.parse(JSON.stringify(decoder))).toMatchObject({ dispatches: 0, disposed: true });
    expect(JSON.parse(JSON.stringify(state))).toEqual({ ...fields, disposed: true });
    const dead = Device.open("cpu");
    const gone = await loadModel(dead, tiny);
    const left = gone.newState({ capacity: 4 });
    gone.dispose();
    dead.dispose();
    for (const one of [gone, left]) expect(inspect(one)).toContain("qwen3_5");
  });
});
