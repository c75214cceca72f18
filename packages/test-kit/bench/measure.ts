// Medians of benchmark cases: what `npm run bench` and tables of packages print.
import { Device } from "@mlxts/core";
import type { BenchCase } from "@mlxts/core/testing";

const median = (times: number[]) => times.sort((a, b) => a - b)[Math.floor(times.length / 2)] as number;

/** Median µs of one call: enough calls in one recording that the clock and the hand-over do not matter. */
export async function measure(testCase: BenchCase, threads: number, samples: number): Promise<number> {
  using device = Device.open("cpu", { threads });
  const { encode } = testCase.setup(device);
  const record = (calls: number) => {
    const arena = device.arena(1 << 24, { grow: true });
    const encoder = device.encoder({ arena });
    for (let i = 0; i < calls; i++) {
      const mark = arena.mark();
      encode(encoder);
      arena.rewind(mark);
      // Calls follow one another, as the ops of a model do.
      encoder.barrier();
    }
    return encoder.finish();
  };
  const once = record(1);
  await once.replay();
  const { ms } = await once.replay();
  const calls = Math.max(1, Math.min(2000, Math.ceil(4 / Math.max(ms, 1e-3))));
  const recording = record(calls);
  await recording.replay();
  const times: number[] = [];
  for (let i = 0; i < samples; i++) times.push(((await recording.replay()).ms * 1000) / calls);
  return median(times);
}

/** The same of the peer, if there is one. */
export async function measurePeer(testCase: BenchCase, threads: number, samples: number): Promise<number | undefined> {
  const call = await testCase.peer?.setup(threads);
  if (!call) return undefined;
  for (let i = 0; i < 3; i++) await call();
  const times: number[] = [];
  for (let i = 0; i < samples; i++) {
    const start = performance.now();
    await call();
    times.push((performance.now() - start) * 1000);
  }
  return median(times);
}
