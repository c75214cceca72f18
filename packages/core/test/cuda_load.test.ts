// Files that threads copy into the memory of a CUDA device: progress, ends of every kind, and what is left of them.
import { getEventListeners } from "node:events";
import { closeSync, ftruncateSync, openSync, rmSync, truncateSync, writeSync } from "node:fs";
import { join } from "node:path";
import { setImmediate as turn } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Worker } from "node:worker_threads";
import { childEnvironment } from "@mlxts/test-kit/cuda_standin";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { expect, it } from "vitest";
import { type Device, type FileOptions, openCheckpoint, writeSafetensors } from "../src/index.ts";
import { describeCuda, linesOf, openCuda, set } from "./cuda.ts";
import { rejected, testFolder } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";
import { runChild } from "./run_child.ts";

const MIB = 2 ** 20;
const REPORT = 64 * MIB;
const SIZE = 3 * REPORT + 8 * MIB + 5;
/** Each copy waits so long that a load takes a tenth of a second or more. */
const SLOW = "delay:40000";
const folder = testFolder();

/** The byte at a place of a file with such a seed; all others are 0. */
const marks = (size: number) => [0, 8 * MIB - 1, 8 * MIB, REPORT, 2 * REPORT + 12345, size - 1];
const markOf = (seed: number, at: number) => ((at * 31 + seed) % 255) + 1;

/** A sparse file with marks. */
function fileOf(name: string, size = SIZE, seed = 1): string {
  const path = join(folder, name);
  const file = openSync(path, "w");
  ftruncateSync(file, size);
  for (const at of marks(size)) writeSync(file, Uint8Array.of(markOf(seed, at)), 0, 1, at);
  closeSync(file);
  return path;
}

/** Whether a buffer has the file's bytes, also where they are 0. */
function expectFile(buffer: { readSync(at?: number, bytes?: number): ArrayBuffer }, size = SIZE, seed = 1): void {
  const bytes = Buffer.from(buffer.readSync(0, size));
  for (const at of marks(size)) expect(bytes[at]).toBe(markOf(seed, at));
  for (const at of marks(size)) bytes[at] = 0;
  expect(bytes.equals(Buffer.alloc(size))).toBe(true);
}

/** Calls `act` at the first report. */
function once(act: () => void): Required<Pick<FileOptions, "onProgress">> & { reports: [number, number][] } {
  const reports: [number, number][] = [];
  return {
    reports,
    onProgress: (loaded, total) => {
      reports.push([loaded, total]);
      if (reports.length === 1) act();
    },
  };
}

const expectNothing = (device: Device) => expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });

describeCuda("a file that is copied to a CUDA device", () => {
  const path = fileOf("file");
  const load = (device: Device, options?: FileOptions) => device.mapFile(path, SIZE, options);

  it.each(["", "no-pools", "seed:2,delay:2000"])("tells how far it has come, to the last byte: %s", async (words) => {
    set(words);
    using device = openCuda();
    const { reports, ...options } = once(() => {});
    using buffer = await load(device, options);
    expect(reports.at(-1)).toEqual([SIZE, SIZE]);
    const counts = reports.map(([loaded]) => loaded);
    expect(counts).toEqual([...new Set(counts)].sort((a, b) => a - b));
    expect(counts.length).toBeLessThanOrEqual(4);
    expect(device.counters).toMatchObject({ liveBuffers: 1, liveBytes: SIZE });
    expect(buffer.readOnly).toBe(true);
    expectFile(buffer);
  });

  it("leaves the event loop and the device to others", async () => {
    set(SLOW);
    using device = openCuda();
    let loaded = false;
    const loading = load(device).finally(() => {
      loaded = true;
    });
    let turns = 0;
    const x = device.tensor("u32", [8], Array(8).fill(4));
    while (!loaded) {
      turns++;
      const encoder = device.encoder();
      increment(encoder, { x, out: x });
      await encoder.commit();
      await turn();
    }
    expect(turns).toBeGreaterThan(3);
    expect([...x.readSync()]).toEqual(Array(8).fill(4 + turns));
    expectFile(await loading);
  });

  it.each(["no-pools", "seed:3,delay:3000", SLOW])(
    "does not disturb another, of which one ends early: %s",
    async (words) => {
      set(words);
      using device = openCuda();
      const paths = [1, 2, 3].map((seed) => fileOf(`many${seed}`, SIZE, seed));
      const controller = new AbortController();
      const all = paths.map((path, i) => device.mapFile(path, SIZE, i === 1 ? { signal: controller.signal } : {}));
      controller.abort();
      const [first, second, third] = await Promise.allSettled(all);
      expect(second).toMatchObject({ status: "rejected", reason: { name: "AbortError" } });
      for (const [found, seed] of [
        [first, 1],
        [third, 3],
      ] as const) {
        if (found?.status !== "fulfilled") throw found?.reason;
        expectFile(found.value, SIZE, seed);
      }
      expect(device.counters).toMatchObject({ liveBuffers: 2, liveBytes: 2 * SIZE });
    },
  );

  it("of one byte is copied, and one of whole pieces", async () => {
    using device = openCuda();
    for (const size of [1, 8 * MIB, REPORT, REPORT + 1]) {
      const { reports, ...options } = once(() => {});
      using buffer = await device.mapFile(path, size, options);
      expect(reports.at(-1)).toEqual([size, size]);
      expect(new Uint8Array(buffer.readSync(0, 1))[0]).toBe(markOf(1, 0));
    }
    expectNothing(device);
  });
});

