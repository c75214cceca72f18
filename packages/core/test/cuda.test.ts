import { mkdirSync, truncateSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { brotliCompressSync, brotliDecompressSync } from "node:zlib";
import { STANDIN } from "@mlxts/test-kit/cuda_standin";
import { describe, expect, it } from "vitest";
import { PLATFORM } from "../src/binaries.ts";
import { Device, defineKernel, defineLibrary, Tensor } from "../src/index.ts";
import { archiveOf, cudaContract, describeCuda, openCuda, set, underCuda } from "./cuda.ts";
import { caught, message, rejected, testFolder } from "./helpers.ts";
import { fill } from "./internals.ts";
import { accumulateKernel, increment, launchKernel, limit } from "./kernels/probe.ts";

const bytesOf = (count: number) => Uint8Array.from({ length: count }, (_, i) => (i * 7 + (i >> 8)) & 255);
const same = (a: ArrayBuffer, b: Uint8Array) => Buffer.compare(new Uint8Array(a), b) === 0;

describeCuda("the CUDA device", () => {
  it("tells what it is", () => {
    using device = openCuda();
    const { kind, gpu, name, level, unifiedMemory } = device;
    expect({ kind, gpu, name, level, unifiedMemory }).toEqual({
      kind: "cuda",
      gpu: true,
      name: "CUDA stand-in (no GPU)",
      level: "sm_90",
      unifiedMemory: false,
    });
    expect(device.limits).toEqual({
      maxThreadsPerThreadgroup: 1024,
      maxThreadgroupBytes: 232448,
      maxBufferSlots: 31,
      maxInlineBytes: 3584,
      bufferOffsetAlignment: 4,
      wrapAlignment: 1,
      pageBytes: 4096,
      threads: 1,
      maxBufferBytes: 3 * 2 ** 30,
      maxThreadgroupsPerAxis: [2 ** 31 - 1, 65535, 65535],
    });
  });

  it("opens before the CPU device when nothing is asked for, where there is a GPU", () => {
    const kindOf = () => {
      using device = Device.open();
      return device.kind;
    };
    expect(underCuda({ MLXTS_CUDA_DRIVER: STANDIN }, kindOf)).toBe("cuda");
    expect(underCuda({ MLXTS_CUDA_DRIVER: STANDIN, MLXTS_CUDA_STANDIN: "no-device" }, kindOf)).toBe("cpu");
    expect(underCuda({ MLXTS_CUDA_DRIVER: "/nowhere/libcuda.so.1" }, kindOf)).toBe("cpu");
    expect(underCuda({ MLXTS_CUDA_DRIVER: STANDIN, MLXTS_DEVICE: "cpu" }, kindOf)).toBe("cpu");
  });

  it("is not found for a reason", () => {
    const reason = (words: string) => {
      set(words);
      const error = caught(openCuda);
      expect(error.code).toBe("DeviceNotFound");
      return error.message;
    };
    expect(reason("no-device")).toBe("no device found: cuda (the NVIDIA driver shows this process no GPU)");
    expect(reason("capability:75")).toBe(
      "no device found: cuda (CUDA stand-in (no GPU) has compute capability 7.5, and 8.0 or later is needed)",
    );
    for (const words of [
      "cuDevicePrimaryCtxRetain@1=2",
      "cuStreamCreate@2=2",
      "cuMemPoolSetAttribute@1=2",
      "cuEventCreate@1=2",
      "cuMemAllocAsync@1=2",
      "cuMemAllocAsync@1=999",
      "cuMemsetD8Async@1=700",
    ])
      expect(reason(words)).toMatch(/^no device found: cuda \(/);
    const other = join(STANDIN, `../probe.${PLATFORM.endsWith("x64") ? "sse2" : "neon"}.so`);
    expect(underCuda({ MLXTS_CUDA_DRIVER: other }, () => message(openCuda))).toBe(
      "no device found: cuda (the NVIDIA driver is too old: it has no cuInit (CUDA 12 or later is needed))",
    );
  });

  it.each(["", "no-pools", "seed:2,delay:1000", "seed:3,delay:0"])("runs dispatches in order: %s", async (words) => {
    set(words);
    using device = openCuda();
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
  });

  it("binds absent buffers, parameters and threadgroup memory", async () => {
    using device = openCuda();
    const total = device.tensor("u32", [1], [5]);
    const out = device.tensor("u32", [12 * 9]);
    const encoder = device.encoder();
    const x = device.tensor("u32", [1], [7]);
    for (const y of [undefined, x])
      encoder.dispatch(accumulateKernel, { variant: "u32", buffers: { x, y, total }, params: {}, sizes: {} });
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

  it("has limits, of axes and of threadgroup memory", () => {
    using device = openCuda();
    const out = device.tensor("u32", [9]);
    const encoder = device.encoder();
    const refused = (groups: [number, number, number], scratch: number) =>
      message(() =>
        encoder.dispatch(launchKernel, {
          variant: "u32",
          buffers: { absent: undefined, out },
          params: { u: 0, i: 0, f: 0 },
          sizes: { groups, scratch },
        }),
      );
    expect(refused([1, 65536, 1], 16)).toMatch(/^launch: `threadgroups` must .*65535.*, got \[1, 65536, 1\]/);
    expect(refused([1, 1, 65536], 16)).toMatch(/^launch: `threadgroups` must .*65535.*, got \[1, 1, 65536\]/);
    expect(refused([1, 1, 1], 232449)).toMatch(/^launch: .*232448/);
  });

  it("refuses what needs memory that the host shares, with a remedy", () => {
    using device = openCuda();
    const x = device.tensor("f32", [4]);
    expect(message(() => x.buffer.arrayBuffer())).toMatch(
      /^buffer\.arrayBuffer: `buffer` must lie in memory that the host shares .*, got memory of a cuda device — use read\(\) and write\(\)$/,
    );
    expect(message(() => x.typedArray())).toMatch(/must lie in memory that the host shares/);
    expect(message(() => device.wrap(new Uint8Array(16)))).toMatch(/— copy the array with device\.bufferFrom$/);
  });
});

describeCuda("memory of the CUDA device", () => {
  const folder = testFolder();
  const PIECE = 8 << 20;

  it.each(["", "no-pools"])("is zero-filled, written and read at any length: %s", async (words) => {
    set(words);
    using device = openCuda();
    for (const bytes of [1, 3, 4097, 100_000]) {
      using buffer = device.buffer(bytes);
      expect(new Uint8Array(buffer.readSync()).every((byte) => byte === 0)).toBe(true);
      fill(buffer, 0xfe);
      expect(new Uint8Array(await buffer.read()).every((byte) => byte === 0xfe)).toBe(true);
      const data = bytesOf(bytes - 1);
      buffer.write(data, 1);
      expect(same(buffer.readSync(1), data)).toBe(true);
      expect(new Uint8Array(buffer.readSync(0, 1))[0]).toBe(0xfe);
      expect(buffer.readSync(bytes).byteLength).toBe(0);
    }
    expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
  });

  it.each([1, 2, 3])("is written without waiting, before what is submitted or read next: %i", async (seed) => {
    set(`seed:${seed},delay:500`);
    using device = openCuda();
    const x = device.tensor("u32", [40]);
    const y = device.tensor("u32", [4]);
    const encoder = device.encoder();
    increment(encoder, { x: y, out: y }, { groups: 1, microseconds: 2000 });
    const slow = encoder.commit();
    // More writes than are under way at a time, the last of which count.
    for (let i = 0; i < 40; i++) x.slice(i, i + 1).write([i]);
    x.slice(0, 1).write([7]);
    expect(slow.state).toBe("committed");
    const next = device.encoder();
    increment(next, { x, out: x });
    await next.commit();
    x.slice(39, 40).write([1]);
    expect([...x.readSync()]).toEqual([8, ...Array.from({ length: 38 }, (_, i) => i + 2), 1]);
    expect([...y.readSync()]).toEqual([1, 1, 1, 1]);
    const gone = device.tensor("u32", [4], [1, 2, 3, 4]);
    gone.write([5, 6, 7, 8]);
    gone.dispose();
  });

  it("is copied in pieces", async () => {
    using device = openCuda();
    for (const bytes of [PIECE - 1, PIECE, PIECE + 1, 5 * PIECE + 3]) {
      const data = bytesOf(bytes);
      using buffer = device.bufferFrom(data);
      expect(same(buffer.readSync(), data)).toBe(true);
      expect(same(await buffer.read(5, bytes - 9), data.subarray(5, bytes - 4))).toBe(true);
      buffer.write(data.subarray(0, bytes - 2), 2);
      expect(same(buffer.readSync(2), data.subarray(0, bytes - 2))).toBe(true);
    }
  });

  it("is filled beyond what a node of a graph takes", async () => {
    using device = openCuda();
    using large = device.buffer(2 ** 30 + 2 ** 27 + 5);
    large.write(new Uint8Array([1, 2, 3]), 2 ** 30 - 1);
    large.write(new Uint8Array([4]), large.byteLength - 1);
    fill(large, 0);
    expect([...new Uint8Array(await large.read(2 ** 30 - 2, 5))]).toEqual([0, 0, 0, 0, 0]);
    expect(new Uint8Array(await large.read(large.byteLength - 1))[0]).toBe(0);
  });

  it("that is full when a kernel is loaded is named, with what is free, and tried once more without what the pool keeps", () => {
    set("cuModuleLoadDataEx@1=2");
    using device = openCuda();
    const x = device.tensor("u32", [8]);
    increment(device.encoder(), { x, out: x });
    set("cuModuleLoadDataEx@1=2,cuModuleLoadDataEx@2=2");
    using full = openCuda();
    const y = full.tensor("u32", [8]);
    expect(caught(() => increment(full.encoder(), { x: y, out: y }))).toMatchObject({
      code: "BufferAllocation",
      message: expect.stringMatching(
        /^device.library: \w+ has no memory for its code, \d+ bytes of PTX: the GPU has \d+ bytes free$/,
      ),
    });
    increment(full.encoder(), { x: y, out: y });
  });

  it("that is full when work is submitted is named, with what is free", async () => {
    set("cuLaunchKernel@1=2");
    using device = openCuda();
    const x = device.tensor("u32", [8]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x });
    const error = await rejected(encoder.commit());
    expect(error).toMatchObject({ code: "CommandBuffer", details: { cause: "outOfMemory" } });
    expect(error.message).toMatch(/the GPU has \d+ bytes free/);
  });

  it("runs out with a typed error, and can be had again", () => {
    set(`memory:${2 ** 20}`);
    using device = openCuda();
    const buffer = device.buffer(900_000);
    expect(caught(() => device.buffer(900_000))).toMatchObject({
      code: "BufferAllocation",
      message: expect.stringMatching(/^cannot allocate 900000 bytes on cuda: 14\d{4} bytes are free$/),
      details: { bytes: 900_000 },
    });
    expect(message(() => device.buffer(2 ** 21))).toMatch(
      /^cannot allocate 2097152 bytes on cuda: 14\d{4} bytes are free$/,
    );
    buffer.dispose();
    device.buffer(900_000).dispose();
  });

  it("cannot be copied where the host gives no pinned memory", () => {
    for (const call of [1, 2]) {
      set(`cuMemHostAlloc@${call}=2`);
      using device = openCuda();
      using buffer = device.buffer(4);
      expect(caught(() => buffer.readSync()).code).toBe("BufferAllocation");
      expect(new Uint8Array(buffer.readSync())[3]).toBe(0);
    }
    for (const call of [1, 4]) {
      set(`cuMemHostAlloc@${call}=2`);
      using device = openCuda();
      using buffer = device.buffer(4);
      expect(caught(() => buffer.write(new Uint8Array(4))).code).toBe("BufferAllocation");
      buffer.write(new Uint8Array([1, 2, 3, 4]));
      expect(new Uint8Array(buffer.readSync())[3]).toBe(4);
    }
  });

  it("takes a copy of files", async () => {
    using device = openCuda();
    for (const bytes of [1, 5001 * 4 - 2, 3 * PIECE + 7]) {
      const path = join(folder, `file${bytes}`);
      writeFileSync(path, bytesOf(bytes));
      using buffer = await device.mapFile(path, bytes);
      // The copy does not need the file any more.
      truncateSync(path, 0);
      unlinkSync(path);
      expect(buffer.readOnly).toBe(true);
      expect(same(buffer.readSync(), bytesOf(bytes))).toBe(true);
      expect(message(() => buffer.write(new Uint8Array(1)))).toMatch(/must be writable/);
      if (bytes < 4) continue;
      const out = device.tensor("u32", [4]);
      const encoder = device.encoder();
      increment(encoder, { x: new Tensor(buffer, "u32", [4]), out });
      await encoder.commit();
      expect(out.readSync()[0]).toBe((new Uint32Array(bytesOf(4).buffer)[0] as number) + 1);
      out.dispose();
    }
  });

  it("refuses files that are not there, too short, or no files", async () => {
    using device = openCuda();
    const path = join(folder, "none");
    expect(await rejected(device.mapFile(path, 5))).toMatchObject({
      code: "Io",
      message: `cannot map ${path}: No such file or directory`,
      details: { path, operation: "map" },
    });
    const short = join(folder, "short");
    writeFileSync(short, new Uint8Array(4));
    expect((await rejected(device.mapFile(short, 5))).code).toBe("Io");
    expect((await rejected(device.mapFile(folder, 5))).message).toBe(`cannot map ${folder}: Is a directory`);
    expect(device.counters.liveBuffers).toBe(0);
  });

  it("is refused to files that are larger", async () => {
    set(`memory:${2 ** 20}`);
    using device = openCuda();
    const path = join(folder, "large");
    writeFileSync(path, new Uint8Array(2 ** 21));
    expect(await rejected(device.mapFile(path, 2 ** 21))).toMatchObject({ code: "BufferAllocation" });
  });
});

describeCuda("kernels as PTX", () => {
  const folder = testFolder();
  const home = join(folder, "prebuilds", "cuda");
  mkdirSync(home, { recursive: true });
  mkdirSync(join(folder, "native"));
  const library = defineLibrary("temporary", pathToFileURL(join(folder, "src", "library.ts")).href);
  const kernel = (name: string, variants = ["u32"]) =>
    defineKernel({
      library,
      name,
      variants,
      buffers: { x: "read", out: "write" },
      params: { perGroup: "u32", microseconds: "u32" },
      inPlace: [["out", "x"]],
      launch: { gpu: (_: object) => ({ threadgroups: [1, 1, 1] }) },
    });
  const write = (name: string, bytes: Uint8Array) => writeFileSync(join(home, `${name}.ptx.br`), bytes);
  const compressed = (value: unknown) => brotliCompressSync(JSON.stringify(value));
  const dispatch = (device: Device, one: ReturnType<typeof kernel>, variant = "u32") => {
    const x = device.tensor("u32", [4]);
    const encoder = device.encoder();
    encoder.dispatch(one, { variant, buffers: { x, out: x }, params: { perGroup: 4, microseconds: 0 }, sizes: {} });
    return { x, submission: encoder.commit() };
  };

  it("run, each symbol compiled by itself", async () => {
    using device = openCuda();
    const one = kernel("one");
    write("one", archiveOf(one));
    expect(caught(() => dispatch(device, one))).toMatchObject({
      code: "ShaderCompilation",
      message: expect.stringMatching(
        /^kernel `one_u32` does not compile: .*error {3}: the stand-in has no kernel one_u32/,
      ),
      details: { name: "one_u32", log: expect.stringContaining("CUDA_ERROR_INVALID_PTX") },
    });
    const increments = defineKernel({
      library,
      name: "increment",
      variants: ["u32"],
      buffers: { x: "read", out: "write" },
      params: { perGroup: "u32", microseconds: "u32" },
      inPlace: [["out", "x"]],
      launch: { gpu: (_: object) => ({ threadgroups: [1, 1, 1] }) },
    });
    write("increment", archiveOf(increments));
    const { x, submission } = dispatch(device, increments as ReturnType<typeof kernel>);
    await submission;
    expect([...x.readSync()]).toEqual([1, 1, 1, 1]);
  });

  it("are not found without a file or a symbol", () => {
    using device = openCuda();
    const two = kernel("two", ["u32", "constructor"]);
    expect(caught(() => dispatch(device, two))).toMatchObject({ code: "KernelNotFound" });
    writeFileSync(join(folder, "native", "two.metal"), "");
    expect(caught(() => dispatch(device, two))).toMatchObject({
      code: "Io",
      message: expect.stringMatching(/build them in a clone with `npm run cuda`, or open another device$/),
    });
    write("two", compressed({ contract: cudaContract(two), symbols: {} }));
    expect(caught(() => dispatch(device, two))).toMatchObject({
      code: "KernelNotFound",
      message: "kernel `two_u32` not found in the library `temporary`",
    });
    expect(device.library(library).has("two", "u32")).toBe(false);
    expect(device.library(library).has("absent", "u32")).toBe(false);
    // The archive names a symbol, the PTX has another.
    const three = kernel("three");
    write("three", archiveOf(three, undefined, "increment"));
    expect(caught(() => dispatch(device, three))).toMatchObject({ code: "KernelNotFound" });
  });

  it("for compute capability 9.0 alone are found there only", () => {
    const increments = kernel("increment", ["u32"]);
    const { contract, symbols } = JSON.parse(brotliDecompressSync(archiveOf(increments)).toString());
    const text = symbols.increment_u32.replace("sm_80", "sm_90a");
    write("increment", compressed({ contract, symbols: { increment_u32: text } }));
    for (const [capability, found] of [
      [80, false],
      [90, true],
      [100, false],
    ] as const) {
      set(`capability:${capability}`);
      using device = openCuda();
      expect(device.library(library).has("increment", "u32"), `${capability}`).toBe(found);
    }
  });

  it("are refused where they were built from another declaration", () => {
    using device = openCuda();
    const four = kernel("four");
    write("four", archiveOf(four, cudaContract(four) ^ 1));
    expect(caught(() => dispatch(device, four))).toMatchObject({
      code: "Io",
      message: expect.stringMatching(/^the library `temporary` has its kernel `four` from other sources than these/),
    });
  });

  const whole = archiveOf(kernel("five"));
  it.each([
    ["is empty", new Uint8Array(0)],
    ["is cut off", whole.subarray(0, whole.length - 4)],
    ["is no Brotli", new Uint8Array(100).fill(0x77)],
    ["is no JSON", brotliCompressSync("{")],
    ["is null", compressed(null)],
    ["is a list", compressed([])],
    ["has no contract", compressed({ symbols: {} })],
    ["has no symbols", compressed({ contract: 1 })],
    ["has symbols that are a list", compressed({ contract: 1, symbols: ["a"] })],
    ["has a symbol that is no text", compressed({ contract: 1, symbols: { five_u32: 5 } })],
    ["unpacks to very much", brotliCompressSync(Buffer.alloc((256 << 20) + 1))],
  ])("are refused where the archive %s", (_, bytes) => {
    using device = openCuda();
    write("five", bytes);
    const path = join(home, "five.ptx.br");
    const error = caught(() => dispatch(device, kernel("five")));
    expect(error).toMatchObject({ code: "Io", details: { path, operation: "load" } });
    expect(error.message).toMatch(/^the library `temporary` cannot load its kernels .*five\.ptx\.br on /);
  });

  it("are refused where the archive is a folder", () => {
    using device = openCuda();
    mkdirSync(join(home, "six.ptx.br"));
    expect(caught(() => dispatch(device, kernel("six")))).toMatchObject({ code: "Io" });
  });
});

describeCuda("data errors on the CUDA device", () => {
  it("name the first dispatch, and are found once", async () => {
    using device = openCuda();
    const good = device.tensor("u32", [4], [1, 2, 3, 4]);
    const bad = device.tensor("u32", [4], [1, 50, 3, 60]);
    const encoder = device.encoder();
    limit(encoder, { x: good }, { limit: 10 });
    const kept = limit(encoder, { x: bad }, { limit: 70 });
    const out = limit(encoder, { x: bad }, { limit: 10 });
    const recording = encoder.finish();
    for (const profile of [false, false, true]) {
      expect(await rejected(recording.replay({ profile }))).toMatchObject({
        code: "InvalidArgument",
        message: "limit: `x` must be < 10, got 50",
      });
      expect(message(() => out.readSync())).toBe("limit: `x` must be < 10, got 50");
    }
    bad.write([1, 5, 3, 6]);
    await recording.replay();
    expect([...out.readSync(), ...kept.readSync()]).toEqual([1, 5, 3, 6, 1, 5, 3, 6]);
  });

  it.each([1, 2, 3, 4])("stay with their submission where several overlap: %i", async (seed) => {
    set(`seed:${seed},delay:400`);
    using device = openCuda();
    const x = device.tensor("u32", [4]);
    const encoder = device.encoder();
    increment(encoder, { x, out: x });
    limit(encoder, { x }, { limit: 4 });
    const recording = encoder.finish();
    const once = (values: number[]) => {
      const own = device.encoder();
      const out = limit(own, { x: device.tensor("u32", [values.length], values) }, { limit: 10 });
      const submission = own.commit();
      out.dispose();
      return submission;
    };
    const all = [];
    for (let i = 0; i < 6; i++) all.push(recording.replay(), once([1, i === 2 ? 77 : 7]));
    const ends = await Promise.all(
      all.map((one) =>
        one.then(
          () => "",
          (error: unknown) => (error as Error).message,
        ),
      ),
    );
    const replays = ends.filter((_, i) => i % 2 === 0),
      singles = ends.filter((_, i) => i % 2 === 1);
    expect(replays).toEqual(["", "", "", ...[4, 5, 6].map((value) => `limit: \`x\` must be < 4, got ${value}`)]);
    expect(singles).toEqual(["", "", "limit: `x` must be < 10, got 77", "", "", ""]);
  });
});

describe("NVIDIA's driver, where it is missing", () => {
  it("leaves other devices, and tells what was looked for", () => {
    expect(underCuda({ MLXTS_CUDA_DRIVER: "/nowhere/libcuda.so.1" }, () => message(openCuda))).toMatch(
      /^no device found: cuda \(no NVIDIA driver: .*\/nowhere\/libcuda\.so\.1/,
    );
  });
});
