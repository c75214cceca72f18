import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { describe, expect, it } from "vitest";
import { Device, defineKernel, defineLibrary, type MlxtsError, Tensor } from "../src/index.ts";
import { simulatorMissing } from "../src/native.ts";
import { caught, message, rejected, testFolder } from "./helpers.ts";
import { addressOf, fill } from "./internals.ts";
import { accumulateKernel, convertKernel, increment, launchKernel, limit } from "./kernels/probe.ts";
import { describeSimulated, openMetal, set } from "./simulator.ts";

const PAGE = 16384;

describeSimulated("the Metal device", () => {
  const folder = testFolder();

  it("tells what it is, and that it is simulated", () => {
    using device = openMetal();
    expect(device.kind).toBe("metal");
    expect(device.name).toBe("Metal simulator on the CPU (no GPU)");
    expect(device.level).toBe("msl3.1");
    expect(device.unifiedMemory).toBe(true);
    expect(device.limits).toEqual({
      maxThreadsPerThreadgroup: 1024,
      maxThreadgroupBytes: 32768,
      maxBufferSlots: 31,
      maxInlineBytes: 4096,
      bufferOffsetAlignment: 4,
      wrapAlignment: PAGE,
      pageBytes: PAGE,
      threads: 1,
      maxBufferBytes: 2 ** 34,
      maxThreadgroupsPerAxis: [2 ** 22 - 1, 2 ** 22 - 1, 2 ** 22 - 1],
    });
  });

  it("is not what opens when nothing is asked for", () => {
    using device = Device.open();
    expect(device.kind).toBe("cpu");
  });

  it.each(["forward", "reverse", "random:7"])(
    "runs dispatches in order where a barrier says so: %s",
    async (schedule) => {
      set({ schedule });
      using device = openMetal();
      const x = device.tensor(
        "u32",
        [64],
        Array.from({ length: 64 }, (_, i) => i),
      );
      const y = device.tensor("u32", [64]);
      const encoder = device.encoder();
      for (let i = 0; i < 3; i++) increment(encoder, { x, out: x }, { groups: 8 });
      increment(encoder, { x, out: y });
      await encoder.commit();
      expect([...(await x.read())]).toEqual(Array.from({ length: 64 }, (_, i) => i + 3));
      expect([...(await y.read())]).toEqual(Array.from({ length: 64 }, (_, i) => i + 4));
      expect(device.counters).toMatchObject({ dispatches: 4, automaticBarriers: 3, submissions: 1, pipelines: 1 });
    },
  );

  it("binds absent buffers, parameters and threadgroup memory", async () => {
    using device = openMetal();
    const total = device.tensor("u32", [1], [5]);
    const out = device.tensor("u32", [12 * 9]);
    const encoder = device.encoder();
    const x = device.tensor("u32", [1], [7]);
    const add = (y: Tensor | undefined) =>
      encoder.dispatch(accumulateKernel, { variant: "u32", buffers: { x, y, total }, params: {}, sizes: {} });
    add(undefined);
    add(x);
    encoder.dispatch(launchKernel, {
      variant: "u32",
      buffers: { absent: undefined, out },
      params: { u: 4_000_000_000, i: -3, f: 0.5 },
      sizes: { groups: [2, 3, 2], scratch: 20 },
    });
    await encoder.commit();
    expect(total.readSync()[0]).toBe(5 + 7 + 14);
    const words = [2, 3, 2, 4_000_000_000, 2 ** 32 - 3, 0x3f000000, 16, 0, 1];
    expect([...out.readSync()]).toEqual(Array.from({ length: 12 }, () => words).flat());
  });

  it("tells what a kernel finds wrong in its data, and of which dispatch", async () => {
    using device = openMetal();
    const good = device.tensor("u32", [4], [1, 2, 3, 4]);
    const bad = device.tensor("u32", [4], [1, 50, 3, 4]);
    const encoder = device.encoder();
    limit(encoder, { x: good }, { limit: 10 });
    const kept = limit(encoder, { x: bad }, { limit: 60 });
    const out = limit(encoder, { x: bad }, { limit: 10 });
    const recording = encoder.finish();
    for (const _ of [1, 2]) {
      expect(await rejected(recording.replay())).toMatchObject({
        code: "InvalidArgument",
        message: "limit: `x` must be < 10, got 50",
      });
      expect(message(() => out.readSync())).toBe("limit: `x` must be < 10, got 50");
    }
    // The records are reused: a fault is not reported twice.
    bad.write([1, 5, 3, 4]);
    await recording.replay();
    expect([...out.readSync(), ...kept.readSync()]).toEqual([1, 5, 3, 4, 1, 5, 3, 4]);
    bad.write([1, 50, 3, 4]);
    expect(await rejected(recording.replay({ profile: true }))).toMatchObject({ code: "InvalidArgument" });
  });

  it("replays recordings, and works through more submissions than Metal keeps in flight", async () => {
    using device = openMetal();
    const x = device.tensor("u32", [8]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x });
    const recording = encoder.finish();
    const all = Array.from({ length: 600 }, () => recording.replay());
    const ended: number[] = [];
    all.forEach((submission, i) => void submission.then(() => ended.push(i)));
    await all.at(-1);
    expect(ended).toEqual(all.map((_, i) => i));
    expect([...x.readSync()]).toEqual(Array(8).fill(600));
  });

  it("binds views where they begin", async () => {
    using device = openMetal();
    const whole = device.tensor("u32", [32], Array(32).fill(5));
    const encoder = device.encoder();
    increment(encoder, { x: whole.view(8, [8]), out: whole.view(20, [8]) });
    await encoder.commit();
    expect([...whole.readSync()]).toEqual([...Array(20).fill(5), ...Array(8).fill(6), ...Array(4).fill(5)]);
  });

  it("commits nothing, and times each dispatch when asked to", async () => {
    using device = openMetal();
    expect((await device.encoder().commit()).ms).toBeGreaterThanOrEqual(0);
    const x = device.tensor("u32", [8]);
    const encoder = device.encoder();
    for (let i = 0; i < 3; i++) increment(encoder, { x, out: x });
    const { ms, dispatches } = await encoder.commit({ profile: true });
    expect(dispatches?.map(({ label }) => label)).toEqual(Array(3).fill("increment/increment_u32"));
    for (const { us } of dispatches ?? []) expect(us).toBeGreaterThan(0);
    expect(ms).toBeGreaterThan(0);
    expect(x.readSync()[0]).toBe(3);
  });

  it("zero-fills, and poisons scratch of any length", async () => {
    using device = openMetal({ poison: true });
    for (const bytes of [1, 3, 4097, 100_000]) {
      using buffer = device.buffer(bytes);
      expect(new Uint8Array(buffer.readSync()).every((byte) => byte === 0)).toBe(true);
      fill(buffer, 0xff);
      expect(new Uint8Array(await buffer.read()).every((byte) => byte === 0xff)).toBe(true);
    }
    expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
    expect(message(() => device.buffer(2 ** 35))).toBe(`cannot allocate ${2 ** 35} bytes on metal`);
  });

  it("wraps whole pages where they lie, and nothing else", async () => {
    using device = openMetal();
    using cpu = Device.open("cpu");
    // Large blocks of the CPU device start on a huge page.
    const memory = cpu.buffer(2 ** 21).arrayBuffer();
    const x = new Tensor(device.wrap(new Uint8Array(memory, 0, PAGE)), "u32", [16]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x });
    await encoder.commit();
    expect([...new Uint32Array(memory, 0, 16)]).toEqual(Array(16).fill(1));
    const refused = (view: Uint8Array) => message(() => device.wrap(view));
    const rule = "device.wrap: `memory` must start on and span whole pages of 16384 bytes on this device, got";
    const remedy = "copy it with device.bufferFrom";
    expect(refused(new Uint8Array(memory, 4096, PAGE))).toBe(`${rule} 16384 bytes, 4096 past a page — ${remedy}`);
    expect(refused(new Uint8Array(memory, 0, 100))).toBe(`${rule} 100 bytes, 0 past a page — ${remedy}`);
    x.buffer.dispose();
    expect(device.counters.liveBuffers).toBe(0);
  });

  it("reads mapped files of any length where they lie", async () => {
    using device = openMetal();
    const path = join(folder, "mapped.bin");
    const words = Uint32Array.from({ length: 5001 }, (_, i) => i);
    writeFileSync(path, new Uint8Array(words.buffer).subarray(0, words.byteLength - 2));
    using buffer = await device.mapFile(path, words.byteLength - 2);
    expect(addressOf(buffer) % PAGE).toBe(0);
    const out = device.tensor("u32", [5000]);
    const encoder = device.encoder();
    increment(encoder, { x: new Tensor(buffer, "u32", [5000]), out });
    await encoder.commit();
    expect(out.readSync().every((value, i) => value === i + 1)).toBe(true);
    // Nothing keeps the pages.
    buffer.dispose();
    const again = device.encoder();
    increment(again, { x: out, out });
    await again.commit();
  });

  it("refuses what Metal cannot bind", () => {
    using device = openMetal();
    const buffer = device.buffer(64);
    const x = new Tensor(buffer, "u16", [8], { byteOffset: 2 });
    const encoder = device.encoder();
    const convert = () =>
      encoder.dispatch(convertKernel, {
        variant: "bf16_bf16",
        buffers: { x, out: device.tensor("bf16", [8]), scalar: device.tensor("bf16", [8]) },
        params: { count: 8 },
        sizes: {},
      });
    expect(message(convert)).toBe("convert: `x` must start at a multiple of 4 bytes on this device, got 2");
    set({ fault: "pipeline-threads:0" });
    const y = device.tensor("u32", [8]);
    expect(message(() => increment(encoder, { x: y, out: y }))).toBe(
      "increment: `threadsPerThreadgroup` must have a product of at most 0 for increment_u32 on this device, got [1, 1, 1]",
    );
  });
});

