// Kernels read numbers that decide addresses (ids, lengths, cuts of packed rows) from memory that somebody else may
// write at any time. Here a worker does: whatever the kernels meet, nothing but their outputs may be written.
import { type ChildProcess, spawn } from "node:child_process";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { type CommandEncoder, Device, type Dtype, Tensor, tensorBytes } from "@mlxts/core";
import { SOURCE_HOOKS } from "./source.ts";

export interface Attack {
  /** Contents that the op accepts; the worker goes from one to another. */
  right: readonly (readonly number[])[];
  /** What it writes over single entries for a moment; without any, every run must succeed. */
  wrong: readonly number[];
  /** Records the op. `output` makes tensors between guard bytes. */
  encode(encoder: CommandEncoder, indices: Tensor<"i32">, output: (dtype: Dtype, shape: number[]) => Tensor): void;
}

const GUARD_BYTES = 1 << 20;
const GUARD = 0x5a;
/** Ends of both kinds that an attack is to see, and runs during which the worker wrote, which are few on a busy machine. */
const ENDS = 20;
const WRITTEN = 1000;
/** How long it lasts at least, how long for so many such runs, and how long at most. */
const MILLISECONDS = { least: 600, written: 10_000, most: 60_000 };

/**
 * It pauses now and then, with right and with wrong numbers in place: whom the system wakes, it runs at once, in the middle
 * of a kernel if there is no idle processor. One that never pauses has a processor for milliseconds between two runs, and
 * hardly ever during one. Some pauses are longer than the longest run.
 */
const WORKER = `
const { workerData: { indices, right, wrong, turns } } = require("node:worker_threads");
const never = new Int32Array(new SharedArrayBuffer(4));
const pause = (milliseconds) => Atomics.wait(never, 0, 0, milliseconds);
for (let turn = 0; ; turn++) {
  Atomics.add(turns, 0, 1);
  const now = right[turn % right.length];
  for (let i = 0; i < now.length; i++) indices[i] = now[i];
  if (Math.random() < 0.1) pause(Math.random() < 0.05 ? 5 : 0.1 * Math.random());
  for (let i = Math.random() * 4000; i > 0; i--) Atomics.load(indices, 0);
  if (wrong.length === 0) continue;
  const at = Math.floor(Math.random() * now.length);
  for (let i = Math.random() * 300; i > 0; i--) indices[at] = wrong[turn % wrong.length];
  if (Math.random() < 0.05) pause(0.1 * Math.random());
}`;

/** Runs an attack in this process; ends with an error where guards were written or other failures came. Counts the replays. */
export async function attack({ right, wrong, encode }: Attack): Promise<number> {
  const [first = []] = right;
  const shared = new Int32Array(new SharedArrayBuffer(4 * first.length));
  shared.set(first);
  const device = Device.open("cpu", { threads: 2 });
  const outputs: { whole: Uint8Array; bytes: number }[] = [];
  const encoder = device.encoder();
  encode(encoder, new Tensor(device.wrap(shared), "i32", [first.length]), (dtype, shape) => {
    const bytes = tensorBytes(dtype, shape);
    const whole = device.tensor("u8", [bytes + 2 * GUARD_BYTES]);
    outputs.push({ whole: whole.typedArray().fill(GUARD), bytes });
    return new Tensor(whole.buffer, dtype, shape, { byteOffset: GUARD_BYTES });
  });
  const recording = encoder.finish();
  const turns = new Int32Array(new SharedArrayBuffer(4));
  const worker = new Worker(WORKER, { eval: true, workerData: { indices: shared, right, wrong, turns } });
  const started = performance.now();
  const ends = { done: 0, refused: 0 };
  let written = 0;
  for (;;) {
    const elapsed = performance.now() - started;
    const shaken = written >= WRITTEN || elapsed > MILLISECONDS.written;
    const enough = shaken && ends.done >= ENDS && (wrong.length === 0 || ends.refused >= ENDS);
    if (elapsed > MILLISECONDS.most || (enough && elapsed > MILLISECONDS.least)) break;
    const turn = Atomics.load(turns, 0);
    try {
      await recording.replay();
      ends.done++;
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      const place = / at (?:index|position|sequence) (\d+)\b/.exec(message)?.[1];
      if (code !== "InvalidArgument" || Number(place ?? 0) >= first.length) throw error;
      ends.refused++;
    }
    if (Atomics.load(turns, 0) - turn > 1) written++;
  }
  await worker.terminate();
  for (const { whole, bytes } of outputs) {
    const intact = (part: Uint8Array) => part.every((byte) => byte === GUARD);
    if (!intact(whole.subarray(0, GUARD_BYTES)) || !intact(whole.subarray(GUARD_BYTES + bytes)))
      throw new Error("bytes outside an output were written");
  }
  if (ends.done === 0 || wrong.length > 0 !== ends.refused > 0)
    throw new Error(`nothing was attacked: ${JSON.stringify(ends)}`);
  device.dispose();
  return ends.done + ends.refused;
}

const HERE = fileURLToPath(import.meta.url);

/** Runs an attack of a module that exports `attacks` in a process of its own; what it said is returned if it failed. */
export function survives(module: string, name: string): Promise<string> {
  const child: ChildProcess = spawn(process.execPath, ["--import", SOURCE_HOOKS, HERE, module, name]);
  let said = "";
  for (const stream of [child.stdout, child.stderr])
    stream?.on("data", (text) => {
      said += text;
    });
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code, signal) =>
      // A process that has attacked nothing ends well, too.
      resolve(
        code === 0 && /^[1-9]\d* replays\n$/.test(said) ? "" : `${name}: ${signal ?? `exit code ${code}`}\n${said}`,
      ),
    );
  });
}

if (process.argv[1] === HERE) {
  const [module, name] = process.argv.slice(2) as [string, string];
  const { attacks } = (await import(module)) as { attacks: Record<string, Attack> };
  console.log(`${await attack(attacks[name] as Attack)} replays`);
}