describeCuda("the copy of a file that is aborted", () => {
  const path = fileOf("file");
  const reason = new Error("not any more");
  const listeners = ({ signal }: AbortController) => getEventListeners(signal, "abort").length;

  it("before it begins, begins nothing", async () => {
    using device = openCuda();
    const { reports, ...options } = once(() => {});
    const signal = AbortSignal.abort(reason);
    expect(await rejected(device.mapFile(path, SIZE, { ...options, signal }))).toBe(reason);
    expect(await rejected(openCheckpoint(device, "nowhere", { signal }))).toBe(reason);
    expect(reports).toEqual([]);
    expectNothing(device);
  });

  it("in a report, at once, and later, leaves nothing", async () => {
    set(SLOW);
    using device = openCuda();
    const begin = (options: FileOptions, controller: AbortController) =>
      device.mapFile(path, SIZE, { ...options, signal: controller.signal });
    const inReport = new AbortController();
    const { reports, ...options } = once(() => inReport.abort(reason));
    expect(await rejected(begin(options, inReport))).toBe(reason);
    expect(reports.length).toBe(1);
    const atOnce = new AbortController();
    const loading = begin({}, atOnce);
    atOnce.abort(reason);
    expect(await rejected(loading)).toBe(reason);
    const later = new AbortController();
    setTimeout(() => later.abort(reason), 20);
    expect(await rejected(begin({}, later))).toBe(reason);
    expect([inReport, atOnce, later].map(listeners)).toEqual([0, 0, 0]);
    expectNothing(device);
  });

  it("in the last report leaves nothing, and after it all", async () => {
    using device = openCuda();
    const controller = new AbortController();
    const { signal } = controller;
    const atEnd = (loaded: number, total: number) => loaded === total && controller.abort(reason);
    expect(await rejected(device.mapFile(path, SIZE, { onProgress: atEnd, signal }))).toBe(reason);
    expectNothing(device);
    const after = new AbortController();
    using buffer = await device.mapFile(path, SIZE, { signal: after.signal });
    expect(listeners(after)).toBe(0);
    after.abort(reason);
    expectFile(buffer);
  });
});

