import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { afterAll, beforeAll, expect, it } from "vitest";
import { increment } from "./kernels/probe.ts";
import { runChild } from "./run_child.ts";
import { describeSimulated, openMetal, set } from "./simulator.ts";

const FILE = fileURLToPath(new URL("children/worker.ts", import.meta.url));

describeSimulated("lifetime on the Metal device", () => {
  it("frees memory in flight only after its last use", async () => {
    set({ fault: "delay:50" });
    using device = openMetal();
    const x = device.tensor("u32", [1000]);
    const y = device.tensor("u32", [1000]);
    const encoder = device.encoder();
    for (let i = 0; i < 5; i++) increment(encoder, { x, out: x }, { groups: 8 });
    increment(encoder, { x, out: y }, { groups: 8 });
    const submission = encoder.commit();
    x.dispose();
    expect(device.counters.liveBuffers).toBe(2);
    await submission;
    expect(device.counters.liveBuffers).toBe(1);
    expect([...y.readSync()]).toEqual(Array(1000).fill(6));
  });

  it("ends a device with work in flight, well or not", async () => {
    for (const fault of ["delay:30", "delay:30,fail:timeout"]) {
      set({ fault });
      const device = openMetal();
      const x = device.tensor("u32", [64]);
      const encoder = device.encoder();
      increment(encoder, { x, out: x });
      const submission = encoder.commit();
      submission.then(null, () => {});
      expect(submission.state).toBe("committed");
      device.dispose();
      expect(submission.state).toBe(fault.includes("fail") ? "failed" : "completed");
    }
  });

  it("keeps the event loop free, and blocks when told to", async () => {
    set({ fault: "delay:200" });
    using device = openMetal();
    const x = device.tensor("u32", [64]);
    const commit = () => {
      const encoder = device.encoder();
      increment(encoder, { x, out: x });
      return encoder.commit();
    };
    let ticks = 0;
    const timer = setInterval(() => ticks++, 5);
    await commit();
    clearInterval(timer);
    expect(ticks).toBeGreaterThan(3);
    commit().waitSync();
    expect(x.readSync()[0]).toBe(2);
  });

  it("survives devices that come and go", async () => {
    for (let i = 0; i < 40; i++) {
      using device = openMetal();
      const x = device.tensor("u32", [256]);
      const encoder = device.encoder();
      increment(encoder, { x, out: x }, { groups: 16 });
      if (i % 2) await encoder.commit();
      else void encoder.commit();
    }
  });
});

describeSimulated("processes and workers with work on the Metal device", () => {
  const env = {
    MLXTS_DEVICE: "metal",
    MLXTS_METAL_SIM: process.env.MLXTS_METAL_SIM ?? "1",
    MLXTS_METAL_SIM_REPORT: "1",
    MLXTS_METAL_SIM_FAULT: "delay:20",
  };
  const report = /metal-sim: (\d+) live objects, (\d+) command buffers.* (\d+) residency commits/;

  const endings: [how: string, code: number, stdout: string, live: number | undefined][] = [
    ["natural", 0, "80\n", 0],
    ["dispose", 0, "disposed\n", 0],
    ["idle", 0, "idle\n", 0],
    // Node.js ends at once: nothing is disposed, but nothing crashes either.
    ["exit", 7, "", undefined],
    ["later", 7, "", undefined],
    ["throw", 1, "", undefined],
    ["reject", 1, "", undefined],
  ];
  it.each(endings)("end as they should: %s", async (how, code, stdout, live) => {
    // At once, too: the process then ends while kernels run.
    for (let round = 0; round < 2 && live === undefined; round++) {
      const early = await runChild("in_flight", [how], { ...env, MLXTS_METAL_SIM_FAULT: "" });
      expect({ code: early.code, signal: early.signal }).toEqual({ code, signal: null });
    }
    const end = await runChild("in_flight", [how], env);
    expect(end.signal).toBe(null);
    expect({ code: end.code, stdout: end.stdout }).toEqual({ code, stdout });
    const [, objects, buffers, commits] = report.exec(end.stderr) ?? [];
    // One commit for all allocations before a submission, none when nothing has changed.
    expect(Number(commits)).toBe(1);
    expect(Number(buffers)).toBeGreaterThanOrEqual(4);
    if (live !== undefined) expect(Number(objects)).toBe(live);
  });

  it("give back the memory of a device that has gone before it", async () => {
    const end = await runChild("outliving", [], env);
    expect({ code: end.code, stdout: end.stdout }).toEqual({ code: 0, stdout: "0\n" });
    expect(end.stderr).toMatch(/^metal-sim: 0 live objects, /);
  });

  const before = process.env.MLXTS_DEVICE;
  beforeAll(() => {
    process.env.MLXTS_DEVICE = "metal";
  });
  afterAll(() => {
    if (before === undefined) delete process.env.MLXTS_DEVICE;
    else process.env.MLXTS_DEVICE = before;
  });
  it.each(["hang", "throw"])("let workers go: %s", async (how) => {
    set({ fault: "delay:20" });
    for (let round = 0; round < 3; round++) {
      const worker = new Worker(`import(${JSON.stringify(SOURCE_HOOKS)}).then(() => import(${JSON.stringify(FILE)}))`, {
        eval: true,
        workerData: { how },
        execArgv: [],
      });
      const ended = new Promise<number>((resolve) => worker.once("exit", resolve));
      const first = await new Promise((resolve) => {
        worker.once("message", resolve);
        worker.once("error", (error) => resolve(error.message));
      });
      expect(first).toBe(how === "hang" ? "running" : "in the worker");
      if (how === "hang") expect(await worker.terminate()).toBe(1);
      else expect(await ended).toBe(1);
    }
  });
});
