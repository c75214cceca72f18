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

/** Memory of a device's own, to find out how fast it is read. */
export interface Reading extends Disposable {
  /** Reads all of it, by all threads, and returns 10⁹ bytes a second. */
  run(): Promise<number>;
}

interface Rounds {
  /** How often everything is read in turn. */
  rounds?: number;
  /** How often each part is read before the next. */
  repeats?: number;
}

function readingOf(device: Device, bytes: number, { rounds = 1, repeats = 1 }: Rounds = {}): Reading {
  const groups = device.limits.threads * 4;
  const perGroup = Math.floor(bytes / 4 / groups / 64) * 64;
  const x = device.tensor("f32", [perGroup * groups]);
  // Pages that nobody has written are all the same one.
  x.typedArray().fill(1);
  const out = device.tensor("f32", [groups, 2]);
  return {
    async run() {
      const encoder = device.encoder();
      for (let round = 0; round < rounds; round++)
        encoder.dispatch(peakReadKernel, {
          variant: "f32",
          buffers: { x, out },
          params: { perGroup, repeats },
          sizes: { groups },
        });
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

/** 512 MiB of a CPU device, to find out how fast memory is read between measurements of something else. */
export const memoryReading = (device: Device): Reading => readingOf(device, MEMORY_BYTES);

/** The highest of some rates: what disturbs a measurement only makes it slower. */
async function highest(measure: () => Promise<number>): Promise<number> {
  let best = 0;
  for (let i = 0; i < 7; i++) best = Math.max(best, await measure());
  return best;
}

/**
 * Measures what a CPU device can do, with kernels for that alone, in about half a second.
 * @throws MlxtsError `KernelNotFound` for a device of another kind: there are no such kernels for it.
 */
export async function measureLimits(device: Device): Promise<Limits> {
  const { threads } = device.limits;
  const groups = threads * 4;
  const out = device.tensor("f32", [groups, 2]);
  const multiply = async (variant: (typeof PRODUCTS)[number]) => {
    const iterations = 100_000;
    const params = { iterations, factor: 0.999 };
    const perSecond = await highest(async () => {
      const encoder = device.encoder();
      encoder.dispatch(peakMultiplyKernel, { variant, buffers: { out }, params, sizes: { groups } });
      return 1000 / (await encoder.commit()).ms;
    });
    const perIteration = (await out.readNumbers())[0] as number;
    return (perIteration * iterations * groups * perSecond) / 1e9;
  };
  const multiplyTiles = async (variant: "bf16_tiles" | "int8_tiles") =>
    device.library(benchLibrary).has(peakMultiplyKernel.name, variant) ? await multiply(variant) : null;
  const read = async (bytes: number, rounds?: Rounds) => {
    using reading = readingOf(device, bytes, rounds);
    return await highest(() => reading.run());
  };
  const limits = {
    threads,
    gflopsF32: await multiply("f32"),
    gflopsBf16: await multiply("bf16"),
    gopsInt8: await multiply("int8"),
    gflopsBf16Tiles: await multiplyTiles("bf16_tiles"),
    gopsInt8Tiles: await multiplyTiles("int8_tiles"),
    memoryGBs: await read(MEMORY_BYTES),
    // More for each thread than its own cache holds, before anything is read again.
    sharedCacheGBs: await read(Math.max(2 ** 24, 2 ** 22 * threads), { rounds: 8 }),
    coreCacheGBs: await read(2 ** 19 * threads, { repeats: 200 }),
  };
  out.dispose();
  return limits;
}
