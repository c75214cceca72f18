import { Device } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { type Mistake, refuses } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { sample } from "../src/index.ts";
import { philox, samplingSet } from "../src/reference.ts";
import type { Options } from "./sample.suite.ts";

const device = Device.open();
afterAll(() => device.dispose());

/** Ids of one row of logits at steps 0 … steps − 1, from one recording replayed. */
async function draws(logits: Float64Array, steps: number, options: Partial<Options>): Promise<number[]> {
  const given = { logits: device.tensor("f32", [1, logits.length], logits), step: device.tensor("u32", [1]) };
  const encoder = device.encoder();
  const ids = sample(encoder, given, { temperature: 1, seed: 1, ...options });
  const recording = encoder.finish();
  const out: number[] = [];
  for (let step = 0; step < steps; step++) {
    given.step.write([step]);
    recording.replay().waitSync();
    out.push((ids.readSync() as Uint32Array)[0] as number);
  }
  recording.dispose();
  return out;
}

/** χ² of counts against probabilities, and the number of degrees of freedom; rare ids are put together. */
function chiSquare(ids: readonly number[], set: ReturnType<typeof samplingSet>) {
  const counts = new Map<number, number>();
  for (const id of ids) counts.set(id, (counts.get(id) ?? 0) + 1);
  let [chi, cells, rare, rareSeen] = [0, 0, 0, 0];
  set.ids.forEach((id, i) => {
    const expected = (set.probabilities[i] as number) * ids.length;
    const seen = counts.get(id) ?? 0;
    counts.delete(id);
    if (expected < 8) {
      rare += expected;
      rareSeen += seen;
      return;
    }
    chi += (seen - expected) ** 2 / expected;
    cells++;
  });
  if (rare > 0) {
    chi += (rareSeen - rare) ** 2 / rare;
    cells++;
  }
  return { chi, freedom: cells - 1, strangers: counts.size };
}

describe("frequencies over 4096 steps", () => {
  it.each([
    [{}],
    [{ temperature: 0.6 }],
    [{ topK: 12 }],
    [{ topP: 0.8 }],
    [{ temperature: 1.5, topK: 30, topP: 0.9, seed: 99 }],
  ])("%j", async (options: Partial<Options>) => {
    const logits = new Random(8).normals(64, 1.5).map(Math.fround);
    const ids = await draws(logits, 4096, options);
    const { temperature, topK, topP } = { temperature: 1, topK: 0, topP: 1, ...options };
    const { chi, freedom, strangers } = chiSquare(ids, samplingSet(logits, temperature, topK, topP));
    expect(strangers).toBe(0);
    // Mean `freedom`, deviation √(2·freedom): four of them.
    expect(chi).toBeLessThan(freedom + 4 * Math.sqrt(2 * freedom));
    expect(chi).toBeGreaterThan(freedom - 4 * Math.sqrt(2 * freedom));
  });

  it("does not repeat itself from step to step", async () => {
    const ids = await draws(new Float64Array(4096), 512, {});
    const pairs = new Set(ids.slice(1).map((id, i) => `${ids[i]} ${id}`));
    expect(new Set(ids).size).toBeGreaterThan(460);
    expect(pairs.size).toBeGreaterThan(505);
  });
});

describe("the random stream", () => {
  // Known answers of Philox4x32-10 (Random123): counter 0, key 0.
  it("is Philox4x32-10", () => {
    expect(philox(0, 0, 0)).toEqual([0x6627e8d5, 0xe169c58d]);
  });

  it("gives ⌊V·u⌋ for equal logits", async () => {
    const dim = 1000;
    const ids = await draws(new Float64Array(dim), 64, { seed: 7 });
    const expected = ids.map((_, step) => {
      const [low, high] = philox(7, step, 0);
      return Math.floor(dim * (high / 2 ** 32 + low / 2 ** 64));
    });
    expect(ids).toEqual(expected);
  });
});

describe("argument errors", () => {
  const good = {
    inputs: { logits: device.tensor("f32", [2, 8]), step: device.tensor("u32", [1]) },
    options: { temperature: 1, seed: 0 },
  };
  const mistakes: Mistake[] = [
    {
      options: { temperature: undefined },
      message: "`temperature` must be a number, got undefined",
      kind: "TypeError",
    },
    { options: { seed: undefined }, message: "`seed` must be a number, got undefined", kind: "TypeError" },
    { options: { temperature: -0.1 }, message: "`temperature` must be a finite number ≥ 0, got -0.1" },
    { options: { temperature: Number.NaN }, message: "`temperature` must be a finite number ≥ 0, got NaN" },
    { options: { topK: -1 }, message: "`topK` must be an integer ≥ 0, got -1" },
    { options: { topK: 2.5 }, message: "`topK` must be an integer ≥ 0, got 2.5" },
    { options: { topP: 0 }, message: "`topP` must be a finite number > 0 and ≤ 1, got 0" },
    { options: { topP: 1.01 }, message: "`topP` must be a finite number > 0 and ≤ 1, got 1.01" },
    { options: { seed: 2 ** 32 }, message: "`seed` must be an integer ≥ 0 and ≤ 4294967295, got 4294967296" },
    { options: { seed: -1 }, message: "`seed` must be an integer ≥ 0 and ≤ 4294967295, got -1" },
    { inputs: { logits: device.tensor("f32", [8]) }, message: "`logits` must have shape [B, V], got [8]" },
    {
      inputs: { logits: device.tensor("i32", [2, 8]) },
      message: "`logits` must have dtype f32 or f16 or bf16, got i32",
    },
    { inputs: { step: device.tensor("i32", [1]) }, message: "`step` must have dtype u32, got i32" },
    { inputs: { step: device.tensor("u32", [2]) }, message: "`step` must have shape [1], got [2]" },
    { inputs: { step: 3 }, message: "`step` must be a Tensor, got 3", kind: "TypeError" },
    { inputs: { ids: device.tensor("u32", [1]) }, message: "`ids` must have shape [2], got [1]" },
    { inputs: { ids: device.tensor("i32", [2]) }, message: "`ids` must have dtype u32, got i32" },
  ];
  for (const mistake of mistakes) it(`sample: ${mistake.message}`, () => refuses(device, sample, good, mistake));
});
