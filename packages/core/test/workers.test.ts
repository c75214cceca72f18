import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { describe, expect, it } from "vitest";
import { Device } from "../src/index.ts";
import { increment } from "./kernels/probe.ts";

const FILE = fileURLToPath(new URL("children/worker.ts", import.meta.url));

const worker = (data: object) =>
  new Worker(`import(${JSON.stringify(SOURCE_HOOKS)}).then(() => import(${JSON.stringify(FILE)}))`, {
    eval: true,
    workerData: data,
    execArgv: [],
  });

function firstMessage(from: Worker): Promise<unknown> {
  return new Promise((resolve, reject) => {
    from.once("message", resolve);
    from.once("error", reject);
  });
}

const ended = (from: Worker) => new Promise<number>((resolve) => from.once("exit", resolve));

describe("workers", () => {
  it("compute side by side on shared memory", async () => {
    const shared = new SharedArrayBuffer(256);
    new Uint32Array(shared).set(Array.from({ length: 64 }, (_, i) => i));
    const workers = [0, 1, 2].map(() => worker({ shared, how: "compute" }));
    const ends = workers.map(ended);
    const results = await Promise.all(workers.map(firstMessage));
    for (const result of results) expect(result).toEqual(Array.from({ length: 64 }, (_, i) => i + 1));
    expect(await Promise.all(ends)).toEqual([0, 0, 0]);
  });

  it("may be terminated with work in flight", async () => {
    for (let round = 0; round < 3; round++) {
      const shared = new SharedArrayBuffer(256);
      const one = worker({ how: "hang", ...(round > 0 && { shared }) });
      await firstMessage(one);
      expect(await one.terminate()).toBe(1);
      // The worker waited for its work in flight: nothing writes any more.
      const seen = new Uint32Array(shared)[0];
      await new Promise((resolve) => setTimeout(resolve, 20));
      expect(new Uint32Array(shared)[0]).toBe(seen);
    }
  });

  it("may die of an error with work in flight", async () => {
    const one = worker({ how: "throw" });
    const end = ended(one);
    await expect(firstMessage(one)).rejects.toThrow("in the worker");
    expect(await end).toBe(1);
  });

  it("leave the main thread's devices alone", async () => {
    using device = Device.open("cpu", { threads: 2 });
    const one = worker({ how: "hang" });
    await firstMessage(one);
    const stopped = one.terminate();
    const x = device.tensor("u32", [64]);
    for (let i = 0; i < 50; i++) {
      const encoder = device.encoder();
      increment(encoder, { x, out: x }, { groups: 8 });
      await encoder.commit();
    }
    await stopped;
    expect(x.readSync()[0]).toBe(50);
  });
});
