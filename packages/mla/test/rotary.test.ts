import { refusalTests } from "@mlxts/test-kit/refusals";
import { describe, expect, it } from "vitest";
import { rotaryTable, type YarnOptions, yarnRotary } from "../src/index.ts";

const deepseek: YarnOptions = {
  ropeDim: 64,
  headDim: 192,
  base: 1e4,
  factor: 40,
  originalLength: 4096,
  mscale: 1,
  mscaleAllDim: 1,
};
const tiny: YarnOptions = { ...deepseek, ropeDim: 32, headDim: 96, factor: 4, originalLength: 1024 };

/** Nine digits, as they were recorded. */
const digits = (value: number | undefined) => Number((value as number).toPrecision(9));

describe("yarnRotary", () => {
  it("has DeepSeek-V3's frequencies, amplitude and scale", () => {
    const { inverseFrequencies: inverse, amplitude, softmaxScale } = yarnRotary(deepseek);
    expect(inverse.length).toBe(32);
    expect([10, 11, 16, 22, 23, 31].map((i) => digits(inverse[i]))).toEqual([
      0.0562341325, 0.0390069266, 0.0055, 1.77827941e-4, 3.33380358e-5, 3.33380358e-6,
    ]);
    expect(amplitude).toBe(1);
    expect(digits(softmaxScale)).toBe(0.135233779);
    expect(digits(softmaxScale * Math.sqrt(192))).toBe(1.87385421);
    expect(digits(yarnRotary({ ...deepseek, mscaleAllDim: 0 }).amplitude)).toBe(1.36888795);
  });

  it("has those of the tiny checkpoint", () => {
    const { inverseFrequencies: inverse, softmaxScale } = yarnRotary(tiny);
    expect([2, 3, 4, 8].map((i) => digits(inverse[i]))).toEqual([
      0.316227766, 0.158774947, 0.0785714286, 0.00357142857,
    ]);
    // Recorded from f32.
    expect(Math.fround(inverse[15] as number)).toBe(Math.fround(4.44569843e-5));
    expect(digits(softmaxScale)).toBe(0.132321129);
  });

  it("has V2-Lite's scale", () => {
    // biome-ignore lint/suspicious/noApproximativeNumericConstant: the number of its config
    const mscale = 0.707;
    const { softmaxScale } = yarnRotary({ ...deepseek, mscale, mscaleAllDim: mscale });
    expect(digits(softmaxScale * Math.sqrt(192))).toBe(1.58962617);
  });

  it("takes mscale alone for the amplitude, and leaves the scale", () => {
    const { amplitude, softmaxScale } = yarnRotary({ ...deepseek, mscale: 0.5, mscaleAllDim: undefined });
    expect(amplitude).toBe(0.05 * Math.log(40) + 1);
    expect(softmaxScale).toBe(192 ** -0.5);
  });

  it("takes an attention factor instead", () => {
    expect(yarnRotary({ ...deepseek, attentionFactor: 0.9 }).amplitude).toBe(0.9);
  });

  it("is the plain embedding without a factor", () => {
    const { inverseFrequencies, amplitude, softmaxScale } = yarnRotary({ ropeDim: 8, headDim: 24, base: 1e4 });
    expect([...inverseFrequencies]).toEqual([0, 1, 2, 3].map((i) => 1e4 ** (-i / 4)));
    expect([amplitude, softmaxScale]).toEqual([1, 24 ** -0.5]);
  });

  it("keeps fractions of the ramp's borders where it is told to", () => {
    const ramp = (truncate: boolean) => {
      const { inverseFrequencies } = yarnRotary({ ...deepseek, truncate });
      const kept = 1e4 ** (-16 / 32);
      return (kept - (inverseFrequencies[16] as number)) / (kept - kept / 40);
    };
    const border = (turns: number) => (64 * Math.log(4096 / (2 * Math.PI * turns))) / (2 * Math.log(1e4));
    expect(ramp(true)).toBeCloseTo(6 / 13, 12);
    expect(ramp(false)).toBeCloseTo((16 - border(32)) / (border(1) - border(32)), 12);
  });

  it("has a ramp of one step where its borders are equal", () => {
    const { inverseFrequencies } = yarnRotary({
      ropeDim: 4,
      headDim: 4,
      base: 1e4,
      factor: 2,
      originalLength: 1,
      betaFast: 1,
    });
    expect([...inverseFrequencies]).toEqual([1, 1e4 ** -0.5 / 2]);
  });
});

