// Submissions and lifetimes on the CUDA device: replays that overlap, a lost device, processes and workers that end.
import { rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { childEnvironment } from "@mlxts/test-kit/cuda_standin";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { expect, it } from "vitest";
import type { Device, MlxtsError, Tensor } from "../src/index.ts";
import { describeCuda, linesOf, openCuda, set } from "./cuda.ts";
import { caught, rejected, testFolder } from "./helpers.ts";
import { fill } from "./internals.ts";
import { accumulateKernel, increment, limit } from "./kernels/probe.ts";
import { runChild } from "./run_child.ts";

const SEEDS = [1, 2, 3, 4, 5];

function work(device: Device, count = 1, options?: { profile: boolean }) {
  const x = device.tensor("u32", [8]);
  const encoder = device.encoder();
  for (let i = 0; i < count; i++) increment(encoder, { x, out: x });
  return { x, submission: encoder.commit(options) };
}

/** A recording of branches that join, and of what it makes of them: y = 8 * (x + 1) + 1, and x + 1 in its place. */
function diamond(device: Device, x: Tensor) {
  const parts = Array.from({ length: 4 }, () => device.tensor("u32", [1]));
  const total = device.tensor("u32", [1]);
  const out = device.tensor("u32", [1]);
  const encoder = device.encoder();
  increment(encoder, { x, out: x });
  for (const part of parts) increment(encoder, { x, out: part }, { microseconds: 20 });
  const add = (a: Tensor, b: Tensor, to: Tensor) =>
    encoder.dispatch(accumulateKernel, { variant: "u32", buffers: { x: a, y: b, total: to }, params: {}, sizes: {} });
  add(parts[0] as Tensor, parts[1] as Tensor, total);
  add(parts[2] as Tensor, parts[3] as Tensor, total);
  increment(encoder, { x: total, out });
  return { recording: encoder.finish(), total, out };
}

describeCuda("submissions on the CUDA device", () => {
  it.each(SEEDS)("replay branches between barriers, without waiting: %i", async (seed) => {
    set(`seed:${seed},delay:300`);
    using device = openCuda();
    const x = device.tensor("u32", [1], [1]);
    const { recording, total, out } = diamond(device, x);
    const all = [recording.replay(), recording.replay(), recording.replay({ profile: seed % 2 === 0 })];
    for (const one of all) await one;
    // x becomes 2, 3 and 4, and each part one more: 4 * (3 + 4 + 5).
    expect([x.readSync()[0], total.readSync()[0], out.readSync()[0]]).toEqual([4, 48, 49]);
  });

  it.each(SEEDS)("feed each other while the host writes to one and reads of the other: %i", async (seed) => {
    set(`seed:${seed},delay:300`);
    using device = openCuda();
    const word = () => device.tensor("u32", [1], [0]);
    const [a, b, ofA, ofB] = [word(), word(), word(), word()];
    const encoder = device.encoder();
    const buffers = { x: a, y: ofA, total: b };
    encoder.dispatch(accumulateKernel, { variant: "u32", buffers, params: {}, sizes: {} });
    const first = encoder.finish();
    const second = first.rebind([
      [a, b],
      [b, a],
      [ofA, ofB],
    ]);
    const steps = [
      { recording: first, own: ofA, out: b },
      { recording: second, own: ofB, out: a },
    ] as const;
    const begin = (at: number) => {
      const step = steps[at % 2] as (typeof steps)[number];
      step.own.write([at]);
      return { ...step, submission: step.recording.replay() };
    };
    const read: number[] = [];
    for (let at = 1, ahead = begin(0); at <= 30; at++) {
      const { submission, out } = ahead;
      ahead = begin(at);
      await submission;
      read.push(out.readSync()[0] as number);
      if (at === 30) await ahead.submission;
    }
    const sums: [number, number] = [0, 0];
    const expected = Array.from({ length: 30 }, (_, at) => {
      const [from, to] = at % 2 === 0 ? ([0, 1] as const) : ([1, 0] as const);
      sums[to] = (sums[to] + sums[from] + at) % 2 ** 32;
      return sums[to];
    });
    expect(read).toEqual(expected);
  });

  it("launch kernels of a replay before those that they depend on have ended, where the GPU can", async () => {
    const replayed = async (words: string) => {
      set(words);
      using device = openCuda();
      const x = device.tensor("u32", [1], [1]);
      const { recording, out } = diamond(device, x);
      await recording.replay();
      return out.readSync()[0];
    };
    expect(await replayed("capability:90")).toBe(13);
    expect(await replayed("capability:80,cuGraphAddDependencies_v2@1=1")).toBe(13);
    await expect(replayed("capability:90,cuGraphAddDependencies_v2@1=1")).rejects.toThrow("cuGraphAddDependencies");
  });

  it("launch no kernel early that would read what a kernel before it writes", async () => {
    const replayed = async (readsSum: boolean) => {
      set("capability:90,cuGraphAddDependencies_v2@1=1");
      using device = openCuda();
      const [x, sum, total] = [1, 2, 3].map((value) => device.tensor("u32", [1], [value])) as [Tensor, Tensor, Tensor];
      const encoder = device.encoder();
      increment(encoder, { x, out: sum });
      const buffers = { y: undefined, ...(readsSum ? { x: sum, total } : { x, total: sum }) };
      encoder.dispatch(accumulateKernel, { variant: "u32", buffers, params: {}, sizes: {} });
      await encoder.finish().replay();
      return total.readSync()[0];
    };
    expect(await replayed(true)).toBe(5);
    await expect(replayed(false)).rejects.toThrow("cuGraphAddDependencies");
  });

  it.each(SEEDS)("end in order, once and with their results, fills among them: %i", async (seed) => {
    set(`seed:${seed},delay:300`);
    using device = openCuda();
    const x = device.tensor("u32", [64]);
    const scratch = device.buffer(251);
    const ended: number[] = [];
    const all = Array.from({ length: 8 }, (_, i) => {
      const encoder = device.encoder();
      for (let k = 0; k < 3; k++) increment(encoder, { x, out: x }, { groups: 8 });
      fill(scratch, i);
      const submission = encoder.commit({ profile: i % 2 === 1 });
      void submission.then(() => ended.push(i));
      return submission;
    });
    for (const submission of all) await submission;
    expect(ended).toEqual(all.map((_, i) => i));
    expect(x.readSync().every((value) => value === 24)).toBe(true);
    expect(new Uint8Array(await scratch.read()).every((byte) => byte === 7)).toBe(true);
  });

  it.each(SEEDS)("see fresh memory zero-filled, and what was written before: %i", async (seed) => {
    set(`seed:${seed},delay:500`);
    using device = openCuda();
    for (let round = 0; round < 6; round++) {
      const x = device.tensor("u32", [100], Array(100).fill(round));
      const out = device.tensor("u32", [100]);
      const encoder = device.encoder();
      increment(encoder, { x: out, out });
      increment(encoder, { x, out: x });
      const submission = encoder.commit();
      x.dispose();
      await submission;
      expect(out.readSync().every((value) => value === 1)).toBe(true);
      out.dispose();
    }
  });

  it("poison scratch that is made in a recording", async () => {
    using device = openCuda({ poison: true });
    const x = device.tensor("u32", [8]);
    const out = device.tensor("u32", [8]);
    const encoder = device.encoder({ optimize: true });
    increment(encoder, { x: increment(encoder, { x }), out });
    const recording = encoder.finish();
    for (let i = 0; i < 3; i++) void recording.replay();
    expect([...(await out.read())]).toEqual(Array(8).fill(2));
  });

  it("may be very many", async () => {
    using device = openCuda();
    const x = device.tensor("u32", [8]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x });
    const recording = encoder.finish();
    let last = recording.replay();
    for (let i = 1; i < 600; i++) last = recording.replay();
    await last;
    expect([...x.readSync()]).toEqual(Array(8).fill(600));
  });

  it("time each dispatch when asked to, and may hold nothing", async () => {
    using device = openCuda();
    expect((await device.encoder().commit()).ms).toBeGreaterThanOrEqual(0);
    expect((await device.encoder().finish().replay()).ms).toBeGreaterThanOrEqual(0);
    const x = device.tensor("u32", [8]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x }, { microseconds: 5000 });
    increment(encoder, { x, out: x });
    const { ms, dispatches } = await encoder.commit({ profile: true });
    expect(dispatches?.map(({ label }) => label)).toEqual(Array(2).fill("increment/increment_u32"));
    expect(dispatches?.[0]?.us).toBeGreaterThanOrEqual(5000);
    expect(ms).toBeGreaterThanOrEqual(5);
  });

  it("fail where the driver refuses a part of them, and leave later ones alone", async () => {
    for (const call of [
      "cuLaunchKernel@2=2",
      "cuEventCreate@6=2",
      "cuEventRecord@3=2",
      "cuMemAllocAsync@4=2",
      "cuMemHostAlloc@5=2",
      "cuMemcpyDtoHAsync_v2@1=2",
    ]) {
      set(call);
      using device = openCuda();
      const x = device.tensor("u32", [4], [1, 2, 3, 4]);
      const submit = () => {
        const encoder = device.encoder();
        increment(encoder, { x, out: x });
        limit(encoder, { x }, { limit: 100 });
        return encoder.commit();
      };
      const error = (await rejected(submit())) as unknown as MlxtsError;
      expect([call, error.code, error.details.cause]).toEqual([call, "CommandBuffer", "outOfMemory"]);
      expect(error.transient).toBe(true);
      await submit();
    }
    for (const call of ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiateWithFlags", "cuGraphLaunch"]) {
      set(`${call}@1=2`);
      using device = openCuda();
      const x = device.tensor("u32", [4]);
      const encoder = device.encoder();
      increment(encoder, { x, out: x });
      const recording = encoder.finish();
      expect(await rejected(recording.replay())).toMatchObject({ details: { cause: "outOfMemory" } });
      await recording.replay();
      expect(x.readSync()[0]).toBe(1);
    }
  });
});

