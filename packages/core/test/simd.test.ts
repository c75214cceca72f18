import { describe, expect, it } from "vitest";
import { cpuLevels, type Dtype, encodeNumbers } from "../src/index.ts";
import { Random } from "../src/testing/index.ts";
import { testDevice } from "./helpers.ts";
import { convertKernel, functionsKernel } from "./kernels/probe.ts";

const random = new Random(3);
/** Every exponent and sign, mantissas at and around each rounding boundary, and random ones. */
const FLOATS = (() => {
  const words: number[] = [];
  for (let high = 0; high < 512; high++)
    for (const mantissa of [
      0, 1, 0x7fff, 0x8000, 0x8001, 0xfff, 0x1000, 0x1001, 0x17fff, 0x18000, 0x18001, 0x3000, 0x7fffff, 0x7f8000,
      0x7fe000, 0x7ff000, 0x400000,
    ])
      words.push(((high << 23) | mantissa) >>> 0);
  for (let i = 0; i < 20_000; i++) words.push(random.below(2 ** 32));
  words.push(0x477fefff, 0x477ff000, 0x38800000, 0x387fffff, 0x33000000, 0x33000001, 0x000ae398);
  return new Float32Array(new Uint32Array(words).buffer);
})();
const isNan16 = (dtype: Dtype, bits: number) => (bits & 0x7fff) > (dtype === "bf16" ? 0x7f80 : 0x7c00);