describe("rotaryTable", () => {
  it("has cosines, then sines, of each position", () => {
    const table = rotaryTable({ inverseFrequencies: Float64Array.of(1, 0.25), amplitude: 2 }, 3);
    expect([...table]).toEqual(
      [0, 1, 2].flatMap((p) =>
        [Math.cos(p), Math.cos(p / 4), Math.sin(p), Math.sin(p / 4)].map((v) => Math.fround(2 * v)),
      ),
    );
  });

  it("is right to f32 at far positions", () => {
    const rotary = yarnRotary(deepseek);
    const row = rotaryTable(rotary, 131072).subarray(131071 * 64);
    const angle = 131071 * (rotary.inverseFrequencies[3] as number);
    expect(row[3]).toBe(Math.fround(Math.cos(angle)));
    expect(row[35]).toBe(Math.fround(Math.sin(angle)));
  });
});

const yarn = (options: Partial<YarnOptions>) => () => yarnRotary({ ...deepseek, ...options });

describe("refusals of host functions", () => {
  refusalTests([
    ["odd", yarn({ ropeDim: 63 }), "yarnRotary: `ropeDim` must be an even integer ≥ 2, got 63"],
    ["head", yarn({ headDim: 63 }), "yarnRotary: `headDim` must be an integer ≥ 64, got 63"],
    ["base", yarn({ base: 1 }), "yarnRotary: `base` must be a finite number > 1, got 1"],
    ["factor", yarn({ factor: 0.5 }), "yarnRotary: `factor` must be a finite number ≥ 1, got 0.5"],
    ["length", yarn({ originalLength: 0 }), "yarnRotary: `originalLength` must be a finite number > 0, got 0"],
    [
      "no length",
      yarn({ originalLength: undefined }),
      "yarnRotary: `originalLength` must be a finite number > 0, got undefined",
    ],
    ["slow", yarn({ betaSlow: 0 }), "yarnRotary: `betaSlow` must be a finite number > 0, got 0"],
    ["fast", yarn({ betaFast: 0.5 }), "yarnRotary: `betaFast` must be a finite number ≥ 1, got 0.5"],
    ["mscale", yarn({ mscale: -1 }), "yarnRotary: `mscale` must be a finite number ≥ 0, got -1"],
    ["mscaleAllDim", yarn({ mscaleAllDim: -1 }), "yarnRotary: `mscaleAllDim` must be a finite number ≥ 0, got -1"],
    [
      "amplitude",
      yarn({ attentionFactor: Number.POSITIVE_INFINITY }),
      "yarnRotary: `attentionFactor` must be a finite number ≥ 0, got Infinity",
    ],
    [
      "amplitude beyond f32",
      yarn({ attentionFactor: 1e39 }),
      "yarnRotary: `attentionFactor` must be finite as f32, got 1e+39",
    ],
    [
      "mscale beyond f32",
      yarn({ mscale: 1e40 }),
      "yarnRotary: `mscale` must give a finite amplitude as f32, got 1e+40",
    ],
    [
      "mscaleAllDim beyond f32",
      yarn({ mscaleAllDim: 1e200 }),
      "yarnRotary: `mscaleAllDim` must give a finite softmaxScale as f32, got 1e+200",
    ],
    [
      "no rows",
      () => rotaryTable(yarnRotary(deepseek), 0),
      "rotaryTable: `rows` must be an integer ≥ 1 and ≤ 16777216, got 0",
    ],
  ]);
});
