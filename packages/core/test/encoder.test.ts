import { describe, expect, it } from "vitest";
import { type CommandEncoder, Device, defineKernel, defineLibrary, type Tensor } from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { accumulateKernel, increment, incrementKernel, launchKernel, probeLibrary } from "./kernels/probe.ts";
import { wrappable } from "./wrappable.ts";

const missingKernel = defineKernel({
  library: probeLibrary,
  name: "missing",
  variants: ["u32"],
  buffers: { x: "read" },
  params: {},
  launch: { cpu: (_: object) => ({ threadgroups: [1, 1, 1] }), gpu: (_: object) => ({ threadgroups: [1, 1, 1] }) },
});

describe("encoder", () => {
  const device = testDevice();
  const x = device.tensor("u32", [64]);
  const out = device.tensor("u32", [64]);
  const dispatch = (encoder: CommandEncoder, changes: object = {}) =>
    encoder.dispatch(incrementKernel, {
      variant: "u32",
      buffers: { x, out },
      params: { perGroup: 64, microseconds: 0 },
      sizes: { groups: 1 },
      ...changes,
    });

  it("refuses every call once it is committed or finished", async () => {
    for (const end of ["commit", "finish"] as const) {
      const encoder = device.encoder();
      dispatch(encoder);
      await (end === "commit" ? encoder.commit() : encoder.finish().replay());
      const state = end === "commit" ? "committed" : "finished";
      const calls = {
        dispatch: () => dispatch(encoder),
        barrier: () => encoder.barrier(),
        commit: () => encoder.commit(),
        finish: () => encoder.finish(),
      };
      for (const [call, act] of Object.entries(calls))
        expect(message(act)).toBe(
          `encoder.${call}: \`encoder\` must be recording, got a ${state} encoder — make a new one with device.encoder()`,
        );
    }
  });

  it("may be committed empty", async () => {
    const submissions = device.counters.submissions;
    expect((await device.encoder().commit()).ms).toBeGreaterThanOrEqual(0);
    expect(device.counters.submissions).toBe(submissions + 1);
  });

  const big = { perGroup: 2 ** 32, microseconds: 0 };
  const readOnly = device.wrap(wrappable(new Uint8Array(256)), { readOnly: true });
  const disposed = device.tensor("u32", [64]);
  disposed.dispose();
  it.each<[string, object, string]>([
    ["a variant", { variant: "f32" }, "increment: `variant` must be one of u32, got f32"],
    ["a missing buffer", { buffers: { out } }, "increment: `x` must be a Tensor, got undefined"],
    ["a disposed buffer", { buffers: { x: disposed, out } }, "the tensor `x` has been disposed"],
    [
      "partial overlap",
      { buffers: { x: x.view(0, [32]), out: x.view(16, [32]) } },
      "increment: `out` must not overlap `x`, got overlapping views",
    ],
    ["a large u32", { params: big }, "increment: `perGroup` must be a u32, got 4294967296"],
    ["a negative u32", { params: { ...big, perGroup: -1 } }, "increment: `perGroup` must be a u32, got -1"],
    ["a fraction", { params: { ...big, perGroup: 0.5 } }, "increment: `perGroup` must be a u32, got 0.5"],
    ["a missing parameter", { params: { perGroup: 1 } }, "increment: `microseconds` must be a number, got undefined"],
    [
      "no threadgroups",
      { sizes: { groups: 0 } },
      "increment: `threadgroups` must be from 1 to 2147483647 on axis x, got [0, 1, 1]",
    ],
    [
      "too many threadgroups",
      { sizes: { groups: 2 ** 31 } },
      "increment: `threadgroups` must be from 1 to 2147483647 on axis x, got [2147483648, 1, 1]",
    ],
    ["an op's name", { op: "myOp", variant: "f32" }, "myOp: `variant` must be one of u32, got f32"],
  ])("refuses %s and stays as it was", async (_, changes, text) => {
    const encoder = device.encoder();
    dispatch(encoder);
    const before = device.counters;
    expect(message(() => dispatch(encoder, changes))).toBe(text);
    expect(device.counters).toEqual(before);
    const recording = encoder.finish();
    expect([recording.dispatches, recording.barriers]).toEqual([1, 0]);
    await recording.replay();
  });

  it("refuses to write read-only memory", () => {
    const { Tensor } = { Tensor: x.constructor as new (...args: unknown[]) => Tensor<"u32"> };
    const target = new Tensor(readOnly, "u32", [64]);
    expect(message(() => dispatch(device.encoder(), { buffers: { x, out: target } }))).toBe(
      "increment: `out` must be writable, got a read-only tensor",
    );
  });

  it("refuses finite numbers that f32 cannot hold", () => {
    const encoder = device.encoder();
    const at = (f: number) => () =>
      encoder.dispatch(launchKernel, {
        variant: "u32",
        buffers: { absent: undefined, out },
        params: { u: 0, i: 0, f },
        sizes: { groups: [1, 1, 1], scratch: 0 },
      });
    for (const [value, shown] of [
      [1e39, "1e+39"],
      [-1e39, "-1e+39"],
    ] as const)
      expect(message(at(value))).toBe(
        `launch: \`f\` must be finite as f32, got ${shown} — f32 holds magnitudes from 1.4e-45 to 3.4e38`,
      );
    expect(encoder.toJSON().dispatches).toBe(0);
    for (const value of [3.4e38, Number.NEGATIVE_INFINITY, 1e-50, -0]) at(value)();
    expect(encoder.toJSON().dispatches).toBe(4);
  });

  it("refuses geometry beyond the device", () => {
    const encoder = device.encoder();
    const at =
      (groups: readonly [number, number, number], scratch = 0) =>
      () =>
        encoder.dispatch(launchKernel, {
          variant: "u32",
          buffers: { absent: undefined, out },
          params: { u: 0, i: 0, f: 0 },
          sizes: { groups, scratch },
        });
    expect(message(at([2 ** 30, 2 ** 30, 1]))).toBe(
      "launch: `threadgroups` must be fewer than 2^53 in all, got [1073741824, 1073741824, 1]",
    );
    const { maxThreadgroupBytes } = device.limits;
    expect(message(at([1, 1, 1], maxThreadgroupBytes + 1))).toBe(
      `launch: \`scratch\` must take at most ${maxThreadgroupBytes} bytes, got ${maxThreadgroupBytes + 1}`,
    );
    const { library, name, variants, buffers, params } = incrementKernel;
    const wide = defineKernel({
      library,
      name,
      variants,
      buffers,
      params,
      launch: { cpu: (_: object) => ({ threadgroups: [1, 1, 1], threadsPerThreadgroup: [1025, 1, 1] }) },
    });
    expect(
      message(() =>
        encoder.dispatch(wide, {
          variant: "u32",
          buffers: { x, out },
          params: { perGroup: 1, microseconds: 0 },
          sizes: {},
        }),
      ),
    ).toBe("increment: `threadsPerThreadgroup` must have a product from 1 to 1024, got [1025, 1, 1]");
  });

  it("names a kernel that the library lacks", () => {
    const error = caught(() =>
      device.encoder().dispatch(missingKernel, { variant: "u32", buffers: { x }, params: {}, sizes: {} }),
    );
    expect(error).toMatchObject({
      code: "KernelNotFound",
      message: "kernel `missing_u32` not found in the library `probe`",
      details: { name: "missing_u32", library: "probe" },
    });
    const library = device.library(probeLibrary);
    expect([library.has("missing", "u32"), library.has("increment", "u32")]).toEqual([false, true]);
  });

  it("takes libraries from defineLibrary only", () => {
    expect(message(() => device.library({ name: "probe", url: import.meta.url }))).toBe(
      "device.library: `library` must be made by defineLibrary, got Object",
    );
    expect(message(() => defineLibrary("../probe", import.meta.url))).toBe(
      "defineLibrary: `name` must be of letters, digits, - and _, got ../probe",
    );
    expect(message(() => defineLibrary("probe", undefined as never))).toBe(
      "defineLibrary: `url` must be the import.meta.url of a module, got undefined — bundlers must leave this package external",
    );
  });

  it("refuses unknown modes", () => {
    expect(message(() => device.encoder({ barriers: "some" as never }))).toBe(
      "device.encoder: `barriers` must be auto or manual, got some",
    );
  });

  it("lets its buffers go when it is disposed, and only then", () => {
    const temporary = device.tensor("u32", [64]);
    const { liveBuffers } = device.counters;
    const encoder = device.encoder();
    dispatch(encoder, { buffers: { x: temporary, out } });
    temporary.dispose();
    expect(device.counters.liveBuffers).toBe(liveBuffers);
    encoder.dispose();
    encoder.dispose();
    expect(device.counters.liveBuffers).toBe(liveBuffers - 1);
    expect(message(() => dispatch(encoder))).toBe(
      "encoder.dispatch: `encoder` must be recording, got a disposed encoder — make a new one with device.encoder()",
    );
  });

  it("uses buffers that were disposed after they had been recorded", async () => {
    using device = Device.open("cpu");
    const encoder = device.encoder();
    const result = device.tensor("u32", [4]);
    {
      using a = device.tensor("u32", [4], [1, 2, 3, 4]);
      using b = device.tensor("u32", [4]);
      increment(encoder, { x: a, out: b });
      increment(encoder, { x: b, out: result });
    }
    expect(device.counters.liveBuffers).toBe(3);
    await encoder.commit();
    expect(device.counters.liveBuffers).toBe(1);
    expect([...result.readSync()]).toEqual([3, 4, 5, 6]);
  });
});

