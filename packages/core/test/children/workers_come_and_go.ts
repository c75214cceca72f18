// Workers come and go, two at a time, for so many rounds; one ends by itself, the other one is terminated. Prints the resident
// bytes of the process after each eighth of the rounds.
import { setTimeout as sleep } from "node:timers/promises";
import { isMainThread, parentPort, Worker } from "node:worker_threads";
import { Device } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

async function work(): Promise<void> {
  const device = Device.open(undefined, { threads: 1 });
  const x = device.tensor("u32", [2 ** 16]);
  const encoder = device.encoder();
  for (let i = 0; i < 4; i++) increment(encoder, { x, out: x }, { groups: 8 });
  const recording = encoder.finish();
  for (let i = 0; i < 20; i++) {
    x.write(new Uint32Array(2 ** 16));
    await recording.replay();
    await x.read();
    if (i === 0) parentPort?.postMessage("running");
  }
}

const [rounds = "8"] = process.argv.slice(2);

async function main(): Promise<void> {
  const part = Math.ceil(Number(rounds) / 8);
  const resident: number[] = [];
  for (let round = 1; round <= part * 8; round++) {
    const ends = [true, false].map(async (terminated) => {
      const worker = new Worker(process.argv[1] as string);
      const end = new Promise((resolve, reject) => worker.once("exit", resolve).once("error", reject));
      if (terminated) {
        await new Promise((resolve) => worker.once("message", resolve));
        await sleep(round % 7);
        await worker.terminate();
      }
      await end;
    });
    await Promise.all(ends);
    if (round % part > 0) continue;
    globalThis.gc?.();
    await sleep(50);
    resident.push(process.memoryUsage.rss());
  }
  process.stdout.write(JSON.stringify(resident));
}

if (isMainThread) await main();
else await work();
