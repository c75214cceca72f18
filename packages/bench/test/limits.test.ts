import { cpuLevels, Device } from "@mlxts/core";
import { testedLevels } from "@mlxts/test-kit/devices";
import { expect, it } from "vitest";
import { measureLimits, rateProbe } from "../src/index.ts";

// What runs beside a test may slow one measurement down, but hardly three.
it.each(testedLevels())("measures rates that a processor can have, level %s", { retry: 2 }, async (level) => {
  using device = Device.open("cpu", { threads: 1, level });
  const limits = await measureLimits(device);
  expect(limits.threads).toBe(1);
  const { gflopsF32, gflopsBf16, gopsInt8, memoryGBs, sharedCacheGBs, coreCacheGBs } = limits;
  for (const rate of [gflopsF32, gflopsBf16, gopsInt8, memoryGBs, sharedCacheGBs, coreCacheGBs]) {
    expect(rate).toBeGreaterThan(0.5);
    // Eight 512-bit products of f32 in each nanosecond are more than any core has.
    expect(rate).toBeLessThan(8192);
  }
  // Equal chains of sums would be made one by the compiler, and the rate many times too high.
  expect(gflopsF32).toBeLessThan(600);
  if (["amx", "avx512"].includes(device.level)) {
    // Intel's processors multiply pairs of bf16 at half the rate of f32.
    expect(gflopsBf16 / gflopsF32).toBeGreaterThan(0.4);
    expect(gopsInt8 / gflopsF32).toBeGreaterThan(1.5);
  }
  if (device.level === "avx2") {
    // A product of bytes has four times as many operations as one of f32; additions alone would be faster still.
    expect(gopsInt8 / gflopsF32).toBeGreaterThan(1.5);
    expect(gopsInt8 / gflopsF32).toBeLessThan(4.5);
  }
  const { gflopsBf16Tiles, gopsInt8Tiles } = limits;
  if (device.level !== "amx") return expect([gflopsBf16Tiles, gopsInt8Tiles]).toEqual([null, null]);
  // A tile of 16 × 16 sums takes 16 cycles, in which vectors make 2 · 16 products of 16 lanes: that is 8192 of bf16 beside 512.
  for (const rate of [gflopsBf16Tiles, (gopsInt8Tiles as number) / 2]) {
    expect((rate as number) / gflopsF32).toBeGreaterThan(3);
    expect((rate as number) / gflopsF32).toBeLessThan(32);
  }
});

it("measures a rate between measurements of something else", { retry: 2 }, async () => {
  using device = Device.open("cpu", { threads: 1 });
  const { sharedCacheGBs, gflopsF32 } = await measureLimits(device);
  using memory = rateProbe(device, "memoryGBs");
  using products = rateProbe(device, "gflopsF32");
  const rates: number[][] = [[], []];
  for (let i = 0; i < 3; i++)
    for (const [at, probe] of [memory, products].entries()) rates[at]?.push((await probe?.run()) ?? 0);
  const [read, multiplied] = rates as [number[], number[]];
  expect(Math.min(...read)).toBeGreaterThan(0.5);
  // Not what a cache gives, nor pages that nobody has written.
  expect(Math.min(...read)).toBeLessThan(sharedCacheGBs);
  expect(Math.max(...multiplied) / gflopsF32).toBeGreaterThan(0.5);
  expect(Math.max(...multiplied) / gflopsF32).toBeLessThan(2);
});

it("has no rate of tiles where kernels have none", () => {
  using device = Device.open("cpu", { threads: 1, level: cpuLevels().at(-1) as string });
  expect(rateProbe(device, "gopsInt8Tiles")).toBeNull();
});
