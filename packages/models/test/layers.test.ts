// Passes layer by layer: what they compute is, to the bit, what a pass computes that is recorded as a whole; layers that are
// alike are recorded once.
import { existsSync } from "node:fs";
import { join } from "node:path";
import { Device, type Tensor } from "@mlxts/core";
import { add } from "@mlxts/nn";
import { rmsNorm } from "@mlxts/norms";
import { fixture, unpackedCheckpoint } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it, vi } from "vitest";
import { describe as descriptionOf } from "../src/description.ts";
import {
  type LanguageModel,
  loadModel,
  type ModelState,
  PrefixCache,
  prefill,
  prefillBatch,
  type StateOptions,
} from "../src/index.ts";
import { type LayeredPass, recordLayers } from "../src/layers.ts";
import { PassTokens } from "../src/tokens.ts";
import { bits, liveBuffers, stateBits } from "./fixtures.ts";

const device = Device.open("cpu");
afterAll(() => device.dispose());
const encoderPrototype = Object.getPrototypeOf(device.encoder());

const folderOf = (name: string) =>
  existsSync(join(fixture(name), "model.safetensors")) ? fixture(name) : unpackedCheckpoint(name);

/** How many blocks a call makes. */
async function blocksOf(call: () => Promise<unknown>): Promise<number> {
  const block = vi.spyOn(encoderPrototype, "block");
  await call();
  const { length } = block.mock.calls;
  block.mockRestore();
  return length;
}

describe.each([
  // Kinds of layers: in the first checkpoint each begins at other bytes of its file, in the second three are alike, in the
  // third two; the last layer has no norm after it.
  ["tiny-qwen3.5-4bit", 4],
  ["tiny-qwen3-next", 2],
  ["tiny-deepseek-v3", 3],
])("%s: the layers of a pass", async (name, kinds) => {
  const model: LanguageModel = await loadModel(device, folderOf(name));
  afterAll(() => model.dispose());
  const { layered } = Object.getPrototypeOf(model) as LanguageModel;
  const idsOf = (length: number, step = 7919) => Array.from({ length }, (_, i) => (i * step + 3) % model.vocabSize);

  /** What a call leaves in new states, with passes layer by layer and with passes as a whole. */
  async function expectSame(sizes: StateOptions, call: (state: ModelState) => Promise<unknown>): Promise<void> {
    const results: unknown[] = [];
    for (const whole of [false, true]) {
      using state = model.newState(sizes);
      // A pass asks for its layers, and `encode` asks again when it is recorded as a whole.
      let asked = 0;
      const spy = vi.spyOn(model, "layered").mockImplementation((...pass) => {
        return whole && asked++ % 2 === 0 ? undefined : layered.apply(model, pass);
      });
      let logits: unknown;
      const blocks = await blocksOf(async () => {
        logits = await call(state);
      });
      if (whole) expect([blocks, asked % 2]).toEqual([0, 0]);
      spy.mockRestore();
      const saved = await Promise.all(state.lengths.map((_, at) => state.save(at)));
      results.push({
        logits: ((logits as Float32Array[][]).flat() as Float32Array[]).map(bits),
        saved: saved.map(stateBits),
      });
    }
    expect(results[0]).toEqual(results[1]);
  }

  it("have the bits of a pass that is recorded as a whole, also with what was recorded for other states", async () => {
    for (const capacity of [40, 64, 40])
      for (const length of [1, 7, 21])
        for (const path of model.paths)
          await expectSame({ capacity }, (state) => prefill(model, state, idsOf(length), { path }));
  });

  it("have them in passes that follow each other, each at its own positions", async () => {
    await expectSame({ capacity: 64 }, async (state) => {
      const first = await prefill(model, state, idsOf(12));
      return [...first, ...(await prefill(model, state, idsOf(12, 31), { positions: [0, 11] }))];
    });
    await expectSame({ capacity: 64 }, (state) => prefill(model, state, idsOf(41), { blockLength: 8 }));
  });

  it("have them in batches, with logs of the last tokens, and with snapshots for a cache", async () => {
    const batches = [
      [idsOf(9), idsOf(9, 31)],
      [idsOf(9), idsOf(4, 31)],
      [[], idsOf(5)],
    ];
    for (const prompts of batches)
      await expectSame({ capacity: 32, sequences: 2, rollback: 3 }, (state) => prefillBatch(model, state, prompts));
    await expectSame({ capacity: 32, rollback: 3 }, async (state) => {
      await prefill(model, state, idsOf(9));
      await state.rollback(2);
      return await prefill(model, state, idsOf(3));
    });
    const every = model.snapshotUnit;
    for (const _ of [1, 2])
      await expectSame({ capacity: 5 * every }, async (state) => {
        const cache = new PrefixCache(model, { every });
        const first = await prefill(model, state, idsOf(3 * every + 1), { cache });
        state.reset();
        return [...first, ...(await prefill(model, state, idsOf(3 * every + 2), { cache }))];
      });
  });

  it("are recorded once for all that are alike, in a pass and in later ones, and keep no memory", async () => {
    const fed = (length: number, capacity: number) =>
      blocksOf(async () => {
        using state = model.newState({ capacity });
        await prefill(model, state, idsOf(length));
      });
    const before = await liveBuffers(device);
    const blocks = await fed(13, 48);
    expect(blocks).toBe(kinds);
    expect(await fed(13, 48)).toBe(0);
    expect(await fed(14, 48)).toBe(blocks);
    expect(await fed(13, 49)).toBeGreaterThan(0);
    expect(await fed(13, 48)).toBe(0);
    expect(await liveBuffers(device)).toBeLessThanOrEqual(before + 2); // tables of positions, where a model has some
  });

  it("are forgotten when many others have been recorded", async () => {
    const fed = (capacity: number) => {
      const state = model.newState({ capacity });
      return blocksOf(() => prefill(model, state, idsOf(3))).finally(() => state.dispose());
    };
    expect(await fed(50)).toBeGreaterThan(0);
    expect(await fed(50)).toBe(0);
    for (let capacity = 51; capacity <= 50 + 64; capacity++) await fed(capacity);
    expect(await fed(50)).toBeGreaterThan(0);
  });

  it("run in order, the first ones before the last ones are recorded", async () => {
    const order: string[] = [];
    const of = Object.getPrototypeOf(model) as LanguageModel;
    vi.spyOn(encoderPrototype, "commit").mockImplementation(function (this: object, ...options) {
      order.push("commit");
      return commit.apply(this, options);
    });
    vi.spyOn(model, "encodeLogits").mockImplementation((...all) => {
      order.push("logits");
      return of.encodeLogits.apply(model, all);
    });
    using state = model.newState({ capacity: 16 });
    await prefill(model, state, idsOf(5));
    expect(order).toEqual(["commit", "logits", "commit"]);
  });

  it("leave a state undefined when they fail after some of them have begun, and nothing in flight", async () => {
    using state = model.newState({ capacity: 16 });
    await prefill(model, state, idsOf(2));
    vi.spyOn(model, "encodeLogits").mockImplementationOnce(() => {
      throw new Error("no more memory");
    });
    const begun = vi.spyOn(encoderPrototype, "commit");
    await expect(prefill(model, state, idsOf(5))).rejects.toThrow("no more memory");
    expect(begun.mock.results.map(({ value }) => (value as { state: string }).state)).toEqual(["completed"]);
    expect(state.lengths).toEqual([2]);
    await expect(prefill(model, state, [1])).rejects.toMatchObject({ code: "CommandBuffer" });
    state.reset();
    await prefill(model, state, [1]);
    expect(state.lengths).toEqual([1]);
  });
});