describe.each(cpuLevels())("simd on %s", (level) => {
  const device = testDevice({ level });

  async function convert(variant: string, from: Dtype, to: Dtype, data: ArrayLike<number>) {
    const x = device.tensor(from, [data.length], data as never);
    const out = device.tensor(to, [data.length]);
    const scalar = device.tensor(to, [data.length]);
    const encoder = device.encoder();
    encoder.dispatch(convertKernel, {
      variant,
      buffers: { x, out, scalar },
      params: { count: data.length },
      sizes: {},
    });
    await encoder.commit();
    return [out.readSync(), scalar.readSync()] as [Uint16Array, Uint16Array];
  }

  it.each(["bf16", "f16"] as const)("rounds f32 to %s like the contract, NaN with its sign", async (dtype) => {
    const expected = encodeNumbers(dtype, FLOATS);
    for (const got of await convert(`f32_${dtype}`, "f32", dtype, FLOATS))
      for (let i = 0; i < FLOATS.length; i++) {
        const value = FLOATS[i] as number;
        if (Number.isNaN(value)) {
          const sign = new Uint32Array(FLOATS.buffer)[i] as number;
          expect(isNan16(dtype, got[i] as number)).toBe(true);
          expect((got[i] as number) >> 15).toBe(sign >>> 31);
        } else if (got[i] !== expected[i]) throw new Error(`${value}: ${got[i]}, must be ${expected[i]}`);
      }
  });

  it.each(["bf16", "f16"] as const)("keeps every bit pattern of %s", async (dtype) => {
    const all = Uint16Array.from({ length: 65536 }, (_, i) => i);
    for (const got of await convert(`${dtype}_${dtype}`, dtype, dtype, all))
      for (let b = 0; b < 65536; b++)
        if (isNan16(dtype, b) ? !isNan16(dtype, got[b] as number) : got[b] !== b) throw new Error(`${b}: ${got[b]}`);
    for (const got of await convert(`${dtype}_f32`, dtype, "f32", all))
      expect(encodeNumbers(dtype, got.filter((v) => !Number.isNaN(v)) as never)).toEqual(
        all.filter((b) => !isNan16(dtype, b)),
      );
  });

  it.each([1, 3, 4, 7, 15, 17, 33])("treats the last of %i elements like the others", async (count) => {
    const [vector, scalar] = await convert("f32_f16", "f32", "f16", FLOATS.slice(1000, 1000 + count));
    expect(vector).toEqual(scalar);
  });

  async function functions(xs: Float32Array) {
    const x = device.tensor("f32", [xs.length], xs);
    const out = () => device.tensor("f32", [xs.length]);
    const [exp, log, sigmoid, silu, siluForBf16] = [out(), out(), out(), out(), out()];
    const encoder = device.encoder();
    encoder.dispatch(functionsKernel, {
      variant: "f32",
      buffers: { x, exp, log, sigmoid, silu, siluForBf16 },
      params: { count: xs.length },
      sizes: {},
    });
    await encoder.commit();
    return {
      exp: exp.readSync(),
      log: log.readSync(),
      sigmoid: sigmoid.readSync(),
      silu: silu.readSync(),
      siluForBf16: siluForBf16.readSync(),
    };
  }

  it("computes the logarithm of every exponent, and around 1, to the last bits", async () => {
    const xs = Float32Array.from({ length: 40_003 }, (_, i) => 2 ** ((i - 20_000) / 160));
    xs.set(Array.from({ length: 2001 }, (_, i) => 1 + (i - 1000) * 2 ** -23));
    const { log } = await functions(xs);
    log.forEach((value, i) => {
      const want = Math.log(xs[i] as number);
      if (Math.abs(value - want) > 2 ** -22 * Math.abs(want)) throw new Error(`${xs[i]}: ${value}, must be ${want}`);
    });
  });

  it("computes exp, sigmoid and silu to the last bits", async () => {
    const xs = Float32Array.from({ length: 40_003 }, (_, i) => (i - 20_000) / 180);
    const special = [Infinity, -Infinity, Number.NaN, 0, -0, 88.72, 88.73, 89, 200, -87.4, -103, -104, -200, 1e-40];
    xs.set(special);
    const { exp, sigmoid, silu, siluForBf16 } = await functions(xs);
    const within = (got: Float32Array, of: (v: number) => number, relative: number, least = 2 ** -149) => {
      got.forEach((value, i) => {
        const v = xs[i] as number;
        const want = of(v);
        const rounded = Math.fround(want);
        if (!Number.isFinite(rounded) || Number.isNaN(rounded)) {
          if (!Object.is(value, rounded)) throw new Error(`${v}: ${value}, must be ${rounded}`);
        } else if (Math.abs(value - want) > relative * Math.abs(want) + least)
          throw new Error(`${v}: ${value}, must be ${want}`);
      });
    };
    within(exp, Math.exp, 2 ** -23);
    // Subnormal results, too: f32 has multiples of 2^-149.
    within(sigmoid, (v) => 1 / (1 + Math.exp(-v)), 2 ** -21.5);
    within(silu, (v) => v / (1 + Math.exp(-v)), 2 ** -21.5);
    within(siluForBf16, (v) => v / (1 + Math.exp(-v)), 2 ** -21);
  });

  it("computes silu of numbers of every size, for a result of 16 bits too", async () => {
    const xs = Float32Array.from({ length: 80_000 }, (_, i) => (i % 2 ? 1 : -1) * 2 ** (random.uniform() * 30 - 24.7));
    expect(Math.max(...xs)).toBeGreaterThan(38);
    const { silu, siluForBf16 } = await functions(xs);
    const worst = (got: Float32Array) =>
      xs.reduce((most, v, i) => Math.max(most, Math.abs((got[i] as number) * ((1 + Math.exp(-v)) / v) - 1)), 0);
    expect(worst(silu)).toBeLessThan(2 ** -22);
    expect(worst(siluForBf16)).toBeLessThan(2 ** -21.5);
  });

  it("computes a number alike beside whatever others", async () => {
    const numbers = Float32Array.from({ length: 4096 }, () => random.normal() * 12);
    const others = [39.9, 40.1, -40.1, -95, -Infinity, Infinity, Number.NaN, 0, 1e30, -1e30];
    const beside = (other: (i: number) => number) =>
      functions(Float32Array.from({ length: 8192 }, (_, i) => (i % 2 ? other(i >> 1) : (numbers[i >> 1] as number))));
    const calm = await beside(() => 0.5);
    const wild = await beside((i) => others[i % others.length] as number);
    for (const name of ["exp", "sigmoid", "silu", "siluForBf16"] as const)
      for (let i = 0; i < 8192; i += 2)
        if (!Object.is(calm[name][i], wild[name][i])) throw new Error(`${name} of ${numbers[i >> 1]}`);
  });
});
