// What a state holds, and what is reported, after every kind of end of a generation.
import { getEventListeners } from "node:events";
import { Device } from "@mlxts/core";
import { describe, expect, it, vi } from "vitest";
import {
  Decoder,
  type Draft,
  type Ending,
  type GenerateOptions,
  generate,
  generateBatch,
  loadModel,
  prefill,
} from "../src/index.ts";
import { liveBuffers, prompts, stateBits, tiny, tinyOnCpu } from "./fixtures.ts";
import { CAPACITY, expectSame, oneRun } from "./one_run.ts";

const { model } = await tinyOnCpu();

const { ids, greedy } = prompts[0] as (typeof prompts)[number];

/** Guesses the greedy text of the prompt: two right tokens, then a wrong one. */
const guesses: Draft = (text, most) =>
  greedy
    .slice(text.length - ids.length)
    .slice(0, most)
    .map((id, i) => (i === 2 ? (id + 1) % 4096 : id));

interface End {
  options?: GenerateOptions;
  capacity?: number;
  /** Called after each id with the number of ids; when it returns true, the loop ends with `break`. */
  read?: (count: number, controller: AbortController) => boolean | undefined;
  reason: Ending["finishReason"];
  /** How many ids are yielded. */
  yields: number;
  throws?: string;
}

const stop = greedy[6] as number;
const stopAt = greedy.indexOf(stop);
const ends: [string, End][] = [
  ["a stop token", { options: { stopTokens: [stop] }, reason: "stop", yields: stopAt }],
  ["a stop token at once", { options: { stopTokens: [greedy[0] as number] }, reason: "stop", yields: 0 }],
  ["maxTokens", { options: { maxTokens: 9 }, reason: "length", yields: 9 }],
  ["maxTokens 1", { options: { maxTokens: 1 }, reason: "length", yields: 1 }],
  ["maxTokens where the context ends too", { options: { maxTokens: 6 }, capacity: 6, reason: "length", yields: 6 }],
  ["break after the first", { read: () => true, reason: "aborted", yields: 1 }],
  ...[2, 3, 4, 5].map((n): [string, End] => [
    `break after ${n}`,
    { read: (count) => count === n, reason: "aborted", yields: n },
  ]),
  ["break after the last", { options: { maxTokens: 4 }, read: (n) => n === 4, reason: "length", yields: 4 }],
  ...[1, 2, 3].map((n): [string, End] => [
    `an abort after ${n}`,
    {
      read: (count, controller) => {
        if (count === n) controller.abort(new Error("enough"));
        return false;
      },
      reason: "aborted",
      yields: n,
      throws: "enough",
    },
  ]),
  [
    "a draft that throws",
    {
      options: {
        draft: (text, most) => {
          if (text.length >= ids.length + 4) throw new Error("no idea");
          return guesses(text, most);
        },
      },
      reason: "error",
      yields: 6,
      throws: "no idea",
    },
  ],
];

