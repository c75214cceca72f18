import { execFileSync } from "node:child_process";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { Device, readSafetensors, Tensor } from "../src/index.ts";
import { caught, message, rejected, testDevice, testFolder } from "./helpers.ts";
import { addressOf } from "./internals.ts";
import { increment } from "./kernels/probe.ts";
import { pinned, wrappable } from "./wrappable.ts";

describe("buffer", () => {
  const device = testDevice();

  // From the heap, and mapped.
  it.each([1000, 100_000])("of %i bytes is zero-filled, also where memory was used before", (bytes) => {
    for (let round = 0; round < 20; round++) {
      using buffer = device.buffer(bytes + round);
      expect(buffer.byteLength).toBe(bytes + round);
      expect(new Uint8Array(buffer.readSync()).every((byte) => byte === 0)).toBe(true);
      buffer.write(new Uint8Array(buffer.byteLength).fill(0xff));
    }
  });

  it.each([0, -1, 1.5, Number.NaN, 2 ** 53])("refuses %s bytes", (bytes) => {
    expect(message(() => device.buffer(bytes))).toBe(
      `device.buffer: \`byteLength\` must be an integer ≥ 1, got ${bytes}`,
    );
  });

  it.each([device.limits.maxBufferBytes + 1, 2 ** 50, Number.MAX_SAFE_INTEGER])(
    "has an error of its own for %s bytes",
    (bytes) => {
      const error = caught(() => device.buffer(bytes));
      expect(error).toMatchObject({ code: "BufferAllocation", transient: false, details: { bytes } });
      expect(error.message).toBe(`cannot allocate ${bytes} bytes on cpu`);
    },
  );

  it("copies with bufferFrom", () => {
    const source = new Uint16Array([1, 2, 3, 4]).subarray(1, 3);
    using buffer = device.bufferFrom(source);
    source[0] = 9;
    expect([...new Uint16Array(buffer.readSync())]).toEqual([2, 3]);
    expect(message(() => device.bufferFrom([1] as never))).toBe(
      "device.bufferFrom: `data` must be a typed array or DataView, got [1]",
    );
  });

  it("reads and writes ranges, and refuses those outside", async () => {
    using buffer = device.buffer(8);
    buffer.write(new Uint8Array([1, 2]), 3);
    buffer.write(new Uint8Array(0), 8);
    expect([...new Uint8Array(await buffer.read(2, 4))]).toEqual([0, 1, 2, 0]);
    expect(buffer.readSync(8, 0).byteLength).toBe(0);
    expect(message(() => buffer.readSync(7, 2))).toBe(
      "buffer.readSync: `byteLength` must stay within the buffer's 8 bytes, got 7 + 2",
    );
    expect(message(() => buffer.write(new Uint8Array(2), 7))).toBe(
      "buffer.write: `byteLength` must stay within the buffer's 8 bytes, got 7 + 2",
    );
    expect(message(() => buffer.readSync(-1))).toBe("buffer.readSync: `byteOffset` must be an integer ≥ 0, got -1");
    expect((await rejected(buffer.read(0, 9))).message).toBe(
      "buffer.read: `byteLength` must stay within the buffer's 8 bytes, got 0 + 9",
    );
  });

  it("reads what lies beyond 2 and 4 GiB", () => {
    if (device.limits.maxBufferBytes < 5 * 2 ** 30) return;
    using buffer = device.buffer(5 * 2 ** 30);
    for (const at of [2 ** 31, 2 ** 32 + 5]) {
      buffer.write(new Uint8Array([7, 8]), at);
      expect([...new Uint8Array(buffer.readSync(at - 1, 4))]).toEqual([0, 7, 8, 0]);
    }
  });

  it("shows its memory as an array that is emptied with it", () => {
    const tensor = device.tensor("f32", [4], [1, 2, 3, 4]);
    const view = tensor.view(1, [2]).typedArray();
    view[0] = 20;
    expect([...tensor.readSync()]).toEqual([1, 20, 3, 4]);
    expect(tensor.buffer.arrayBuffer()).toBe(view.buffer);
    tensor.dispose();
    expect(view.length).toBe(0);
    const gone = Device.open("cpu");
    const last = gone.tensor("f32", [4]).typedArray();
    gone.dispose();
    expect(last.length).toBe(0);
  });

  it("is disposed at once, also twice; its memory is freed after its last use", async () => {
    using device = Device.open("cpu");
    const tensor = device.tensor("u32", [1024]);
    const out = device.tensor("u32", [1024]);
    const before = device.counters.liveBuffers;
    const encoder = device.encoder();
    increment(encoder, { x: tensor, out }, { microseconds: 50_000 });
    const submission = encoder.commit();
    tensor.dispose();
    tensor.dispose();
    expect(tensor.disposed).toBe(true);
    expect(device.counters.liveBuffers).toBe(before);
    await submission;
    expect(device.counters.liveBuffers).toBe(before - 1);
    expect([...(await out.read())]).toEqual(Array(1024).fill(1));
    out.dispose();
  });
});

