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
/** No core's own cache holds more. */
const CORE_BYTES = 2 * 2 ** 20;

/** Where the bytes of a case come from, if it does not say so itself. */
function placeOf(bytes: number, threads: number): NonNullable<BenchCase["from"]> {
  if (bytes > CACHED_BYTES) return "memory";
  return bytes > CORE_BYTES * threads ? "shared cache" : "core cache";
}

interface Rate {
  /** As `bf16 tiles`. */
  name: string;
  /** 10⁹ operations a second. */
  rate: number;
}

/** How fast each kind of products is, those of whole tiles where the machine's kernels have them. */
export function productRates(limits: Limits): Rate[] {
  const tiles = [
    { name: "bf16 tiles", rate: limits.gflopsBf16Tiles },
    { name: "int8 tiles", rate: limits.gopsInt8Tiles },
  ];
  return [
    { name: "f32 products", rate: limits.gflopsF32 },
    { name: "bf16 products", rate: limits.gflopsBf16 },
    { name: "int8 products", rate: limits.gopsInt8 },
    ...tiles.flatMap(({ name, rate }) => (rate === null ? [] : [{ name, rate }])),
  ];
}

interface Way {
  /** The name of a rate. */
  name: string;
  /** So many of them make one product of the case. */
  parts?: number;
}

/** What products may be made with: f32 does all that pairs of bf16 do, and is faster than they on some processors. */
const WAYS: Record<NonNullable<BenchCase["products"]>, readonly Way[]> = {
  f32: [{ name: "f32 products" }],
  bf16: [{ name: "bf16 products" }, { name: "f32 products" }, { name: "bf16 tiles" }],
  int8: [{ name: "int8 products" }, { name: "int8 tiles" }],
  codes: [{ name: "f32 products" }, { name: "int8 products", parts: 3 }, { name: "int8 tiles", parts: 3 }],
};

/** The fastest of them, as a rate of the case's own products. */
function fastest(products: keyof typeof WAYS, limits: Limits): Rate {
  const rates = productRates(limits);
  const ways = WAYS[products].flatMap(({ name, parts = 1 }) => {
    const found = rates.find((rate) => rate.name === name);
    return found ? [{ name: parts > 1 ? `${parts} × ${name}` : name, rate: found.rate / parts }] : [];
  });
  return ways.reduce((best, way) => (way.rate > best.rate ? way : best));
}

/** The least µs that the machine allows a case: its bytes, or its operations. */
export function limitOf(testCase: BenchCase, limits: Limits): Limit {
  const { bytes, flops, products = "f32" } = testCase;
  const from = testCase.from ?? placeOf(bytes, limits.threads);
  const speed = { memory: limits.memoryGBs, "shared cache": limits.sharedCacheGBs, "core cache": limits.coreCacheGBs };
  const { rate, name } = fastest(products, limits);
  const moving = bytes / speed[from] / 1e3;
  const computing = flops / rate / 1e3;
  return moving >= computing ? { value: moving, of: from } : { value: computing, of: name };
}
