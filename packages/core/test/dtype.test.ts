import { describe, expect, it } from "vitest";
import { DTYPES, decodeNumbers, encodeNumbers, isDtype, isFloat, roundTo } from "../src/index.ts";

const ALL = Uint16Array.from({ length: 65536 }, (_, i) => i);
const f32 = (bits: number) => new Float32Array(new Uint32Array([bits]).buffer)[0] as number;
const bits = (dtype: "bf16" | "f16", values: number[]) => [...encodeNumbers(dtype, values)].map(Number);
const isNan = (dtype: "bf16" | "f16", b: number) => (dtype === "bf16" ? (b & 0x7fff) > 0x7f80 : (b & 0x7fff) > 0x7c00);

/** Rounding by its definition: the nearest of all values of the dtype; of two nearest, the even one. */
function nearest(sorted: Float64Array, value: number): number {
  let low = 0;
  let high = sorted.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if ((sorted[middle] as number) <= value) low = middle;
    else high = middle;
  }
  const [a, b] = [sorted[low] as number, sorted[high] as number];
  const tie = value - a === b - value;
  return (tie ? low % 2 === 0 : value - a < b - value) ? low : high;
}

describe.each(["bf16", "f16"] as const)("%s", (dtype) => {
  const values = decodeNumbers(dtype, ALL);

  it("survives a round trip, every bit pattern of it", () => {
    const again = encodeNumbers(dtype, values) as Uint16Array;
    for (let b = 0; b < 65536; b++) {
      if (isNan(dtype, b)) expect(isNan(dtype, again[b] as number)).toBe(true);
      else expect(again[b]).toBe(b);
    }
  });

  it("rounds to the nearest, ties to even, as the definition says", () => {
    // Bit patterns of positive finite values have the order of the values; the one past the largest is infinity.
    const top = dtype === "bf16" ? 0x7f80 : 0x7c00;
    const sorted = values.slice(0, top + 1);
    sorted[top] = dtype === "bf16" ? 2 ** 128 : 65536;
    const checked: number[] = [];
    for (let b = 0; b < top; b += dtype === "bf16" ? 7 : 3) {
      const [low, high] = [sorted[b] as number, sorted[b + 1] as number];
      const middle = (low + high) / 2;
      for (const x of [low, middle, low + (high - low) / 4, low + ((high - low) * 3) / 4]) {
        const f = Math.fround(x);
        checked.push(f);
        const bitsOf = new Uint32Array(new Float32Array([f]).buffer)[0] as number;
        if (f === middle) checked.push(f32(bitsOf - 1), f32(bitsOf + 1));
      }
    }
    const positive = checked.filter((x) => Number.isFinite(x) && x > 0);
    const got = bits(dtype, positive);
    const negative = bits(
      dtype,
      positive.map((x) => -x),
    );
    positive.forEach((x, i) => {
      const expected = nearest(sorted, x);
      if (got[i] !== expected || negative[i] !== (expected | 0x8000))
        throw new Error(`${x}: ${got[i]} and ${negative[i]}, must be ${expected}`);
    });
    expect(positive.length).toBeGreaterThan(20_000);
  });

  it("keeps signed zeros, infinities, and NaN with its sign", () => {
    const infinity = dtype === "bf16" ? 0x7f80 : 0x7c00;
    expect(bits(dtype, [0, -0, Infinity, -Infinity])).toEqual([0, 0x8000, infinity, infinity | 0x8000]);
    for (const nan of [0x7f800001, 0x7fc00000, 0x7fffffff]) {
      const raw = new Float32Array(new Uint32Array([nan]).buffer);
      expect(isNan(dtype, bits(dtype, [raw[0] as number])[0] as number)).toBe(true);
    }
    expect(roundTo(dtype, Number.NaN)).toBeNaN();
  });
});

describe("16-bit floats", () => {
  it("keep subnormals", () => {
    expect(bits("bf16", [1e-39, -1e-39, 2 ** -149])).toEqual([0x000b, 0x800b, 0]);
    expect(bits("f16", [2 ** -24, 2 ** -25, 2 ** -25 * 1.0001, 2 ** -14 - 2 ** -25])).toEqual([1, 0, 1, 0x400]);
  });

  it("become infinity past the largest", () => {
    expect(bits("f16", [65504, 65519.99, 65520, 1e6])).toEqual([0x7bff, 0x7bff, 0x7c00, 0x7c00]);
    expect(bits("bf16", [f32(0x7f7f0000), f32(0x7f7f7fff), f32(0x7f7f8000), 3.4028234e38])).toEqual([
      0x7f7f, 0x7f7f, 0x7f80, 0x7f80,
    ]);
  });
});

describe("dtypes", () => {
  it("have bytes and arrays that agree", () => {
    for (const { bytesPerElement, array } of Object.values(DTYPES))
      expect(array.BYTES_PER_ELEMENT).toBe(bytesPerElement);
    expect([isDtype("f32"), isDtype("f64"), isDtype("toString"), isDtype(4)]).toEqual([true, false, false, false]);
    expect([isFloat("bf16"), isFloat("u16")]).toEqual([true, false]);
  });

  it("take numbers and give them back", () => {
    expect([...decodeNumbers("i64", encodeNumbers("i64", [1, -5]))]).toEqual([1, -5]);
    expect([...decodeNumbers("i8", encodeNumbers("i8", [127, -128]))]).toEqual([127, -128]);
    expect([...decodeNumbers("f32", encodeNumbers("f32", [0.1]))]).toEqual([Math.fround(0.1)]);
  });
});
