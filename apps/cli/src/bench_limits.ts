import { type Limits, measureLimits } from "@mlxts/bench";
import { Device } from "@mlxts/core";
import type { BenchCase } from "@mlxts/core/testing";
import type { Limit } from "./bench_report.ts";

/** What this machine can do with these numbers of threads. */
export async function limitsFor(threads: readonly number[]): Promise<Limits[]> {
  const all: Limits[] = [];
  for (const count of threads) {
    using device = Device.open("cpu", { threads: count });
    all.push(await measureLimits(device));
  }
  return all;
}

/** Cases of more bytes do not stay in the caches. */
const CACHED_BYTES = 16 * 2 ** 20;

/** The least µs that the machine allows a case: its bytes, or its operations. */
export function limitOf(testCase: BenchCase, limits: Limits): Limit {
  const { bytes, flops, products = "f32" } = testCase;
  const from = testCase.from ?? (bytes > CACHED_BYTES ? "memory" : "core cache");
  const speed = { memory: limits.memoryGBs, "shared cache": limits.sharedCacheGBs, "core cache": limits.coreCacheGBs };
  const rate = { f32: limits.gflopsF32, bf16: limits.gflopsBf16, int8: limits.gopsInt8 };
  const moving = bytes / speed[from] / 1e3;
  const computing = flops / rate[products] / 1e3;
  return moving >= computing ? { value: moving, of: from } : { value: computing, of: `${products} products` };
}