describeCuda("a lost CUDA device", () => {
  it("fails what runs, with its cause, and everything after", async () => {
    set("kernel@2=700");
    await lose();
    set("");
    using next = openCuda();
    const { x, submission } = work(next);
    await submission;
    expect(x.readSync()[0]).toBe(1);
  });

  async function lose() {
    using device = openCuda();
    await work(device).submission;
    const x = device.tensor("u32", [8]);
    const error = (await rejected(work(device).submission)) as unknown as MlxtsError;
    expect(error).toMatchObject({ code: "CommandBuffer", details: { cause: "pageFault" }, transient: false });
    expect(error.message).toMatch(/^increment: (cu\w+: )?CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access/);
    const lost = (op: string) => ({ code: "CommandBuffer", message: expect.stringMatching(`^${op}: `) });
    expect(caught(() => x.readSync())).toMatchObject(lost("buffer.readSync"));
    expect(caught(() => x.write(Array(8).fill(1)))).toMatchObject(lost("buffer.write"));
    expect(caught(() => device.buffer(8))).toMatchObject(lost("device.buffer"));
    expect(await rejected(device.mapFile(process.execPath, 8))).toMatchObject(lost("device.mapFile"));
    expect(await rejected(x.read())).toMatchObject({ ...lost("tensor.read|buffer.read"), cause: expect.any(Error) });
    expect(caught(() => limit(device.encoder(), { x }, { limit: 1 }))).toMatchObject({ code: "CommandBuffer" });
    const again = device.encoder();
    increment(again, { x, out: x });
    expect(await rejected(again.commit())).toMatchObject({ details: { cause: "deviceLost" } });
    const third = device.encoder();
    increment(third, { x, out: x });
    expect(await rejected(third.commit())).toMatchObject({ message: "increment: the device has been lost" });
  }

  it("fails all that is in flight, once each", async () => {
    set("kernel@1=719,delay:500");
    using device = openCuda();
    // The device may be lost after the first commit: what is allocated must be there by then.
    const tensors = Array.from({ length: 4 }, () => device.tensor("u32", [8]));
    const encoders = tensors.map((x) => {
      const encoder = device.encoder();
      increment(encoder, { x, out: x });
      return encoder;
    });
    const ends = encoders.map((encoder) => rejected(encoder.commit()));
    const causes = (await Promise.all(ends)).map(({ details }) => details?.cause);
    expect(causes).toEqual(["deviceLost", "deviceLost", "deviceLost", "deviceLost"]);
  });

  it("closes with work in flight", () => {
    set("kernel@1=700,delay:2000");
    const device = openCuda();
    const { submission } = work(device, 3);
    submission.then(null, () => {});
    device.dispose();
    expect(submission.state).toBe("failed");
  });
});

