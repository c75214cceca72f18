// What is left after passes that fail on the device, and when memory runs out.
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
import { liveBuffers, prompts, stateBits, tiny, tinyOnCpu } from "./fixtures.ts";

const { model } = await tinyOnCpu();

const long = prompts.flatMap(({ ids, greedy }) => [...ids, ...greedy]);
const part = (begin: number, size: number) => long.slice(begin, begin + size);
const saved = async (state: ModelState, at = 0) => stateBits(await state.save(at));

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
  it("leaves sequences undefined; reset and restore make them whole", async () => {
    using own = Device.open("cpu");
    using of = await loadModel(own, tiny);
    using state = of.newState({ capacity: 32, sequences: 2, rollback: 2 });
    await prefillBatch(of, state, [part(0, 5), part(9, 5)]);
    const good = await state.save(1);
    const bad = own.tensor("u32", [1], [99]);
    const weight = own.tensor("f32", [4, 8]);
    const { encodeLogits } = Object.getPrototypeOf(of) as LanguageModel;
    vi.spyOn(of, "encodeLogits").mockImplementationOnce((encoder, hidden, rows, out) => {
      embedding(encoder, { ids: bad, weight }, {});
      return encodeLogits.call(of, encoder, hidden, rows, out);
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

  it("ends a generation with that error; its own state is disposed", async () => {
    using own = Device.open("cpu");
    using of = await loadModel(own, tiny);
    using state = of.newState({ capacity: 32 });
    const bad = own.tensor("u32", [1], [99]);
    const weight = own.tensor("f32", [4, 8]);
    const before = await liveBuffers(own);
    const { encodeLogits } = Object.getPrototypeOf(of) as LanguageModel;
    for (const given of [{ state }, {}]) {
      const ending = {};
      const spy = vi.spyOn(of, "encodeLogits").mockImplementation((encoder, hidden, rows, out) => {
        embedding(encoder, { ids: bad, weight }, {});
        return encodeLogits.call(of, encoder, hidden, rows, out);
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
  it("no buffers are left behind, wherever the memory ends", async () => {
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
