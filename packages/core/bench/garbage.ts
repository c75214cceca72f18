// Bytes of JavaScript's heap that one call of a step's inner calls allocates, whether they stay or not:
// node --expose-gc --min-semi-space-size=256 --max-semi-space-size=256 scripts/run-source.mjs packages/core/bench/garbage.ts
import { getHeapStatistics } from "node:v8";
import { Device, type Tensor } from "../src/index.ts";
import { count } from "../test/kernels/chain.ts";
import { increment } from "../test/kernels/probe.ts";

const CALLS = 10_000;
const ROUNDS = 8;

const { gc } = globalThis as { gc?: () => void };
if (!gc)
  throw new Error(
    "run with --expose-gc --min-semi-space-size=256 --max-semi-space-size=256, so that nothing is collected meanwhile",
  );

const rows: Record<string, { "bytes a call": number; "µs a call": number }> = {};

/** The least of some rounds, each from an empty young generation on. */
async function measure(name: string, calls: () => unknown): Promise<void> {
  let [bytes, ms] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let round = 0; round < ROUNDS; round++) {
    gc?.();
    const before = getHeapStatistics().used_heap_size;
    const start = performance.now();
    await calls();
    ms = Math.min(ms, performance.now() - start);
    const grown = getHeapStatistics().used_heap_size - before;
    if (grown > 0) bytes = Math.min(bytes, grown);
  }
  rows[name] = { "bytes a call": Math.round(bytes / CALLS), "µs a call": Number(((ms * 1e3) / CALLS).toFixed(3)) };
}

using device = Device.open("cpu", { threads: 2 });
const words = (): Tensor<"u32"> => device.tensor("u32", [16]);
const [x, next, twice] = [words(), words(), words()];

for (const dispatches of [1, 10, 100]) {
  const encoder = device.encoder({ optimize: true });
  for (let i = 0; i < dispatches; i++) increment(encoder, { x, out: x });
  const recording = encoder.finish();
  await measure(`replay of ${dispatches} dispatches, awaited`, async () => {
    for (let i = 0; i < CALLS; i++) await recording.replay();
  });
}

const form = { dtype: "u32", shape: [16] } as const;
const record = device.bake(count, { x: form, twice: form });
const tensors = { x, next, twice };
for (const [name, encode] of [
  ["record.encode of 2 dispatches", (encoder: ReturnType<typeof device.encoder>) => record.encode(encoder, tensors)],
  ["the call itself", (encoder: ReturnType<typeof device.encoder>) => count(encoder, tensors)],
] as const)
  await measure(name, () => {
    const encoder = device.encoder();
    for (let i = 0; i < CALLS; i++) encode(encoder);
    encoder.dispose();
  });
console.table(rows);