const { commit } = encoderPrototype;

describe("a description", () => {
  const tensor = (shape: number[]) => device.tensor("f32", shape);
  const of = (value: unknown) => {
    const tensors: Tensor[] = [];
    return { text: descriptionOf(value, tensors), tensors };
  };

  it("is that of values which differ in nothing but tensors' contents; it lists the tensors in order", () => {
    const [a, b, c] = [tensor([2, 3]), tensor([4]), tensor([2, 3])];
    const first = of({ norm: a, list: [b, 1], kind: "x" });
    expect(first.tensors).toEqual([a, b]);
    expect(of({ norm: c, list: [b, 1], kind: "x" })).toEqual({ text: first.text, tensors: [c, b] });
    const words = tensor([8]);
    for (const other of [
      { norm: tensor([3, 2]), list: [b, 1], kind: "x" },
      { norm: a, list: [b, 2], kind: "x" },
      { norm: a, list: [b, 1], kind: "y" },
      { norm: a, list: [b, 1], kind: "x", more: undefined },
      { norm: a, list: [words.slice(1, 5), 1], kind: "x" },
      { norm: a.cast("u32"), list: [b, 1], kind: "x" },
    ])
      expect(of(other).text).not.toBe(first.text);
  });

  it("is no other's where something cannot be seen", () => {
    expect(of({ map: new Map([[1, 2]]) }).text).not.toBe(of({ map: new Map([[1, 2]]) }).text);
    expect(of({}).text).toBe(of({}).text);
    expect(of(["a,b"]).text).not.toBe(of(["a", "b"]).text);
    expect(of({ text: "1" }).text).not.toBe(of({ text: 1 }).text);
  });
});

it("a layer is recorded anew for another number of tokens to roll back, and for snapshots at other places", async () => {
  using arena = device.arena(1 << 16);
  using weight = device.tensor("f32", [8], Array(8).fill(1));
  using source = device.tensor("f32", [2, 8], Array(16).fill(2));
  using tokens = new PassTokens(device, [2]);
  // Its tensors tell of neither.
  const pass: LayeredPass = {
    layers: [{ inputNorm: weight }],
    begin: () => source,
    norm: (encoder, _, x, out) => rmsNorm(encoder, { x, weight, out }, {}),
    layer: (encoder, _, x, hidden) => void add(encoder, { a: hidden, b: x, out: hidden }),
  };
  const blocks = (maxRollback: number, every: number) =>
    blocksOf(async () => {
      const state = { device, tensors: [], maxRollback } as never;
      const options = { path: "auto", log: false, snapshots: { every, tensors: {} } } as const;
      recordLayers(pass, { state, tokens: tokens.tokens, options }, arena, () => {}).encoder.dispose();
      arena.reset();
    });
  expect(await blocks(2, 64)).toBe(1);
  expect(await blocks(2, 64)).toBe(0);
  expect(await blocks(3, 64)).toBe(1);
  expect(await blocks(2, 128)).toBe(1);
  expect(await blocks(2, 64)).toBe(0);
});
