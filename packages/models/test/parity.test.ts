import { Device } from "@mlxts/core";
import { compare, within } from "@mlxts/core/testing";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { type LanguageModel, loadModel, prefill } from "../src/index.ts";
import { prompts, tiny, tiny4bit } from "./fixtures.ts";
import { greedyTokens, lastLogits } from "./parity_suite.ts";

const device = Device.open();
afterAll(() => device.dispose());

describe("tiny-qwen3.5, bf16 weights, f32 activations, against the original model code", () => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await loadModel(device, tiny, { activationDtype: "f32" });
  });
  afterAll(() => model.dispose());

  it.each(prompts)("last-position logits of prompt $# within ratio 1e-5", async ({ ids, logits }) => {
    expect(compare(await lastLogits(model, ids), logits)).toMatchObject({
      finite: true,
      ratio: expect.toSatisfy((ratio: number) => ratio <= 1e-5),
    });
  });

  it.each(prompts)("64 greedy tokens of prompt $# are identical", async ({ ids, greedy: expected }) => {
    expect(await greedyTokens(model, ids)).toEqual(expected);
  });

  const long = prompts.flatMap(({ ids, greedy: more }) => [...ids, ...more]).slice(0, 150);

  it("chunk path, recurrent path and token by token agree", async () => {
    const chunk = await lastLogits(model, long, [], "chunk");
    const recurrent = await lastLogits(model, long, [], "recurrent");
    const single = await lastLogits(
      model,
      long,
      long.slice(1).map((_, i) => i + 1),
    );
    expect(within(compare(chunk, recurrent), 2e-6, 40)).toBe(true);
    expect(within(compare(single, recurrent), 2e-6, 40)).toBe(true);
  });

  it("a split anywhere agrees with the whole", async () => {
    const whole = await lastLogits(model, long, [], "chunk");
    // A simulated GPU is slow: there only the borders of chunks and every 16th position are tested.
    const borders = [1, 2, 63, 64, 65, 127, 128, 129, 149];
    for (let at = 1; at < long.length; at++) {
      if (device.gpu && at % 16 !== 5 && !borders.includes(at)) continue;
      const c = compare(await lastLogits(model, long, [at], "chunk"), whole);
      expect(within(c, 2e-6, 40), `split at ${at}: ratio ${c.ratio}`).toBe(true);
    }
  });

  it("logits of every position asked for are those of separate prompts", async () => {
    const { ids } = prompts[0] as (typeof prompts)[number];
    using state = model.newState({ capacity: ids.length });
    const rows = await prefill(model, state, ids, { positions: [3, ids.length - 1] });
    expect(within(compare(rows[0] as Float32Array, await lastLogits(model, ids.slice(0, 4))), 2e-6, 40)).toBe(true);
    expect(within(compare(rows[1] as Float32Array, await lastLogits(model, ids)), 2e-6, 40)).toBe(true);
  });

  it("blocks of a prompt agree with one pass", async () => {
    using state = model.newState({ capacity: long.length });
    const [logits] = await prefill(model, state, long, { blockLength: 33 });
    expect(within(compare(logits as Float32Array, await lastLogits(model, long)), 2e-6, 40)).toBe(true);
  });

  it("bf16 activations stay near the f32 logits", async () => {
    using half = await loadModel(device, tiny, { activationDtype: "bf16" });
    for (const { ids, logits } of prompts)
      expect(compare(await lastLogits(half, ids), logits).ratio).toBeLessThan(3e-2);
  });

  it("auto is the default dtype of activations, on a GPU bf16", async () => {
    using usual = await loadModel(device, tiny);
    using auto = await loadModel(device, tiny, { activationDtype: "auto" });
    expect(usual.activationDtype).toBe(auto.activationDtype);
    if (device.gpu) expect(usual.activationDtype).toBe("bf16");
  });
});

describe("tiny-qwen3.5-4bit as mlx_lm.convert wrote it", () => {
  let model: LanguageModel;
  beforeAll(async () => {
    model = await loadModel(device, tiny4bit, { activationDtype: "f32" });
  });
  afterAll(() => model.dispose());

  it.each(prompts)(
    "logits of prompt $# match mlx-lm in f32 and a float64 model of the decoded weights",
    async ({ ids, fourBit }) => {
      const logits = await lastLogits(model, ids);
      expect(compare(logits, fourBit.f64Logits).ratio).toBeLessThan(2e-6);
      expect(compare(logits, fourBit.mlxLogits).ratio).toBeLessThan(4e-6);
    },
  );

  it("bf16 activations stay near the f32 logits", async () => {
    using half = await loadModel(device, tiny4bit, { activationDtype: "bf16" });
    for (const { ids, fourBit } of prompts)
      expect(compare(await lastLogits(half, ids), fourBit.f64Logits).ratio).toBeLessThan(3e-2);
  });

  it.each(prompts)("64 greedy tokens of prompt $# are mlx-lm's", async ({ ids, fourBit }) => {
    expect(await greedyTokens(model, ids)).toEqual(fourBit.greedy);
  });
});