describeSimulated("kernels compiled from source", () => {
  const folder = testFolder();
  mkdirSync(join(folder, "native"));
  const library = defineLibrary("temporary", pathToFileURL(join(folder, "src", "library.ts")).href);
  const write = (name: string, text: string) => writeFileSync(join(folder, "native", name), text);
  const kernel = (name: string, variant = "u32") =>
    defineKernel({
      library,
      name,
      variants: [variant],
      buffers: { out: "write" },
      params: {},
      scratch: { gpu: { words: "u32" } },
      launch: {
        gpu: (_: object) => ({ threadgroups: [1, 1, 1], threadsPerThreadgroup: [32, 1, 1], scratch: { words: [64] } }),
      },
    });
  const source = (symbol: string, body: string) =>
    `#include <metal_stdlib>\nusing namespace metal;\nkernel void ${symbol}(device uint* out [[buffer(0)]], threadgroup uint* shared [[threadgroup(0)]], uint i [[thread_index_in_threadgroup]]) {\n  ${body}\n}\n`;
  const dispatch = (device: Device, name: string, variant = "u32") => {
    const out = device.tensor("u32", [32]);
    const encoder = device.encoder();
    encoder.dispatch(kernel(name, variant), { variant, buffers: { out }, params: {}, sizes: {} });
    return { out, submission: encoder.commit() };
  };

  it("fail with the compiler's whole log, and compile once they are mended", async () => {
    using device = openMetal();
    write("broken.metal", source("broken_u32", "out[i] = missing(i) +;"));
    const error = caught(() => dispatch(device, "broken")) as unknown as MlxtsError;
    expect(error.code).toBe("ShaderCompilation");
    expect(error.transient).toBe(false);
    expect(error.message).toMatch(/^kernel `broken_u32` does not compile: .*broken\.metal:4:.*error/);
    expect(error.details.name).toBe("broken_u32");
    expect(String(error.details.log).split("\n").length).toBeGreaterThan(2);
    expect(device.counters).toMatchObject({ pipelines: 0, dispatches: 0 });
    write("broken.metal", source("broken_u32", "out[i] = i;"));
    const { out, submission } = dispatch(device, "broken");
    await submission;
    expect([...out.readSync()]).toEqual(Array.from({ length: 32 }, (_, i) => i));
  });

  it("fail when a header is missing", () => {
    using device = openMetal();
    write("headless.metal", '#include "nowhere.h"\n');
    expect(message(() => dispatch(device, "headless"))).toBe(
      'kernel `headless_u32` does not compile: headless.metal:1: error: "nowhere.h" not found',
    );
  });

  it("are not found without a file, or without the symbol in it", () => {
    using device = openMetal();
    write("other.metal", source("other_u32", "out[i] = i;"));
    for (const [name, variant] of [
      ["none", "u32"],
      ["other", "f32"],
    ] as const) {
      const error = caught(() => dispatch(device, name, variant));
      expect(error.code).toBe("KernelNotFound");
      expect(error.message).toBe(`kernel \`${name}_${variant}\` not found in the library \`temporary\``);
    }
    expect(device.library(library).has("other", "u32")).toBe(true);
    expect(device.library(library).has("other", "f32")).toBe(false);
  });

  it("that are not found are not searched for in every call of `has`, but in every dispatch", async () => {
    using device = openMetal();
    const has = () => device.library(library).has("late", "u32");
    expect(has()).toBe(false);
    write("late.metal", source("late_u32", "out[i] = i;"));
    expect(has()).toBe(false);
    await dispatch(device, "late").submission;
    expect(has()).toBe(true);
  });

  it("are refused with a log when the pipeline cannot be made", () => {
    using device = openMetal();
    write("other.metal", source("other_u32", "out[i] = i;"));
    set({ fault: "no-pipeline" });
    const error = caught(() => dispatch(device, "other"));
    expect(error.code).toBe("ShaderCompilation");
    expect(error.details?.log).toBe("Compute function exceeds available stack space");
  });

  it("are searched for races in check mode, which end the submission with the line", async () => {
    write("racing.metal", source("racing_u32", "shared[i] = i;\n  out[i] = shared[31 - i];"));
    set({ check: "1" });
    using device = openMetal();
    const { submission } = dispatch(device, "racing");
    const error = await rejected(submission);
    expect(error.code).toBe("CommandBuffer");
    expect(error.message).toMatch(/^racing: metal-sim: .*racing\.metal:[45]/);
  });
});

describe.skipIf(process.platform !== "linux" || simulatorMissing() === undefined)(
  "the simulator, asked for but not built",
  () => {
    it("leaves the CPU device, and tells how to build it", () => {
      Device.open("cpu").dispose();
      const error = caught(() => openMetal());
      expect(error.code).toBe("DeviceNotFound");
      expect(error.message).toMatch(
        /^no device found: metal \(the simulator is not built: looked for .*core-metal-sim\.node — run `npm run metal-sim`\)$/,
      );
    });
  },
);