describeCuda("the copy of a file that fails", () => {
  const path = fileOf("file");
  const begin = (device: Device, options?: FileOptions) => device.mapFile(path, SIZE, options);

  it("because its progress throws, rejects with that", async () => {
    using device = openCuda();
    const error = new Error("of the caller");
    for (const last of [false, true]) {
      let reports = 0;
      const onProgress = (loaded: number, total: number) => {
        reports++;
        if (!last || loaded === total) throw error;
      };
      expect(await rejected(begin(device, { onProgress }))).toBe(error);
      if (!last) expect(reports).toBe(1);
    }
    const controller = new AbortController();
    const both = once(() => {
      controller.abort(new Error("of the signal"));
      throw error;
    });
    const { onProgress } = both;
    // What came first counts.
    expect((await rejected(begin(device, { onProgress, signal: controller.signal }))).message).toBe("of the signal");
    expectNothing(device);
  });

  it("because the GPU has no memory for it", async () => {
    set(`memory:${REPORT}`);
    using device = openCuda();
    expect(await rejected(begin(device))).toMatchObject({
      code: "BufferAllocation",
      message: expect.stringMatching(`^cannot allocate ${SIZE} bytes on cuda: [0-9]+ bytes are free$`),
    });
    expectNothing(device);
    using buffer = device.buffer(MIB);
    expect(buffer.byteLength).toBe(MIB);
  });

  it.each([1, 2, 3, 7, 8])("because the host has no pinned memory: call %i", async (call) => {
    set(`cuMemHostAlloc@${call}=2`);
    using device = openCuda();
    expect(await rejected(begin(device))).toMatchObject({ code: "BufferAllocation" });
    expectNothing(device);
    expectFile(await begin(device));
  });

  it.each([
    "cuMemcpyHtoDAsync_v2@1=719",
    "cuMemcpyHtoDAsync_v2@9=719",
    "cuEventCreate@4=719",
    "cuEventRecord@5=719",
    "cuEventSynchronize@3=719",
    "cuStreamCreate@3=719",
    "cuMemAllocAsync@2=719",
  ])("because the device is lost: %s", async (words) => {
    set(words);
    using device = openCuda();
    expect(await rejected(begin(device))).toMatchObject({ code: "CommandBuffer", details: { cause: "deviceLost" } });
    expect(await rejected(begin(device))).toMatchObject({ code: "CommandBuffer", details: { cause: "deviceLost" } });
  });

  it("because a kernel loses the device meanwhile", async () => {
    set(`kernel@1=719,${SLOW}`);
    using device = openCuda();
    const x = device.tensor("u32", [8]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x });
    const loading = rejected(begin(device));
    await rejected(encoder.commit());
    expect(await loading).toMatchObject({ code: "CommandBuffer", details: { cause: "deviceLost" } });
  });

  it("because the file becomes shorter", async () => {
    set(SLOW);
    using device = openCuda();
    const size = 8 * REPORT;
    const shrinking = fileOf("shrinking", size);
    const { onProgress } = once(() => truncateSync(shrinking, MIB));
    expect(await rejected(device.mapFile(shrinking, size, { onProgress }))).toMatchObject({
      code: "Io",
      message: `cannot map ${shrinking}: the file has become shorter`,
      details: { path: shrinking, operation: "map" },
    });
    rmSync(shrinking);
    expectNothing(device);
  });

  it("because the device is disposed", async () => {
    set(SLOW);
    const disposed = { code: "Disposed", message: "the device has been disposed" };
    const device = openCuda();
    const { reports, ...options } = once(() => device.dispose());
    expect(await rejected(begin(device, options))).toMatchObject(disposed);
    expect(reports.length).toBe(1);
    // Where all bytes are there before the first report, that is the last one.
    const early = openCuda();
    expect(await rejected(early.mapFile(path, 1, { onProgress: () => early.dispose() }))).toMatchObject(disposed);
    const other = openCuda();
    const both = [begin(other), begin(other)].map(rejected);
    other.dispose();
    for (const one of both) expect(await one).toMatchObject(disposed);
  });
});

