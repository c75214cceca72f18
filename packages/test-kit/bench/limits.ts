import { type CommandEncoder, type Device, defineKernel, defineLibrary } from "@mlxts/core";

const limitsLibrary = defineLibrary("test-kit", import.meta.url);

export const peakFmaKernel = defineKernel({
  library: limitsLibrary,
  name: "peak_fma",
  variants: ["f32"],
  buffers: { out: "write" },
  params: { iterations: "u32", factor: "f32" },
  launch: { cpu: ({ groups }: { groups: number }) => ({ threadgroups: [groups, 1, 1] }) },
});

export const peakReadKernel = defineKernel({
  library: limitsLibrary,
  name: "peak_read",
  variants: ["f32"],
  buffers: { x: "read", out: "write" },
  params: { perGroup: "u32", repeats: "u32" },
  launch: { cpu: ({ groups }: { groups: number }) => ({ threadgroups: [groups, 1, 1] }) },
});

/** What the machine can do at best on a device's threads, measured now. */
export interface Limits {
  /** f32 multiply-adds counted as two. */
  gflops: number;
  /** Reads from memory, and from a working set that stays in the caches near the cores. */
  memoryGBs: number;
  cacheGBs: number;
}

const best = async (rounds: number, run: () => Promise<number>) => {
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < rounds; i++) least = Math.min(least, await run());
  return least;
};

export async function measureLimits(device: Device): Promise<Limits> {
  const { threads } = device.limits;
  const groups = threads * 4;
  const out = device.tensor("f32", [groups, 2]);
  const timed = (record: (encoder: CommandEncoder) => void) => async () => {
    const encoder = device.encoder();
    record(encoder);
    return (await encoder.commit()).ms / 1000;
  };
  const iterations = 200_000;
  const fma = timed((encoder) =>
    encoder.dispatch(peakFmaKernel, {
      variant: "f32",
      buffers: { out },
      params: { iterations, factor: 0.999 },
      sizes: { groups },
    }),
  );
  const seconds = await best(7, fma);
  const perIteration = (await out.readNumbers())[0] as number;
  const read = async (bytes: number, repeats: number) => {
    const perGroup = Math.floor(bytes / 4 / groups / 64) * 64;
    const x = device.tensor("f32", [perGroup * groups]);
    // Pages that nobody has written are all the same one.
    x.typedArray().fill(1);
    const run = timed((encoder) =>
      encoder.dispatch(peakReadKernel, {
        variant: "f32",
        buffers: { x, out },
        params: { perGroup, repeats },
        sizes: { groups },
      }),
    );
    const least = await best(7, run);
    x.dispose();
    return (perGroup * groups * 4 * repeats) / least / 1e9;
  };
  const limits = {
    gflops: (2 * perIteration * iterations * groups) / seconds / 1e9,
    memoryGBs: await read(2 ** 28, 1),
    cacheGBs: await read(2 ** 19 * threads, 200),
  };
  out.dispose();
  return limits;
}
