// What the state of a batch holds, and what is reported, after every kind of end of a generation.
import { describe, expect, it } from "vitest";
import { type Ending, type GenerateBatchOptions, generateBatch, type ModelState } from "../src/index.ts";
import { prompts, tinyOnCpu } from "./fixtures.ts";
import { CAPACITY, expectSame, oneRun } from "./one_run.ts";

const { model } = await tinyOnCpu();

describe("generateBatch ends by", () => {
  const batch = prompts.map((prompt) => prompt.ids);
  const texts = prompts.map((prompt) => prompt.greedy);
  const stops = (at: number, n: number) => (texts[at] as number[]).indexOf(texts[at]?.[n] as number);

  async function run(options: GenerateBatchOptions, read?: (step: number) => boolean) {
    const out: number[][] = batch.map(() => []);
    let step = 0;
    for await (const row of generateBatch(model, batch, { stopTokens: [], ...options })) {
      for (const [at, id] of row.entries()) if (id !== undefined) out[at]?.push(id);
      if (read?.(++step)) break;
    }
    return out;
  }

  /** Each sequence holds what it holds alone, within the bound: other kernels compute steps of several rows. */
  async function expectEach(state: ModelState, out: readonly number[][]): Promise<void> {
    for (const [at, prompt] of batch.entries()) {
      using own = model.newState({ capacity: CAPACITY });
      own.restore(await state.save(at));
      using expected = await oneRun(model, prompt, out[at] as number[]);
      await expectSame(own, expected, `sequence ${at}`, false);
    }
  }

  it("stop tokens and maxTokens of each sequence", async () => {
    const endings: Partial<Ending>[] = [];
    using state = model.newState({ capacity: CAPACITY, sequences: 3 });
    const each = [{ maxTokens: 3 }, { stopTokens: [texts[1]?.[5] as number] }, { maxTokens: 9 }];
    const out = await run({ state, each, endings });
    expect(out).toEqual([texts[0]?.slice(0, 3), texts[1]?.slice(0, stops(1, 5)), texts[2]?.slice(0, 9)]);
    expect(endings).toEqual([
      { finishReason: "length" },
      { finishReason: "stop", stopToken: texts[1]?.[5] },
      { finishReason: "length" },
    ]);
    await expectEach(state, out);
  });

  it("break", async () => {
    const endings: Partial<Ending>[] = [{}, {}, {}, {}];
    using state = model.newState({ capacity: CAPACITY, sequences: 3 });
    const out = await run({ state, endings, each: [{ maxTokens: 2 }, {}, {}] }, (step) => step === 4);
    expect(out.map(({ length }) => length)).toEqual([2, 4, 4]);
    expect(endings).toEqual([{ finishReason: "length" }, { finishReason: "aborted" }, { finishReason: "aborted" }]);
    await expectEach(state, out);
  });

  it("abort", async () => {
    const controller = new AbortController();
    const endings: Partial<Ending>[] = [];
    using state = model.newState({ capacity: CAPACITY, sequences: 3 });
    const out: number[][] = [[], [], []];
    const running = async () => {
      const options = { state, endings, signal: controller.signal, stopTokens: [], each: [{ maxTokens: 2 }, {}, {}] };
      for await (const row of generateBatch(model, batch, options)) {
        for (const [at, id] of row.entries()) if (id !== undefined) out[at]?.push(id);
        if (out[1]?.length === 3) controller.abort(new Error("enough"));
      }
    };
    await expect(running()).rejects.toThrow("enough");
    expect(out.map(({ length }) => length)).toEqual([2, 3, 3]);
    expect(endings).toEqual([{ finishReason: "length" }, { finishReason: "aborted" }, { finishReason: "aborted" }]);
    await expectEach(state, out);
  });

  it("the end of the context", async () => {
    const endings: Partial<Ending>[] = [];
    const longest = Math.max(...batch.map(({ length }) => length));
    using state = model.newState({ capacity: longest + 4, sequences: 3 });
    const out = await run({ state, endings });
    expect(endings).toEqual(batch.map(() => ({ finishReason: "length" })));
    expect(state.lengths).toEqual(batch.map(() => longest + 4));
    const fed = out.map((own, at) => own.slice(0, longest + 4 - (batch[at] as number[]).length));
    expect(out).toEqual(fed.map((own, at) => texts[at]?.slice(0, own.length + 1)));
    await expectEach(state, fed);
  });
});