describe("generate ends by", () => {
  const kinds = ["plain", "with guesses"] as const;
  const cases = ends.flatMap(([name, end]) =>
    kinds.filter((kind) => kind !== "plain" || !end.options?.draft).map((kind) => [name, kind, end] as const),
  );
  it.each(cases)("%s, %s: the state continues as one run", async (name, kind, end) => {
    const draft = kind === "with guesses" ? { draft: guesses, ...end.options } : { ...end.options };
    const controller = new AbortController();
    // Fields of an earlier generation, which must be replaced.
    const ending: Partial<Ending> = { finishReason: "stop", stopToken: 3 };
    const capacity = end.capacity ? ids.length + end.capacity : CAPACITY;
    using state = model.newState({ capacity, ...(draft.draft && { rollback: 4 }) });
    const out: number[] = [];
    const run = async () => {
      const all = { state, stopTokens: [], maxTokens: 40, ending, signal: controller.signal, ...draft };
      for await (const id of generate(model, ids, all)) {
        out.push(id);
        if (end.read?.(out.length, controller)) break;
      }
    };
    if (end.throws) await expect(run()).rejects.toThrow(end.throws);
    else await run();
    expect(out).toHaveLength(end.yields);
    expect(out).toEqual(greedy.slice(0, out.length));
    expect(ending).toEqual({
      finishReason: end.reason,
      ...(end.reason === "stop" && { stopToken: greedy[end.yields] }),
    });
    expect(getEventListeners(controller.signal, "abort")).toHaveLength(0);
    if (end.capacity) {
      expect(state.tokens).toBe(ids.length + end.yields);
      using other = model.newState({ capacity: CAPACITY });
      other.restore(await state.save());
      using expected = await oneRun(model, ids, out);
      await expectSame(other, expected, name, kind === "plain");
      return;
    }
    using expected = await oneRun(model, ids, out);
    await expectSame(state, expected, name, kind === "plain");
  });

  it.each(kinds)(
    "the end of the context, %s: the state holds all ids but the last, which has no room",
    async (kind) => {
      const ending: Partial<Ending> = {};
      const guessing = kind === "with guesses";
      using state = model.newState({ capacity: ids.length + 5, rollback: guessing ? 3 : 0 });
      const out: number[] = [];
      const options = { state, stopTokens: [], ending, ...(guessing && { draft: guesses }) };
      for await (const id of generate(model, ids, options)) out.push(id);
      expect(out).toEqual(greedy.slice(0, 6));
      expect(ending).toEqual({ finishReason: "length" });
      expect(state.tokens).toBe(state.capacity);
      // In a larger state the last id is fed, and the text continues.
      using other = model.newState({ capacity: CAPACITY });
      other.restore(await state.save());
      using decoder = new Decoder(model, other);
      expect(await decoder.next(out.at(-1) as number)).toBe(greedy[6]);
      using expected = await oneRun(model, ids, out);
      await expectSame(other, expected, "the end of the context", !guessing);
    },
  );

  it("the disposal of the state; a report that cannot be filled in leaves no buffers behind", async () => {
    const state = model.newState({ capacity: CAPACITY });
    const running = generate(model, ids, { state, stopTokens: [] });
    await running.next();
    state.dispose();
    await expect(running.next()).rejects.toMatchObject({ code: "Disposed" });
    expect((await running.next()).done).toBe(true);
    using own = Device.open("cpu");
    using of = await loadModel(own, tiny, { activationDtype: "f32" });
    const before = await liveBuffers(own);
    const frozen = generate(of, ids, { maxTokens: 1, ending: Object.freeze({ stopToken: 1 }) });
    await frozen.next();
    await expect(frozen.next()).rejects.toThrow(TypeError);
    expect(await liveBuffers(own)).toBe(before);
  });

  it("any of these, without a state of the caller: no buffers are left behind", async () => {
    using own = Device.open("cpu");
    using of = await loadModel(own, tiny, { activationDtype: "f32" });
    const before = await liveBuffers(own);
    const controller = new AbortController();
    const options = { stopTokens: [], draft: guesses, signal: controller.signal };
    for await (const _ of generate(of, ids, options)) break;
    await expect(
      (async () => {
        const running = generate(of, ids, options);
        await running.next();
        await running.throw(new Error("mine"));
      })(),
    ).rejects.toThrow("mine");
    const batch = generateBatch(of, [ids, ids.slice(2)], { stopTokens: [], signal: controller.signal });
    await batch.next();
    const running = generate(of, ids, { stopTokens: [], signal: controller.signal });
    await running.next();
    const both = [running.next(), batch.next()];
    controller.abort("enough");
    const ended = await Promise.allSettled(both);
    expect(ended).toEqual(both.map(() => ({ status: "rejected", reason: "enough" })));
    expect(await liveBuffers(own)).toBe(before);
  });

  it("a guesser that changes the list that it is handed changes nothing", async () => {
    const texts = async (draft: (text: number[]) => number[]) => {
      const out: number[] = [];
      const options = { stopTokens: [], maxTokens: 12, draft: draft as never };
      for await (const id of generate(model, ids, options)) out.push(id);
      return out;
    };
    const changed = await texts((text) => {
      text[text.length - 1] = 7;
      text.push(Number.NaN);
      return [];
    });
    expect(changed).toEqual(await texts(() => []));
  });

  it("an error of the reader", async () => {
    const ending: Partial<Ending> = {};
    using state = model.newState({ capacity: CAPACITY });
    const running = generate(model, ids, { state, stopTokens: [], ending });
    await running.next();
    await running.next();
    await expect(running.throw(new Error("mine"))).rejects.toThrow("mine");
    expect(ending).toEqual({ finishReason: "error" });
    using expected = await oneRun(model, ids, greedy.slice(0, 2));
    await expectSame(state, expected, "the reader's error", true);
  });

  it("maxTokens, and continues with the same text after the last token was rolled back", async () => {
    using state = model.newState({ capacity: CAPACITY, rollback: 1 });
    const out: number[] = [];
    for await (const id of generate(model, ids, { state, maxTokens: 7, stopTokens: [] })) out.push(id);
    await state.rollback(1);
    for await (const id of generate(model, out.slice(-1), { state, maxTokens: 20, stopTokens: [] })) out.push(id);
    expect(out).toEqual(greedy.slice(0, 27));
    using expected = await oneRun(model, ids, out, 1);
    await expectSame(state, expected, "after a rollback", true);
  });

  it("abort during a pass, or between two: what was yielded is in the state", async () => {
    for (const guessing of [false, true]) {
      const controller = new AbortController();
      using state = model.newState({ capacity: CAPACITY, rollback: 4 });
      const running = generate(model, ids, {
        state,
        stopTokens: [],
        signal: controller.signal,
        ...(guessing && { draft: guesses }),
      });
      const out = [(await running.next()).value as number];
      const next = running.next();
      controller.abort("changed my mind");
      await next.then(
        ({ value }) => out.push(value as number),
        (error) => expect(error).toBe("changed my mind"),
      );
      for (;;) {
        try {
          const { value, done } = await running.next();
          if (done) break;
          out.push(value as number);
        } catch (error) {
          expect(error).toBe("changed my mind");
        }
      }
      using expected = await oneRun(model, ids, out, 4);
      await expectSame(state, expected, `guessing: ${guessing}`, !guessing);
    }
  });

  it("abort during the prompt: passes that ran are in the state", async () => {
    const long = prompts.flatMap((prompt) => [...prompt.ids, ...prompt.greedy]);
    const controller = new AbortController();
    const ending: Partial<Ending> = {};
    using state = model.newState({ capacity: 1300 });
    const text = Array.from({ length: 1200 }, (_, i) => long[i % long.length] as number);
    const advance = state.advance.bind(state);
    vi.spyOn(state, "advance").mockImplementationOnce((...pass) => {
      controller.abort();
      return advance(...pass);
    });
    const running = generate(model, text, { state, ending, signal: controller.signal });
    await expect(running.next()).rejects.toBe(controller.signal.reason);
    expect(ending).toEqual({ finishReason: "aborted" });
    expect(state.tokens).toBe(512);
    using expected = model.newState({ capacity: 1300 });
    await prefill(model, expected, text.slice(0, 512), { positions: [] });
    expect(stateBits(await state.save())).toEqual(stateBits(await expected.save()));
  });
});