describe("fresh memory", () => {
  it("is idle, also where work that has just ended used memory of the same address", () => {
    using device = Device.open("cpu");
    for (let round = 0; round < 50; round++) {
      const [x, out] = [device.tensor("u32", [1 << 14]), device.tensor("u32", [1 << 14])];
      const encoder = device.encoder();
      increment(encoder, { x, out });
      void encoder.commit();
      x.dispose();
      out.dispose();
      // Without a turn of the event loop, the queue does not know yet that the work has ended.
      while (device.counters.liveBuffers > 0);
      using fresh = device.tensor("u32", [1 << 14]);
      fresh.write(new Uint32Array(1 << 14));
    }
  });
});

describe("wrapped memory", () => {
  const device = testDevice();

  it("is used where it lies", async () => {
    const array = wrappable(new Uint32Array([1, 2, 3, 4, 5, 6]));
    using buffer = device.wrap(array.subarray(1, 5));
    const tensor = new Tensor(buffer, "u32", [4]);
    const encoder = device.encoder();
    increment(encoder, { x: tensor, out: tensor });
    await encoder.commit();
    expect([...array]).toEqual([1, 3, 4, 5, 6, 6]);
    array[1] = 100;
    expect([...tensor.readSync()]).toEqual([100, 4, 5, 6]);
  });

  it("may be read-only", () => {
    using buffer = device.wrap(wrappable(new Uint8Array(4)), { readOnly: true });
    expect(message(() => buffer.write(new Uint8Array(1)))).toBe(
      "buffer.write: `buffer` must be writable, got a read-only buffer — copy it with device.bufferFrom first",
    );
    expect(message(() => buffer.arrayBuffer())).toBe(
      "buffer.arrayBuffer: `buffer` must be writable, got a read-only buffer — use read() for a copy",
    );
  });

  it("refuses views of bytes that are gone", () => {
    const tensor = device.tensor("f32", [4]);
    const shown = tensor.typedArray();
    const data = new DataView(shown.buffer);
    tensor.dispose();
    const lying = Object.defineProperty(new Uint8Array(4), "byteLength", { value: 5 });
    using buffer = device.buffer(8);
    const gone = "must show bytes of its ArrayBuffer, got a view of bytes that are gone";
    for (const view of [shown, data, lying]) {
      expect(message(() => device.wrap(view))).toBe(`device.wrap: \`memory\` ${gone}`);
      expect(message(() => device.bufferFrom(view))).toBe(`device.bufferFrom: \`data\` ${gone}`);
      expect(message(() => buffer.write(view))).toBe(`buffer.write: \`data\` ${gone}`);
    }
  });

  it("refuses values that are no memory", () => {
    expect(message(() => device.wrap(new ArrayBuffer(4) as never))).toBe(
      "device.wrap: `memory` must be a typed array or DataView, got ArrayBuffer",
    );
    expect(message(() => device.wrap(new Uint8Array(0)))).toBe(
      "device.wrap: `memory` must have at least one byte, got 0 bytes",
    );
    const lying = Object.defineProperty(new Uint8Array(4), "buffer", { value: [1, 2, 3, 4] });
    expect(message(() => device.wrap(lying))).toBe(
      "device.wrap: `memory` must lie in an ArrayBuffer or SharedArrayBuffer, got [1, 2, 3, 4]",
    );
  });

  it("refuses options that nobody knows", () => {
    expect(message(() => device.wrap(new Uint8Array(4), { readonly: true } as never))).toBe(
      "device.wrap: `readonly` must be one of readOnly, got an unknown option",
    );
    expect(message(() => device.wrap(new Uint8Array(4), { readOnly: 1 } as never))).toBe(
      "device.wrap: `readOnly` must be a boolean, got 1",
    );
  });

  it("refuses memory that may shrink", () => {
    const Resizable = ArrayBuffer as unknown as new (length: number, options: object) => ArrayBuffer;
    const resizable = new Resizable(8, { maxByteLength: 16 });
    expect(message(() => device.wrap(new Uint8Array(resizable)))).toBe(
      "device.wrap: `memory` must have a fixed length, got a view of a resizable ArrayBuffer",
    );
  });

  it.skipIf(!pinned)("cannot be transferred away", () => {
    const array = new Uint8Array([1, 2, 3]);
    using buffer = device.wrap(array);
    try {
      structuredClone(array, { transfer: [array.buffer] });
    } catch {
      // Newer versions of Node.js refuse, older ones copy.
    }
    expect([...new Uint8Array(buffer.readSync())]).toEqual([1, 2, 3]);
  });

  it.skipIf(!pinned)("counts as disposed when it was transferred away nevertheless", () => {
    const array = new Uint8Array([1, 2, 3]);
    using buffer = device.wrap(array);
    Object.defineProperty(array.buffer, "byteLength", { value: 0 });
    expect(buffer.disposed).toBe(true);
    expect(caught(() => buffer.readSync()).message).toBe("the buffer has been disposed");
  });

  it("may be shared", async () => {
    const shared = new SharedArrayBuffer(64);
    using a = device.wrap(new Uint32Array(shared, 16, 4));
    using b = device.wrap(new Uint32Array(shared));
    a.write(new Uint32Array([1, 2]));
    expect([...new Uint32Array(b.readSync(16, 8))]).toEqual([1, 2]);
    expect(addressOf(a) - addressOf(b)).toBe(16);
  });

  it("is kept alive by work in flight, not by its handle", async () => {
    // A device of its own: buffers that other tests did not dispose could be collected while this one counts.
    using device = Device.open("cpu");
    const before = device.counters.liveBuffers;
    const out = device.tensor("u32", [4]);
    const submission = (() => {
      using buffer = device.wrap(wrappable(new Uint32Array([1, 2, 3, 4])));
      const encoder = device.encoder();
      increment(encoder, { x: new Tensor(buffer, "u32", [4]), out }, { microseconds: 30_000 });
      return encoder.commit();
    })();
    for (let i = 0; i < 50; i++) new Uint8Array(1 << 20).fill(i);
    await submission;
    expect([...(await out.read())]).toEqual([2, 3, 4, 5]);
    out.dispose();
    expect(device.counters.liveBuffers).toBe(before);
  });
});

