import { type Device, defineKernel, defineLibrary } from "@mlxts/core";

const benchLibrary = defineLibrary("bench", import.meta.url);

/** Products of vectors, which every level has, and those of whole tiles, which some do. */
const PRODUCTS = ["f32", "bf16", "int8", "bf16_tiles", "int8_tiles"] as const;

const launch = { cpu: ({ groups }: { groups: number }) => ({ threadgroups: [groups, 1, 1] as const }) };

export const peakMultiplyKernel = defineKernel({
  library: benchLibrary,
  name: "peak_multiply",
  variants: PRODUCTS,
  buffers: { out: "write" },
  params: { iterations: "u32", factor: "f32" },
  launch,
});

export const peakReadKernel = defineKernel({
  library: benchLibrary,
  name: "peak_read",
  variants: ["f32"],
  buffers: { x: "read", out: "write" },
  params: { perGroup: "u32", repeats: "u32" },
  launch,
});

/** What the machine can do at best on a device's threads, measured now. */
export interface Limits {
  threads: number;
  /** Multiplications and additions, counted apart, in 10⁹ a second: f32, pairs of bf16, four bytes. */
  gflopsF32: number;
  gflopsBf16: number;
  gopsInt8: number;
  /** The same of tiles, bf16 and bytes, where kernels of the device's level have them; else null. */
  gflopsBf16Tiles: number | null;
  gopsInt8Tiles: number | null;
  /**
   * Reads in 10⁹ bytes a second: from memory (512 MiB), from the shared cache (16 MiB, or 4 MiB for each thread), from the
   * second cache of each core (512 KiB).
   */
  memoryGBs: number;
  sharedCacheGBs: number;
  coreCacheGBs: number;
}

/** A rate of `Limits`. */
export type Rate = Exclude<keyof Limits, "threads">;

/** What a rate is of, made ready to be done again and again: between measurements of something else, too. */
export interface RateProbe extends Disposable {
  /** Does it once, on all threads of the device: 10⁹ a second. */
  run(): Promise<number>;
}

function multiplication(device: Device, variant: (typeof PRODUCTS)[number]): RateProbe {
  const groups = device.limits.threads * 4;
  const out = device.tensor("f32", [groups, 2]);
  const iterations = 100_000;
  const dispatch = { variant, buffers: { out }, params: { iterations, factor: 0.999 }, sizes: { groups } };
  return {
    async run() {
      const encoder = device.encoder();
      encoder.dispatch(peakMultiplyKernel, dispatch);
      const { ms } = await encoder.commit();
      const perIteration = (await out.readNumbers())[0] as number;
      return (perIteration * iterations * groups) / ms / 1e6;
    },
    [Symbol.dispose]: () => out.dispose(),
  };
}

const multiplicationOfTiles = (device: Device, variant: (typeof PRODUCTS)[number]) =>
  device.library(benchLibrary).has(peakMultiplyKernel.name, variant) ? multiplication(device, variant) : null;

interface Rounds {
  /** How often everything is read in turn. */
  rounds?: number;
  /** How often each part is read before the next. */
  repeats?: number;
}

function reading(device: Device, bytes: number, { rounds = 1, repeats = 1 }: Rounds = {}): RateProbe {
  const groups = device.limits.threads * 4;
  const perGroup = Math.floor(bytes / 4 / groups / 64) * 64;
  const x = device.tensor("f32", [perGroup * groups]);
  // Pages that nobody has written are all the same one.
  x.typedArray().fill(1);
  const out = device.tensor("f32", [groups, 2]);
  const dispatch = { variant: "f32", buffers: { x, out }, params: { perGroup, repeats }, sizes: { groups } } as const;
  return {
    async run() {
      const encoder = device.encoder();
      for (let round = 0; round < rounds; round++) encoder.dispatch(peakReadKernel, dispatch);
      return (perGroup * groups * 4 * rounds * repeats) / (await encoder.commit()).ms / 1e6;
    },
    [Symbol.dispose]() {
      x.dispose();
      out.dispose();
    },
  };
}

/** Far more than caches hold. */
const MEMORY_BYTES = 2 ** 29;

const PROBES: Record<Rate, (device: Device) => RateProbe | null> = {
  gflopsF32: (device) => multiplication(device, "f32"),
  gflopsBf16: (device) => multiplication(device, "bf16"),
  gopsInt8: (device) => multiplication(device, "int8"),
  gflopsBf16Tiles: (device) => multiplicationOfTiles(device, "bf16_tiles"),
  gopsInt8Tiles: (device) => multiplicationOfTiles(device, "int8_tiles"),
  memoryGBs: (device) => reading(device, MEMORY_BYTES),
  // More for each thread than its own cache holds, before anything is read again.
  sharedCacheGBs: (device) => reading(device, Math.max(2 ** 24, 2 ** 22 * device.limits.threads), { rounds: 8 }),
  coreCacheGBs: (device) => reading(device, 2 ** 19 * device.limits.threads, { repeats: 200 }),
};

/**
 * What a rate of a CPU device is of; null where its kernels have no such products. It has the memory that it reads until
 * it is disposed.
 * @throws MlxtsError `KernelNotFound` for a device of another kind: there are no such kernels for it.
 */
export const rateProbe = (device: Device, rate: Rate): RateProbe | null => PROBES[rate](device);

/** The highest of some rates, since what disturbs a measurement only makes it slower; null where there is none. */
async function highest(device: Device, rate: Rate): Promise<number | null> {
  using probe = rateProbe(device, rate);
  if (!probe) return null;
  let best = 0;
  for (let i = 0; i < 7; i++) best = Math.max(best, await probe.run());
  return best;
}

/**
 * Measures what a CPU device can do, with kernels for that alone, in about half a second.
 * @throws MlxtsError `KernelNotFound` for a device of another kind: there are no such kernels for it.
 */
export async function measureLimits(device: Device): Promise<Limits> {
  const rates: Partial<Record<Rate, number | null>> = {};
  for (const rate of Object.keys(PROBES) as Rate[]) rates[rate] = await highest(device, rate);
  return { threads: device.limits.threads, ...rates } as Limits;
}
