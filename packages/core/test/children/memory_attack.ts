// A random program over wrapped memory: `memory_attack.ts SEED STEPS`. In random order, arrays are lent, wrapped, detached,
// written by a worker and dropped; buffers and devices are disposed; work is committed and replayed. Every error must be a
// typed one. Prints the number of submissions. Runs on any version of Node.js.
import { setTimeout as sleep } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { type Buffer, Device, type Recording, Tensor } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

declare const gc: () => void;

const [seed = 1, steps = 200] = process.argv.slice(2).map(Number);
let state = seed * 2654435761 + 12345;
/** A whole number below `n`. */
function random(n: number): number {
  state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
  return Math.floor((state / 2 ** 32) * n);
}
const pick = <T>(list: readonly T[]): T | undefined => list[random(list.length)];
function drop<T>(list: T[]): T | undefined {
  return list.splice(random(list.length), 1)[0];
}

const PAGE = 16384;
type Transferable = ArrayBuffer & { transfer?(bytes?: number): ArrayBuffer };
type Growable = SharedArrayBuffer & { grow(bytes: number): void };
const Shared = SharedArrayBuffer as unknown as new (bytes: number, options?: object) => SharedArrayBuffer;

const devices = [0, 1].map(() => Device.open(undefined, { threads: 2 }));
const arrays: Uint32Array[] = [];
const tensors: Tensor<"u32">[] = [];
const buffers: Buffer[] = [];
const recordings: Recording[] = [];
const waiting: Promise<unknown>[] = [];
let submissions = 0;

// A worker that keeps writing the memory that the devices read and write.
const shared = new Shared(2 * PAGE);
const worker = new Worker(
  "const { workerData } = require('node:worker_threads'); const a = new Uint32Array(workerData);" +
    "setInterval(() => { for (let i = 0; i < a.length; i++) a[i] = i; }, 0);",
  { eval: true, workerData: shared },
);
arrays.push(new Uint32Array(shared));

function commit(replay: boolean): void {
  const device = pick(devices) as Device;
  const encoder = device.encoder();
  const own = tensors.filter((tensor) => tensor.device === device);
  for (let i = random(4); i >= 0; i--) {
    const x = pick(own);
    const out = pick(own.filter((tensor) => tensor.size === x?.size));
    if (x && out) increment(encoder, { x, out }, { microseconds: random(3000) });
  }
  if (replay) {
    const recording = encoder.finish();
    recordings.push(recording);
    waiting.push(Promise.resolve(recording.replay()));
  } else waiting.push(Promise.resolve(encoder.commit()));
  submissions++;
}

const actions: (() => unknown)[] = [
  () => tensors.push((pick(devices) as Device).tensor("u32", [((1 + random(4)) * PAGE) / 4])),
  () => arrays.push((pick(tensors) as Tensor<"u32">).typedArray()),
  () => arrays.push(new Uint32Array(((1 + random(64)) * PAGE) / 4)),
  () => arrays.push(new Uint32Array(new Shared(PAGE, { maxByteLength: 8 * PAGE }))),
  () => {
    const array = pick(arrays) as Uint32Array;
    const pages = Math.floor(array.byteLength / PAGE);
    const first = random(Math.max(1, pages));
    const part = random(2) ? array : array.subarray((first * PAGE) / 4, ((first + 1) * PAGE) / 4);
    const buffer = (pick(devices) as Device).wrap(part);
    buffers.push(buffer);
    tensors.push(new Tensor(buffer, "u32", [part.length]));
  },
  () => commit(false),
  () => commit(false),
  () => commit(true),
  () => {
    waiting.push(Promise.resolve((pick(recordings) as Recording).replay()));
    submissions++;
  },
  () => drop(tensors)?.dispose(),
  () => drop(buffers)?.dispose(),
  () => drop(recordings)?.dispose(),
  () => drop(arrays),
  () => drop(tensors),
  () => {
    const { buffer } = pick(arrays) as Uint32Array;
    structuredClone(buffer, { transfer: [buffer as ArrayBuffer] });
  },
  () => {
    const buffer = pick(arrays)?.buffer as Transferable;
    const moved = buffer.transfer?.(random(2) ? buffer.byteLength : random(8 * PAGE));
    if (moved && random(2)) arrays.push(new Uint32Array(moved, 0, Math.floor(moved.byteLength / 4)));
  },
  () => {
    const { buffer } = pick(arrays) as Uint32Array;
    if (buffer instanceof SharedArrayBuffer) (buffer as Growable).grow(buffer.byteLength + PAGE);
  },
  () => {
    if (random(8)) return;
    const at = random(2);
    (devices[at] as Device).dispose();
    devices[at] = Device.open(undefined, { threads: 2 });
  },
  () => (pick(tensors) as Tensor).readSync(),
  () => waiting.push((pick(tensors) as Tensor).read()),
  () => (pick(tensors) as Tensor<"u32">).view(0, [1]).write([7]),
];

const typed = (error: unknown): boolean => {
  const { code, name } = error as { code?: unknown; name: string };
  // Errors of the arrays themselves, and of picking from an empty list.
  return (
    code === "InvalidArgument" || code === "Disposed" || ["TypeError", "DataCloneError", "RangeError"].includes(name)
  );
};
const check = (error: unknown): void => {
  if (!typed(error)) throw error;
};

for (let step = 0; step < steps; step++) {
  try {
    (pick(actions) as () => unknown)();
  } catch (error) {
    check(error);
  }
  for (const promise of waiting) promise.then(null, () => {});
  if (random(6) === 0) await sleep(random(3));
  if (random(12) === 0) gc();
  if (random(20) === 0) for (const { reason } of await settled()) if (reason) check(reason);
}
function settled(): Promise<{ reason?: unknown }[]> {
  return Promise.allSettled(waiting.splice(0)) as Promise<{ reason?: unknown }[]>;
}
for (const { reason } of await settled()) if (reason) check(reason);
for (const device of devices) device.dispose();
await worker.terminate();
process.stdout.write(`${submissions} submissions`);
