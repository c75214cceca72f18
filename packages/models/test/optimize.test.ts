// Recordings of passes are optimized: fewer dispatches and barriers, less scratch, and the same bits.
import { type CommandEncoder, Device, type FloatDtype, type Tensor } from "@mlxts/core";
import { add, elementwiseMul } from "@mlxts/nn";
import { normFusions, rmsNorm } from "@mlxts/norms";
import { afterEach, describe, expect, it } from "vitest";
import { Decoder, prefill } from "../src/index.ts";
import { bits, openOnCpu, prompts, tiny } from "./fixtures.ts";

const ROWS = 3;
const DIM = 65;

/** Each pair of ops that becomes one. */
const PAIRS: Record<string, (encoder: CommandEncoder, t: Record<"x" | "other" | "weight" | "out", Tensor>) => void> = {
  "rmsNorm · other": (encoder, { x, other, weight, out }) =>
    elementwiseMul(encoder, { a: rmsNorm(encoder, { x, weight }), b: other, out }),
  "other · rmsNorm, in place": (encoder, { x, other, weight, out }) => {
    const product = elementwiseMul(encoder, { a: other, b: rmsNorm(encoder, { x, weight }), out: other });
    add(encoder, { a: product, b: product, out });
  },
  "rmsNorm + other": (encoder, { x, other, weight, out }) =>
    add(encoder, { a: rmsNorm(encoder, { x, weight }, { rounding: "before-weight" }), b: other, out }),
  "other + rmsNorm, in place": (encoder, { x, other, weight, out }) => {
    const sum = add(encoder, { a: other, b: rmsNorm(encoder, { x, weight }, { weightOffset: 1 }), out: other });
    elementwiseMul(encoder, { a: sum, b: sum, out });
  },
  "rmsNorm of a sum in place": (encoder, { x, other, weight, out }) =>
    rmsNorm(encoder, { x: add(encoder, { a: x, b: other, out: x }), weight, out }, { eps: 1e-5 }),
  "rmsNorm of a sum that is scratch": (encoder, { x, other, weight, out }) => {
    const sum = add(encoder, { a: x, b: other });
    const normed = rmsNorm(encoder, { x: sum, weight });
    // Nobody joins these: neither is a norm.
    elementwiseMul(encoder, { a: sum, b: normed, out });
  },
};

describe("rules of norms", () => {
  const dtypes = ["f32", "f16", "bf16"] as const satisfies readonly FloatDtype[];
  it.each(Object.entries(PAIRS))("keep the bits: %s", async (_, record) => {
    using device = Device.open();
    for (const dtype of dtypes)
      for (const weightDtype of new Set([dtype, "f32"] as const)) {
        const run = async (optimize: boolean) => {
          const numbers = (seed: number) => Array.from({ length: ROWS * DIM }, (_, i) => Math.sin(seed * (i + 1)));
          const make = (seed: number) => device.tensor(dtype, [ROWS, DIM], numbers(seed));
          const weight = device.tensor(weightDtype, [DIM], numbers(3).slice(0, DIM));
          const t = { x: make(1), other: make(2), weight, out: make(4) };
          device.resetCounters();
          const encoder = device.encoder({ optimize: optimize && { fuse: normFusions } });
          record(encoder, t);
          await encoder.commit();
          const { fusedPairs } = device.counters;
          return { fusedPairs, bits: [t.x, t.other, t.out].map((tensor) => bits(tensor.readSync())) };
        };
        const [plain, optimized] = [await run(false), await run(true)];
        expect(optimized.bits).toEqual(plain.bits);
        expect([plain.fusedPairs, optimized.fusedPairs]).toEqual([0, 1]);
      }
  });
});

describe("passes of a model", () => {
  afterEach(() => {
    delete process.env.MLXTS_FUSE;
  });

  it("give the same tokens and logits with MLXTS_FUSE=0, by more dispatches, barriers and scratch", async () => {
    const { device, model } = await openOnCpu(tiny);
    const { ids } = prompts[0] as (typeof prompts)[number];
    const run = async (fuse: "0" | "1") => {
      process.env.MLXTS_FUSE = fuse;
      using state = model.newState({ capacity: 1024 });
      device.resetCounters();
      const { liveBytes } = device.counters;
      const prompt = Array.from({ length: 1000 }, (_, i) => ids[i % ids.length] as number);
      const [logits] = await prefill(model, state, prompt, { blockLength: 1000 });
      const scratch = device.counters.peakBytes - liveBytes;
      device.resetCounters();
      using decoder = new Decoder(model, state);
      const { dispatches, automaticBarriers: barriers } = device.counters;
      const tokens = [1];
      for (let i = 0; i < 20; i++) tokens.push(await decoder.next(tokens.at(-1) as number));
      return { results: [bits(logits as Float32Array), tokens], scratch, dispatches, barriers };
    };
    const [plain, optimized] = [await run("0"), await run("1")];
    expect(optimized.results).toEqual(plain.results);
    expect([plain.dispatches, plain.barriers]).toEqual([77, 57]);
    expect(optimized.dispatches).toBeLessThanOrEqual(0.75 * plain.dispatches);
    expect(optimized.barriers).toBeLessThanOrEqual(0.75 * plain.barriers);
    expect(optimized.scratch).toBeLessThan(plain.scratch / 2);
  });
});
