import { type Limits, measureLimits, type Rate } from "@mlxts/bench";
import { Device } from "@mlxts/core";
import type { BenchCase } from "@mlxts/core/testing";
import type { Limit } from "./bench_report.ts";

async function limitsOf(threads: number): Promise<Limits> {
  using device = Device.open("cpu", { threads });
  return await measureLimits(device);
}

/** What this machine can do with these numbers of threads. */
export async function limitsFor(threads: readonly number[]): Promise<Limits[]> {
  const all: Limits[] = [];
  for (const count of threads) all.push(await limitsOf(count));
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

/** Kinds of products, and their rates. */
const PRODUCTS = {
  "f32 products": "gflopsF32",
  "bf16 products": "gflopsBf16",
  "int8 products": "gopsInt8",
  "bf16 tiles": "gflopsBf16Tiles",
  "int8 tiles": "gopsInt8Tiles",
} as const satisfies Record<string, Rate>;

/** How fast each kind of products is in 10⁹ operations a second, those of whole tiles where the machine's kernels have them. */
export const productRates = (limits: Limits): { name: string; rate: number }[] =>
  Object.entries(PRODUCTS).flatMap(([name, key]) => (limits[key] === null ? [] : [{ name, rate: limits[key] }]));

/** Places of bytes, and how fast they are read. */
const PLACES = {
  memory: "memoryGBs",
  "shared cache": "sharedCacheGBs",
  "core cache": "coreCacheGBs",
} as const satisfies Record<string, Rate>;

interface Way {
  name: keyof typeof PRODUCTS;
  /** So many of them make one product of the case. */
  parts?: number;
}

/** Products of numbers of so many bytes. */
const inBytes = (parts: number): Way[] => [
  { name: "int8 products", parts },
  { name: "int8 tiles", parts },
];
const F32: Way = { name: "f32 products" };
/** f32 does all that pairs of bf16 do, and is faster than they on some processors. */
const BF16: readonly Way[] = [{ name: "bf16 products" }, F32, { name: "bf16 tiles" }];

/** What products may be made with. */
const WAYS: Record<NonNullable<BenchCase["products"]>, readonly Way[]> = {
  f32: [F32],
  bf16: BF16,
  int8: inBytes(1),
  "f32 with codes": [F32, ...inBytes(3)],
  "bf16 with codes": [...BF16, ...inBytes(2)],
};

/** The least µs that the machine allows a case by one of its rates. */
export interface Bound extends Limit {
  rate: Rate;
}

/** The shorter of what products take in each of the ways. */
function computing({ flops, products = "f32" }: BenchCase, limits: Limits): Bound {
  const ways = WAYS[products].flatMap(({ name, parts = 1 }): Bound[] => {
    const rate = PRODUCTS[name];
    const speed = limits[rate];
    if (speed === null) return [];
    return [{ value: (flops * parts) / speed / 1e3, of: parts > 1 ? `${parts} × ${name}` : name, rate }];
  });
  return ways.reduce((best, way) => (way.value < best.value ? way : best));
}

/** The least µs that the machine allows a case: its bytes, or its operations. */
export function boundOf(testCase: BenchCase, limits: Limits): Bound {
  const of = testCase.from ?? placeOf(testCase.bytes, limits.threads);
  const moving = { value: testCase.bytes / limits[PLACES[of]] / 1e3, of, rate: PLACES[of] };
  const products = computing(testCase, limits);
  return moving.value >= products.value ? moving : products;
}
