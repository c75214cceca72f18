import { Device } from "@mlxts/core";
import { expect, it } from "vitest";
import { measureLimits } from "../src/index.ts";

it("measures rates that a processor can have, the narrower products no slower", async () => {
  using device = Device.open("cpu", { threads: 1 });
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
});