describe("mapped files", () => {
  const device = testDevice();
  const folder = testFolder();

  it("are read-only, and read zeros past their end", async () => {
    const path = join(folder, "five");
    writeFileSync(path, new Uint8Array([1, 2, 3, 4, 5]));
    using buffer = await device.mapFile(path, 5);
    expect(buffer.readOnly).toBe(true);
    expect([...new Uint8Array(buffer.readSync())]).toEqual([1, 2, 3, 4, 5]);
    expect(caught(() => buffer.write(new Uint8Array(1))).code).toBe("InvalidArgument");
  });

  // VmFlags "hg": the mapping was advised to have huge pages.
  it.skipIf(device.kind !== "cpu" || !existsSync("/sys/kernel/mm/transparent_hugepage"))(
    "of 2 MiB or more start on a huge page, and ask for such pages",
    async () => {
      for (const [bytes, huge] of [
        [(2 << 20) - 1, false],
        [(4 << 20) + 5, true],
      ] as const) {
        const path = join(folder, `${bytes}`);
        writeFileSync(path, new Uint8Array(bytes).fill(7));
        using buffer = await device.mapFile(path, bytes);
        expect(new Uint8Array(buffer.readSync()).every((byte) => byte === 7)).toBe(true);
        const maps = readFileSync("/proc/self/smaps", "utf8").split(/^(?=[0-9a-f]+-)/m);
        const map = maps.find((text) => text.split("\n", 1)[0]?.endsWith(path)) ?? "";
        const start = Number.parseInt(map, 16);
        expect(start).toBeGreaterThan(0);
        expect(/^VmFlags:.* hg\b/m.test(map)).toBe(huge);
        if (huge) expect(start % (2 << 20)).toBe(0);
      }
    },
  );

  it("have errors of their own", async () => {
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
    const pipe = join(folder, "pipe");
    execFileSync("mkfifo", [pipe]);
    expect((await rejected(device.mapFile(pipe, 5))).message).toBe(`cannot map ${pipe}: No such device`);
    expect(message(() => readSafetensors(pipe))).toBe(`${pipe}: is not a file`);
    expect((await rejected(device.mapFile(short, 0))).message).toBe(
      "device.mapFile: `byteLength` must be an integer ≥ 1, got 0",
    );
  });
});