describe.each([1, 2, 5])("launches on %i threads", (threads) => {
  const device = testDevice({ threads });

  it.each([
    [[1, 1, 1], 0],
    [[7, 1, 1], 100],
    [[3, 5, 2], 64],
    [[1000, 1, 1], 4097],
  ] as const)("tell a kernel %j threadgroups and %i bytes of scratch", async (groups, scratch) => {
    const total = groups[0] * groups[1] * groups[2];
    const out = device.tensor("u32", [total, 9]);
    const encoder = device.encoder();
    encoder.dispatch(launchKernel, {
      variant: "u32",
      buffers: { absent: undefined, out },
      params: { u: 0xfffffff0, i: -2, f: 0.1 },
      sizes: { groups, scratch },
    });
    await encoder.commit();
    const words = out.readSync();
    const float = new Uint32Array(new Float32Array([0.1]).buffer)[0];
    const expected = [...groups, 0xfffffff0, 0xfffffffe, float, scratch, 0, 1];
    for (let group = 0; group < total; group++) expect([...words.subarray(group * 9, group * 9 + 9)]).toEqual(expected);
    out.dispose();
  });

  it("pass optional buffers, absent or present", async () => {
    const total = device.tensor("u32", [1], [5]);
    const x = device.tensor("u32", [1], [10]);
    const encoder = device.encoder();
    encoder.dispatch(accumulateKernel, { variant: "u32", buffers: { x, y: undefined, total }, params: {}, sizes: {} });
    encoder.dispatch(accumulateKernel, { variant: "u32", buffers: { x, y: x, total }, params: {}, sizes: {} });
    await encoder.commit();
    expect(total.readSync()[0]).toBe(35);
  });
});
