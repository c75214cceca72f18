// A worker of workers.test.ts: computes on a device of its own, or ends with work in flight.
import { parentPort, workerData } from "node:worker_threads";
import { Device, Tensor } from "../../src/index.ts";
import { increment } from "../kernels/probe.ts";

const { shared, how } = workerData as { shared?: SharedArrayBuffer; how: "compute" | "hang" | "throw" };
const device = Device.open(undefined, { threads: 2 });
if (how === "compute") {
  const buffer = device.wrap(new Uint32Array(shared as SharedArrayBuffer));
  const x = new Tensor(buffer, "u32", [64]);
  const out = device.tensor("u32", [64]);
  for (let i = 0; i < 200; i++) {
    const encoder = device.encoder();
    increment(encoder, { x, out }, { groups: 8 });
    await encoder.commit();
  }
  parentPort?.postMessage([...out.readSync()]);
  device.dispose();
} else {
  const x = shared ? new Tensor(device.wrap(new Uint32Array(shared)), "u32", [64]) : device.tensor("u32", [64]);
  const encoder = device.encoder();
  for (let i = 0; i < 50; i++) increment(encoder, { x, out: x }, { groups: 64, microseconds: 100 });
  void encoder.commit();
  if (how === "throw") throw new Error("in the worker");
  parentPort?.postMessage("running");
  await new Promise(() => setInterval(() => {}, 1000));
}