describeCuda("lifetime on the CUDA device", () => {
  it.each(SEEDS)("frees memory in flight only after its last use: %i", async (seed) => {
    set(`seed:${seed},delay:500`);
    using device = openCuda();
    const x = device.tensor("u32", [1000]);
    const y = device.tensor("u32", [1000]);
    const encoder = device.encoder();
    for (let i = 0; i < 5; i++) increment(encoder, { x, out: x }, { groups: 8, microseconds: 500 });
    increment(encoder, { x, out: y }, { groups: 8 });
    const submission = encoder.commit();
    x.dispose();
    expect(device.counters.liveBuffers).toBe(2);
    await submission;
    expect(device.counters.liveBuffers).toBe(1);
    expect([...y.readSync()]).toEqual(Array(1000).fill(6));
  });

  it("ends a device with work in flight, also of a recording", () => {
    set("delay:2000");
    const device = openCuda();
    const { submission } = work(device, 5);
    const x = device.tensor("u32", [1], [0]);
    const { recording } = diamond(device, x);
    const replays = [recording.replay(), recording.replay()];
    expect(submission.state).toBe("committed");
    device.dispose();
    expect([submission, ...replays].map(({ state }) => state)).toEqual(Array(3).fill("completed"));
  });

  it("lets recordings go before their work has ended", async () => {
    set("delay:1000");
    using device = openCuda();
    const x = device.tensor("u32", [4], [1, 2, 3, 4]);
    for (let i = 0; i < 10; i++) {
      const encoder = device.encoder();
      const out = limit(encoder, { x }, { limit: 10 });
      const recording = encoder.finish();
      const replay = recording.replay();
      recording.dispose();
      out.dispose();
      if (i % 2) await replay;
    }
  });

  it("keeps the event loop free, and blocks when told to", async () => {
    using device = openCuda();
    const x = device.tensor("u32", [64]);
    const commit = () => {
      const encoder = device.encoder();
      increment(encoder, { x, out: x }, { microseconds: 100_000 });
      return encoder.commit();
    };
    let ticks = 0;
    const timer = setInterval(() => ticks++, 5);
    await commit();
    clearInterval(timer);
    expect(ticks).toBeGreaterThan(1);
    commit().waitSync();
    expect(x.readSync()[0]).toBe(2);
  });

  it("survives devices that come and go, several at a time", async () => {
    for (let i = 0; i < 20; i++) {
      using device = openCuda();
      using other = openCuda();
      const { submission } = work(device);
      const { x, submission: second } = work(other, 2);
      if (i % 2) await submission;
      await second;
      expect(x.readSync()[0]).toBe(2);
    }
  });
});