describeCuda("a checkpoint that is copied", () => {
  const u8 = (seed: number, size: number) => ({
    dtype: "u8" as const,
    shape: [size],
    data: new Uint8Array(size).fill(seed),
  });
  const shard = 70 * MIB;
  const directory = testFolder();
  for (const i of [1, 2]) writeSafetensors(join(directory, `model-${i}.safetensors`), [[`t${i}`, u8(i, shard)]]);

  it("tells of all its files together", async () => {
    using device = openCuda();
    const { reports, ...options } = once(() => {});
    using checkpoint = await openCheckpoint(device, directory, options);
    const total = checkpoint.byteLength;
    expect(total).toBeGreaterThan(2 * shard);
    expect(reports.every((report) => report[1] === total)).toBe(true);
    const counts = reports.map(([loaded]) => loaded);
    expect(counts).toEqual([...new Set(counts)].sort((a, b) => a - b));
    expect(counts).toContain(total / 2);
    expect(counts.at(-1)).toBe(total);
    for (const i of [1, 2])
      expect(
        checkpoint
          .tensor(`t${i}`)
          .readSync()
          .every((value) => value === i),
      ).toBe(true);
    expect(device.counters).toMatchObject({ liveBuffers: 2, liveBytes: total, copiedTensors: 0 });
  });

  it("leaves nothing when it is aborted or its progress throws, in whichever file", async () => {
    using device = openCuda();
    const reason = new Error("enough");
    for (const end of [1, shard, 1.5 * shard, 2 * shard]) {
      const controller = new AbortController();
      const abort = (loaded: number) => loaded >= end && controller.abort(reason);
      const aborted = openCheckpoint(device, directory, { onProgress: abort, signal: controller.signal });
      expect(await rejected(aborted)).toBe(reason);
      const onProgress = (loaded: number) => {
        if (loaded >= end) throw reason;
      };
      expect(await rejected(openCheckpoint(device, directory, { onProgress }))).toBe(reason);
      expectNothing(device);
    }
  });

  it("leaves nothing when a later file finds no memory", async () => {
    set(`memory:${100 * MIB}`);
    using device = openCuda();
    expect(await rejected(openCheckpoint(device, directory))).toMatchObject({ code: "BufferAllocation" });
    expectNothing(device);
  });

  it("may be disposed while work uses it", async () => {
    set("delay:3000");
    using device = openCuda();
    const path = join(folder, "words.safetensors");
    writeSafetensors(path, [["x", { dtype: "u32", shape: [64], data: new Uint32Array(64).fill(8) }]]);
    const checkpoint = await openCheckpoint(device, path);
    const out = device.tensor("u32", [64]);
    const encoder = device.encoder();
    increment(encoder, { x: checkpoint.tensor("x"), out }, { microseconds: 3000 });
    const submission = encoder.commit();
    checkpoint.dispose();
    await submission;
    expect(out.readSync().every((value) => value === 9)).toBe(true);
    expect(device.counters.liveBuffers).toBe(1);
  });
});

describeCuda("processes and workers that copy a file to a CUDA device", () => {
  const path = fileOf("file");
  const faultsOf = (report: string) => linesOf(report).filter((line) => line.startsWith("fault"));

  it.each([
    ["natural", 0, `${markOf(1, SIZE - 1)}\n`],
    ["exit", 7, ""],
    ["throw", 1, ""],
    ["dispose", 0, "the device has been disposed\n"],
    ["abort", 0, "enough\n"],
  ])("end as they should: %s", async (how, code, stdout) => {
    const report = join(folder, how);
    const end = await runChild("loading", [how, path, `${SIZE}`], childEnvironment(report, "delay:5000"));
    expect({ ...end, stderr: "" }).toEqual({ code, signal: null, stdout, stderr: "" });
    expect(linesOf(report)[0]).toBe("context 1 begins");
    expect(faultsOf(report)).toEqual([]);
    if (code === 0) expect(linesOf(report).at(-1)).toBe("context ends");
  });

  it("let a worker go that is terminated meanwhile", async () => {
    set(SLOW);
    const before = process.env.MLXTS_DEVICE;
    process.env.MLXTS_DEVICE = "cuda";
    try {
      const file = fileURLToPath(new URL("children/loading.ts", import.meta.url));
      for (const wait of [true, false, true]) {
        const worker = new Worker(
          `import(${JSON.stringify(SOURCE_HOOKS)}).then(() => import(${JSON.stringify(file)}))`,
          { eval: true, workerData: ["hang", path, `${SIZE}`], execArgv: [] },
        );
        if (wait) expect(await new Promise((resolve) => worker.once("message", resolve))).toBe("running");
        await worker.terminate();
      }
    } finally {
      if (before === undefined) delete process.env.MLXTS_DEVICE;
      else process.env.MLXTS_DEVICE = before;
    }
  });
});
