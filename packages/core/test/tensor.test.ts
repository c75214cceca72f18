import { describe, expect, it } from "vitest";
import { arenaBytes, Device, elementCount, Tensor, tensorBytes } from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";

describe("tensor", () => {
  const device = testDevice();
  const buffer = device.buffer(64);

  it.each([
    [[], "shape", "have at least one dimension, got []"],
    [[0], "shape", "have dimensions that are integers from 1 to 2147483647, got [0]"],
    [[2, 1.5], "shape", "have dimensions that are integers from 1 to 2147483647, got [2, 1.5]"],
    [[2 ** 31], "shape", "have dimensions that are integers from 1 to 2147483647, got [2147483648]"],
    [[65536, 65536], "shape", "fit its buffer of 64 bytes, got [65536, 65536] f32 at byte 0"],
    [[2 ** 30, 2 ** 30], "shape", "have a number of elements below 2^53, got [1073741824, 1073741824]"],
    [[2 ** 26, 2 ** 26], "shape", "have fewer than 2^53 bytes, got [67108864, 67108864]"],
    [[17], "shape", "fit its buffer of 64 bytes, got [17] f32 at byte 0"],
  ])("refuses the shape %j", (shape, argument, rule) => {
    expect(message(() => new Tensor(buffer, "f32", shape))).toBe(`Tensor: \`${argument}\` must ${rule}`);
  });

  it("refuses other wrong arguments", () => {
    expect(message(() => new Tensor(buffer, "f64" as never, [1]))).toBe(
      "Tensor: `dtype` must be one of f32, f16, bf16, u32, i32, u16, i16, u8, i8, i64, got f64",
    );
    expect(message(() => new Tensor(buffer, "f32", 4 as never))).toBe(
      "Tensor: `shape` must be an array of dimensions, got 4",
    );
    expect(message(() => new Tensor(buffer, "f32", [1], { byteOffset: -4 }))).toBe(
      "Tensor: `byteOffset` must be an integer ≥ 0, got -4",
    );
    expect(message(() => new Tensor(buffer, "f32", [1], { byteOffset: 2 }))).toBe(
      "Tensor: `byteOffset` must be a multiple of 4 for f32, got 2",
    );
    expect(message(() => new Tensor(buffer, "bf16", [1], { byteOffset: 1 }))).toBe(
      "Tensor: `byteOffset` must be a multiple of 2 for bf16, got 1",
    );
    expect(message(() => new Tensor(buffer, "f32", [1], { byteOffset: 64 }))).toBe(
      "Tensor: `shape` must fit its buffer of 64 bytes, got [1] f32 at byte 64",
    );
  });

  it("reads and writes exactly its view", async () => {
    const whole = device.tensor("f32", [8], [0, 1, 2, 3, 4, 5, 6, 7]);
    const view = whole.view(2, [2, 2]);
    expect([...view.readSync()]).toEqual([2, 3, 4, 5]);
    expect([...(await view.read())]).toEqual([2, 3, 4, 5]);
    expect([...(await view.readNumbers())]).toEqual([2, 3, 4, 5]);
    expect([...view.typedArray()]).toEqual([2, 3, 4, 5]);
    view.write([20, 30, 40, 50]);
    expect([...whole.readSync()]).toEqual([0, 1, 20, 30, 40, 50, 6, 7]);
    expect(view.byteOffset).toBe(8);
  });

  it("views, slices, reshapes and casts without copies", () => {
    const x = device.tensor("f32", [4, 2, 3], [...Array(24).keys()]);
    expect(x.slice(1, 3).shape).toEqual([2, 2, 3]);
    expect(x.slice(1, 3).readSync()[0]).toBe(6);
    expect(x.slice(3, 4).byteOffset).toBe(72);
    expect(x.reshape([24]).view(5, [1]).readSync()[0]).toBe(5);
    expect(x.slice(2, 4).reshape([12]).slice(1, 2).readSync()[0]).toBe(13);
    expect(x.cast("u16").shape).toEqual([4, 2, 6]);
    expect(x.cast("u8").cast("f32").shape).toEqual([4, 2, 3]);
    expect(new Set([x, x.slice(0, 1), x.reshape([24]), x.cast("i32")].map((t) => t.buffer)).size).toBe(1);
    expect(Object.isFrozen(x.shape)).toBe(true);
  });

  it("refuses views past its end, even inside the buffer", () => {
    const whole = device.tensor("f32", [16]);
    const x = whole.view(4, [8]);
    expect(message(() => x.view(4, [5]))).toBe(
      "tensor.view: `shape` must stay within the tensor's 8 elements, got 5 from element 4",
    );
    expect(message(() => x.view(-1, [1]))).toBe("tensor.view: `offset` must be an integer ≥ 0, got -1");
    expect(message(() => x.view(0.5, [1]))).toBe("tensor.view: `offset` must be an integer ≥ 0, got 0.5");
    expect(message(() => x.reshape([9]))).toBe("tensor.reshape: `shape` must have 8 elements, got [9]");
    expect(message(() => x.slice(8, 9))).toBe("tensor.slice: `begin` must be an integer from 0 to 7, got 8");
    expect(message(() => x.slice(2, 2))).toBe("tensor.slice: `end` must be an integer from 3 to 8, got 2");
    expect(message(() => x.slice(0, 9))).toBe("tensor.slice: `end` must be an integer from 1 to 8, got 9");
    expect(message(() => device.tensor("u8", [3]).cast("u16"))).toBe(
      "tensor.cast: `dtype` must divide the last dimension's 3 bytes, got u16",
    );
    expect(message(() => device.tensor("u8", [8]).view(1, [4]).cast("f32"))).toBe(
      "Tensor: `byteOffset` must be a multiple of 4 for f32, got 1",
    );
    expect(message(() => x.write([1]))).toBe("tensor.write: `data` must have 8 elements, got 1");
  });

  it("rounds numbers and takes raw bits as they are", () => {
    expect([...device.tensor("bf16", [2], [1, -2]).readSync()]).toEqual([0x3f80, 0xc000]);
    expect([...device.tensor("bf16", [2], new Uint16Array([1, 2])).readSync()]).toEqual([1, 2]);
    expect([...device.tensor("i64", [2], [1, -2]).readSync()]).toEqual([1n, -2n]);
    expect([...device.tensor("f32", [1], [0.1]).readSync()]).toEqual([Math.fround(0.1)]);
  });

  it("owns its buffer or nothing", () => {
    const x = device.tensor("f32", [8]);
    const view = x.slice(0, 4);
    view.dispose();
    expect([x.disposed, view.disposed]).toEqual([false, false]);
    x[Symbol.dispose]();
    expect([x.disposed, view.disposed]).toEqual([true, true]);
    for (const call of [() => view.readSync(), () => view.write([1, 2, 3, 4]), () => view.typedArray()])
      expect(caught(call).message).toBe("the tensor has been disposed");
  });

  it("keeps hosts away from memory in use", async () => {
    using device = Device.open("cpu");
    const x = device.tensor("u32", [64]);
    const out = device.tensor("u32", [64]);
    const encoder = device.encoder();
    increment(encoder, { x: x.slice(0, 32), out: out.slice(0, 32) }, { microseconds: 20_000 });
    const submission = encoder.commit();
    const remedy = "await the submission, or use the asynchronous read";
    expect(message(() => out.readSync())).toBe(
      `buffer.readSync: \`range\` must not be written by work in flight, got a range in use — ${remedy}`,
    );
    expect(message(() => x.write(new Uint32Array(64)))).toBe(
      "buffer.write: `range` must not be used by work in flight, got a range in use — await the submission first",
    );
    expect(caught(() => out.slice(31, 33).write([1, 2])).code).toBe("InvalidArgument");
    x.slice(32, 64).write(new Uint32Array(32));
    expect(x.readSync().length).toBe(64);
    expect(out.slice(32, 64).readSync().length).toBe(32);
    const waits = device.counters.waits;
    expect((await out.read())[0]).toBe(1);
    expect(device.counters.waits).toBe(waits + 1);
    expect(submission.state).toBe("completed");
    x.write(new Uint32Array(64));
  });
});

describe("sizes", () => {
  it("multiply without wrapping", () => {
    expect(elementCount("test", [65536, 65536])).toBe(2 ** 32);
    expect(tensorBytes("f32", [65536, 65536])).toBe(2 ** 34);
    expect(tensorBytes("bf16", [3, 5])).toBe(30);
    expect(arenaBytes("bf16", [3, 5])).toBe(256);
    expect(arenaBytes("f32", [65])).toBe(512);
  });
});
