// A process whose workers end while they use devices: `activity count seed`. Workers end in each way, `count` of each.
import { closeSync, ftruncateSync, openSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { isMainThread, parentPort, Worker, workerData } from "node:worker_threads";
import { Device } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

/** More than one report of a load. */
const FILE_BYTES = 65 * 2 ** 20;
/** How a worker ends, and the exit codes that it may have: one that is terminated before it runs ends with 0. */
const CODES = { terminate: [0, 1], exit: [3], natural: [0] };
type Ending = keyof typeof CODES;
interface Task {
  readonly activity: string;
  readonly ending: Ending;
  readonly path: string;
  readonly steps: number;
}

/** What a worker does again and again. */
function stepOf({ activity, path }: Task, device: Device): () => unknown {
  const words = activity === "read" || activity === "write" ? 2 ** 18 : 64;
  const x = device.tensor("u32", [words]);
  const many = new Uint32Array(words);
  const encoder = device.encoder();
  for (let i = 0; i < 8; i++) increment(encoder, { x, out: x }, { groups: 8 });
  const recording = encoder.finish();
  switch (activity) {
    case "open":
      return () => Device.open().dispose();
    case "load":
      return async () => (await device.mapFile(path, FILE_BYTES, { onProgress: () => {} })).dispose();
    case "generate":
      return async () => {
        await recording.replay();
        await x.read();
      };
    case "read":
      return async () => {
        await recording.replay();
        x.readSync();
      };
    case "write":
      return async () => {
        x.write(many);
        await recording.replay();
      };
    case "dispose":
      return () => {
        const other = Device.open();
        const y = other.tensor("u32", [64]);
        const encoder = other.encoder();
        increment(encoder, { x: y, out: y }, { groups: 8, microseconds: 20 });
        void encoder.commit();
        other.dispose();
      };
    default:
      throw new Error(`unknown activity ${activity}`);
  }
}

async function work(task: Task): Promise<void> {
  const device = Device.open(undefined, { threads: 1 });
  const step = stepOf(task, device);
  for (let i = 0; i < task.steps; i++) {
    await step();
    if (i === 0) parentPort?.postMessage("running");
    if (i % 8 === 7) await sleep(0);
  }
  if (task.ending !== "exit") return;
  void step();
  process.exit(3);
}

const [activity = "", count, seed] = process.argv.slice(2);
let state = Number(seed);
const random = () => {
  state = (state * 48271) % 0x7fffffff;
  return state / 0x7fffffff;
};

function start(ending: Ending, path: string): { worker: Worker; running: Promise<unknown>; end: Promise<number> } {
  const steps = ending === "terminate" ? Number.POSITIVE_INFINITY : Math.ceil(random() * 6);
  const worker = new Worker(process.argv[1] as string, { workerData: { activity, ending, path, steps } });
  const end = new Promise<number>((resolve, reject) => {
    worker.once("exit", resolve);
    worker.once("error", reject);
  });
  return { worker, end, running: Promise.race([end, new Promise((resolve) => worker.once("message", resolve))]) };
}

async function endOne(ending: Ending, path: string): Promise<void> {
  const { worker, running, end } = start(ending, path);
  if (ending === "terminate") {
    // Some end while they begin.
    const begun = random() < 0.7;
    if (begun) await running;
    await sleep(random() * (begun ? 8 : 120));
    await worker.terminate();
  }
  const code = await end;
  if (!CODES[ending].includes(code)) throw new Error(`${ending}: a worker ended with ${code}`);
}

async function main(): Promise<void> {
  const path = join(tmpdir(), `mlxts-ending-${process.pid}`);
  const file = openSync(path, "w");
  ftruncateSync(file, FILE_BYTES);
  closeSync(file);
  process.on("exit", () => rmSync(path));
  for (const ending of Object.keys(CODES) as Ending[]) {
    for (let left = Number(count); left > 0; left -= 4)
      await Promise.all(Array.from({ length: Math.min(left, 4) }, () => endOne(ending, path)));
    process.stdout.write(`${ending}\n`);
  }
  // The last ones end with the process.
  const last = Array.from({ length: 4 }, () => start("terminate", path));
  await Promise.all(last.slice(1).map(({ running }) => running));
  await sleep(random() * 20);
  process.exit(5);
}

if (isMainThread) await main();
else await work(workerData as Task);