describeCuda("processes and workers with work on the CUDA device", () => {
  const folder = testFolder();
  const endings: [how: string, code: number, stdout: string, whole: boolean][] = [
    ["natural", 0, "80\n", true],
    ["dispose", 0, "disposed\n", true],
    ["sync", 0, "sync\n", true],
    ["idle", 0, "idle\n", true],
    ["exit", 7, "", false],
    ["later", 7, "", false],
    ["throw", 1, "", false],
    ["reject", 1, "", false],
  ];
  it.each(endings)("end as they should: %s", async (how, code, stdout, whole) => {
    const report = join(folder, how);
    rmSync(report, { force: true });
    const end = await runChild("in_flight", [how], childEnvironment(report, "delay:200"));
    expect({ ...end, stderr: "" }).toEqual({ code, signal: null, stdout, stderr: "" });
    const lines = linesOf(report);
    expect(lines[0]).toBe("context 1 begins");
    expect(lines.filter((line) => line.startsWith("fault"))).toEqual([]);
    if (whole) expect(lines.at(-1)).toBe("context ends");
  });

  it.each(["hang", "throw"])("let workers go: %s", async (how) => {
    const before = process.env.MLXTS_DEVICE;
    process.env.MLXTS_DEVICE = "cuda";
    try {
      const file = fileURLToPath(new URL("children/worker.ts", import.meta.url));
      for (let round = 0; round < 3; round++) {
        const worker = new Worker(
          `import(${JSON.stringify(SOURCE_HOOKS)}).then(() => import(${JSON.stringify(file)}))`,
          { eval: true, workerData: { how }, execArgv: [] },
        );
        const ended = new Promise<number>((resolve) => worker.once("exit", resolve));
        const first = await new Promise((resolve) => {
          worker.once("message", resolve);
          worker.once("error", (error) => resolve(error.message));
        });
        expect(first).toBe(how === "hang" ? "running" : "in the worker");
        if (how === "hang") expect(await worker.terminate()).toBe(1);
        else expect(await ended).toBe(1);
      }
    } finally {
      if (before === undefined) delete process.env.MLXTS_DEVICE;
      else process.env.MLXTS_DEVICE = before;
    }
  });
});
