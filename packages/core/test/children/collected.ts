// Drops devices, buffers and recordings without disposing them, and prints what is left after garbage collections.
import { readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { Device } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";
import { wrappable } from "../wrappable.ts";

declare const gc: () => void;
const threads = () => readdirSync("/proc/self/task").length;

async function collect(done: () => boolean): Promise<void> {
  for (let i = 0; i < 100 && !done(); i++) {
    // In another job: reading a WeakRef keeps its target until the current job ends.
    await sleep(10);
    gc();
  }
}

async function lose(): Promise<void> {
  const device = Device.open("cpu", { threads: 3 });
  const x = device.tensor("u32", [1 << 16]);
  const encoder = device.encoder();
  increment(encoder, { x, out: x });
  await encoder.commit();
  const again = device.encoder();
  increment(again, { x, out: x });
  again.finish();
}

const before = threads();
for (let i = 0; i < 10; i++) await lose();
const most = threads();
await collect(() => threads() <= before);

const device = Device.open("cpu", { threads: 1 });
// The garbage collector must know of the bytes: nothing else triggers a collection here.
for (let i = 0; i < 3000; i++) {
  device.buffer(1 << 20).write(new Uint8Array([1]));
  if (i % 100 === 0) await sleep(0);
}
const peak = device.counters.peakBytes;
const wrapped = (() => {
  const array = wrappable(new Uint8Array(64));
  device.wrap(array).dispose();
  return new WeakRef(array.buffer);
})();
await collect(() => wrapped.deref() === undefined);
await collect(() => device.counters.liveBuffers === 0);
process.stdout.write(
  JSON.stringify({
    before,
    most,
    after: threads() - 1,
    peak,
    buffers: device.counters.liveBuffers,
    arrays: wrapped.deref() === undefined ? 0 : 1,
  }),
);
