// Messages for values of a wrong kind, unknown names, and numbers that do not fit.
import vm from "node:vm";
import { describe, expect, it } from "vitest";
import manifest from "../package.json";
import { show } from "../src/errors.ts";
import {
  Device,
  type Dtype,
  decodeNumbers,
  defineKernel,
  defineOp,
  encodeNumbers,
  MlxtsError,
  openCheckpoint,
  Tensor,
} from "../src/index.ts";
import { message, rejected, testDevice } from "./helpers.ts";
import { increment, incrementKernel, probeLibrary } from "./kernels/probe.ts";

const DTYPES = "f32, f16, bf16, u32, i32, u16, i16, u8, i8, i64";
const wrong = (value: unknown) => value as never;

describe("wrong kinds", () => {
  const device = testDevice();
  const x = device.tensor("u32", [4]);
  const write = (dtype: Dtype, data: unknown) => () => device.tensor(dtype, [2], wrong(data));

  it.each<[string, () => unknown, string]>([
    [
      "a dtype's long name",
      () => device.tensor(wrong("float32"), [2]),
      `device.tensor: \`dtype\` must be one of ${DTYPES}, got float32`,
    ],
    [
      "no dtype",
      () => device.tensor(wrong(undefined), [2]),
      `device.tensor: \`dtype\` must be one of ${DTYPES}, got undefined`,
    ],
    ["a cast", () => x.cast(wrong("float")), `tensor.cast: \`dtype\` must be one of ${DTYPES}, got float`],
    [
      "text",
      () => device.tensor("f32", [2]).write(wrong("ab")),
      "tensor.write: `data` must be an array of numbers, got ab",
    ],
    ["texts", write("f32", ["1", "2"]), 'device.tensor: `data[0]` must be a number, got "1"'],
    ["null for data", write("f32", null), "device.tensor: `data` must be an array of numbers, got null"],
    ["a hole", write("f32", Object.assign(Array(2), [1])), "device.tensor: `data[1]` must be a number, got undefined"],
    [
      "a function",
      write("f32", (_a: unknown, _b: unknown) => 0),
      "device.tensor: `data` must be an array of numbers, got a function",
    ],
    [
      "a length that is none",
      write("f32", { length: "2" }),
      "device.tensor: `data` must be an array of numbers, got Object",
    ],
    ["too few", write("f32", [1]), "device.tensor: `data` must have 2 elements, got 1"],
    [
      "a negative u32",
      write("u32", [-1, 2.5]),
      "device.tensor: `data[0]` must be an integer from 0 to 4294967295, got -1",
    ],
    ["a fraction", write("u32", [1, 2.5]), "device.tensor: `data[1]` must be an integer from 0 to 4294967295, got 2.5"],
    [
      "a large u8",
      write("u8", new Float32Array([0, 256])),
      "device.tensor: `data[1]` must be an integer from 0 to 255, got 256",
    ],
    ["a small i8", write("i8", [-128, -129]), "device.tensor: `data[1]` must be an integer from -128 to 127, got -129"],
    [
      "NaN",
      write("i32", [0, Number.NaN]),
      "device.tensor: `data[1]` must be an integer from -2147483648 to 2147483647, got NaN",
    ],
    [
      "a fraction of i64",
      write("i64", [0.5, 1]),
      "device.tensor: `data[0]` must be an integer from -9223372036854775808 to 9223372036854775807, got 0.5",
    ],
    [
      "2^63",
      write("i64", [0, 2 ** 63]),
      "device.tensor: `data[1]` must be an integer from -9223372036854775808 to 9223372036854775807, got 9223372036854776000",
    ],
    [
      "a bigint of 64 bits and more",
      write("i64", [0n, 2n ** 63n]),
      "device.tensor: `data[1]` must be an integer from -9223372036854775808 to 9223372036854775807, got 9223372036854775808",
    ],
    ["a bigint for a float", write("f32", [1n, 2n]), "device.tensor: `data[0]` must be a number, got 1"],
    ["unsigned bigints", write("u32", new BigUint64Array(2)), "device.tensor: `data[0]` must be a number, got 0"],
    [
      "numbers to encode",
      () => encodeNumbers("i16", [40000]),
      "encodeNumbers: `data[0]` must be an integer from -32768 to 32767, got 40000",
    ],
    [
      "an array to decode",
      () => decodeNumbers("bf16", wrong(new Float32Array(1))),
      "decodeNumbers: `raw` must be a Uint16Array, got Float32Array(4 bytes)",
    ],
    ["bytes", () => x.buffer.write(wrong([1])), "buffer.write: `data` must be a typed array or DataView, got [1]"],
    ["a buffer", () => new Tensor(wrong({}), "f32", [1]), "Tensor: `buffer` must be a Buffer, got Object"],
    ["an arena", () => device.encoder({ arena: wrong(4096) }), "device.encoder: `arena` must be an Arena, got 4096"],
    ["a kind of device", () => Device.open(wrong(1)), "Device.open: `kind` must be one of cpu, metal, cuda, got 1"],
    [
      "threads",
      () => Device.open("cpu", { threads: wrong("2") }),
      "Device.open: `threads` must be an integer from 1 to 1024, got 2",
    ],
    ["a level", () => Device.open("cpu", { level: wrong(2) }), "Device.open: `level` must be a string, got 2"],
    [
      "an order",
      () => Device.open("cpu", { order: wrong("up") }),
      "Device.open: `order` must be forward or reverse, got up",
    ],
    ["validate", () => Device.open("cpu", { validate: wrong(1) }), "Device.open: `validate` must be a boolean, got 1"],
  ])("are told: %s", (_, act, text) => expect(message(act)).toBe(text));

  it.each<[string, () => Promise<unknown>, string]>([
    ["a device", () => openCheckpoint(wrong("cpu"), "model"), "openCheckpoint: `device` must be a Device, got cpu"],
    ["a path", () => device.mapFile(wrong(1), 1), "device.mapFile: `path` must be a string, got 1"],
    [
      "progress",
      () => device.mapFile("x", 1, { onProgress: wrong(1) }),
      "device.mapFile: `onProgress` must be a function, got 1",
    ],
    [
      "a signal",
      () => openCheckpoint(device, "x", { signal: wrong("now") }),
      "openCheckpoint: `signal` must be an AbortSignal, got now",
    ],
    [
      "options",
      () => openCheckpoint(device, "x", { progress: 1 } as never),
      "openCheckpoint: `progress` must be one of map, onProgress, signal, got an unknown option",
    ],
  ])("are told by a promise: %s", async (_, act, text) => expect((await rejected(act())).message).toBe(text));

  it("leave nothing behind: neither memory nor half of the data", () => {
    const before = device.counters.liveBuffers;
    for (const act of [write("u32", [1, -1]), write("f32", "ab"), write("f32", [1])]) message(act);
    expect(device.counters.liveBuffers).toBe(before);
    x.write([1, 2, 3, 4]);
    message(() => x.write([9, 9, 9, -1]));
    expect([...x.readSync()]).toEqual([1, 2, 3, 4]);
  });

  it("integers that fit are taken", () => {
    const edge: Partial<Record<Dtype, [number, number]>> = {
      u32: [0, 2 ** 32 - 1],
      i32: [-(2 ** 31), 2 ** 31 - 1],
      u16: [0, 65535],
      i16: [-32768, 32767],
      u8: [0, 255],
      i8: [-128, 127],
      i64: [-(2 ** 63), 2 ** 53],
    };
    for (const [dtype, values] of Object.entries(edge))
      expect([...decodeNumbers(dtype as Dtype, encodeNumbers(dtype as Dtype, values))]).toEqual(values);
    const big = device.tensor("i64", [2], wrong([2n ** 63n - 1n, -(2n ** 63n)]));
    expect([...big.readSync()]).toEqual([2n ** 63n - 1n, -(2n ** 63n)]);
    expect([...device.tensor("f32", [2], { length: 2, 0: 1, 1: 2 }).readSync()]).toEqual([1, 2]);
  });

  it("raw arrays of another realm are raw arrays", () => {
    const foreign = vm.runInNewContext("new Uint16Array([1, 0x3f80])") as Uint16Array<ArrayBuffer>;
    expect([...device.tensor("bf16", [2], foreign).readSync()]).toEqual([1, 0x3f80]);
  });
});

describe("unknown names", () => {
  const device = testDevice();
  const dispatch = (changes: object) => () =>
    device.encoder().dispatch(incrementKernel, {
      variant: "u32",
      buffers: { x: device.tensor("u32", [4]), out: device.tensor("u32", [4]) },
      params: { perGroup: 1, microseconds: 0 },
      sizes: { groups: 4 },
      ...changes,
    });
  const kernel = {
    library: probeLibrary,
    name: "name",
    variants: ["u32"],
    buffers: { x: "read" },
    params: {},
    launch: { cpu: () => ({ threadgroups: [1, 1, 1] }) },
  };
  const op = { name: "name", summary: "", inputs: {}, outputs: {}, params: {}, encode: () => {} };

  it.each<[string, () => unknown, string]>([
    [
      "Device.open",
      () => Device.open("cpu", wrong({ thread: 2 })),
      "Device.open: `thread` must be one of threads, level, order, validate, poison, got an unknown option",
    ],
    [
      "device.encoder",
      () => device.encoder(wrong({ barrier: "manual" })),
      "device.encoder: `barrier` must be one of barriers, arena, optimize, got an unknown option",
    ],
    [
      "dispatch",
      dispatch({ size: {} }),
      "increment: `size` must be one of variant, buffers, params, sizes, op, names, got an unknown option",
    ],
    [
      "buffers of a dispatch",
      dispatch({ buffers: { x: device.tensor("u32", [4]), out: device.tensor("u32", [4]), y: 1 } }),
      "increment: `y` must be one of x, out, got an unknown name in buffers",
    ],
    [
      "names of a dispatch",
      dispatch({ names: { x: "ids", y: "z" } }),
      "increment: `y` must be one of x, out, got an unknown name in names",
    ],
    [
      "params of a dispatch",
      dispatch({ params: { perGroup: 1, microseconds: 0, micros: 1 } }),
      "increment: `micros` must be one of perGroup, microseconds, got an unknown name in params",
    ],
    [
      "sizes that are missing",
      dispatch({ sizes: { group: 4 } }),
      "increment: `threadgroups` must be an array of three numbers, got [undefined, 1, 1]",
    ],
    [
      "defineKernel",
      () => defineKernel(wrong({ ...kernel, inplace: [] })),
      "defineKernel: `inplace` must be one of library, name, variants, buffers, params, launchParams, constants, scratch, faults, inPlace, anyByte, early, mostThreads, sm90a, launch, got an unknown option",
    ],
    [
      "an access",
      () => defineKernel(wrong({ ...kernel, buffers: { x: "readwrite" } })),
      "defineKernel: `x` must be one of read, write, readWrite, read?, write?, readWrite?, got readwrite",
    ],
    [
      "inPlace",
      () => defineKernel(wrong({ ...kernel, inPlace: [["x", "out"]] })),
      "defineKernel: `inPlace` must name buffers, got out",
    ],
    [
      "anyByte",
      () => defineKernel(wrong({ ...kernel, anyByte: ["out"] })),
      "defineKernel: `anyByte` must name buffers, got out",
    ],
    ...["out", "y"].map((early): [string, () => unknown, string] => [
      `early ${early}`,
      () =>
        defineKernel(
          wrong({ ...kernel, buffers: { x: "read", y: "write" }, inPlace: [], anyByte: [], early: [early] }),
        ),
      `defineKernel: \`early\` must name buffers that are only read, got ${early}`,
    ]),
    [
      "mostThreads",
      () => defineKernel(wrong({ ...kernel, mostThreads: 1025 })),
      "defineKernel: `mostThreads` must be an integer from 1 to 1024, got 1025",
    ],
    [
      "sm90a",
      () => defineKernel(wrong({ ...kernel, sm90a: ["f64"] })),
      "defineKernel: `sm90a` must name variants, got f64",
    ],
    [
      "defineOp",
      () => defineOp(wrong({ ...op, options: {} })),
      "defineOp: `options` must be one of name, summary, inputs, outputs, params, relations, rules, check, encode, got an unknown option",
    ],
    [
      "a spec",
      () => defineOp(wrong({ ...op, inputs: { x: { dtypes: ["f32"], shape: "N" } } })),
      "defineOp: `dtypes` must be one of dtype, shape, doc, optional, got an unknown option",
    ],
    [
      "a parameter",
      () => defineOp(wrong({ ...op, params: { n: { kind: "number", minimum: 1 } } })),
      "defineOp: `minimum` must be one of kind, default, optional, doc, integer, min, max, above, below, f64, got an unknown option",
    ],
  ])("are refused by %s", (_, act, text) => expect(message(act)).toBe(text));
});

describe("names in messages", () => {
  it("stay what they are when a bundler renames classes", () => {
    const device = testDevice();
    const x = device.tensor("f32", [1]);
    const objects = [
      x,
      x.buffer,
      device,
      device.encoder(),
      device.encoder().finish(),
      device.encoder().block([]),
      device.arena(256),
    ];
    expect(objects.map(show)).toEqual(["Tensor", "Buffer", "Device", "CommandEncoder", "Recording", "Block", "Arena"]);
    // A bundler writes `var Tensor = class _Tensor { … }`: the name that counts is set by the class itself.
    expect(Object.getOwnPropertyDescriptor(Tensor, "name")).toMatchObject({ value: "Tensor", writable: false });
    expect(message(() => increment(wrong(x), { x: wrong(x) }))).toBe(
      "increment: `encoder` must be a CommandEncoder, got Tensor",
    );
  });

  it("end, whatever the value", () => {
    const cyclic: unknown[] = [];
    cyclic.push(cyclic);
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const throwing = Object.defineProperty({}, "constructor", {
      get: () => {
        throw new Error("the value's own");
      },
    });
    expect([cyclic, proxy, throwing, Object.assign(Array(2), { 1: 1 })].map(show)).toEqual([
      "[[[[an array of 1]]]]",
      "a Proxy",
      "an object",
      "[undefined, 1]",
    ]);
  });
});

describe("copies of core", () => {
  type Copy = { version: string; series: string; path: string; holds(kind: string, value: object): boolean };
  const copies = (globalThis as unknown as Record<symbol, Copy[]>)[Symbol.for("@mlxts/core")] as Copy[];
  const [own] = copies as [Copy];

  it("know their version and folder", () => {
    expect(own).toMatchObject({ version: manifest.version, path: expect.stringMatching(/packages.core$/) });
    expect(Object.isFrozen(own)).toBe(true);
  });

  it.each([
    ["takes what one of its series has made", own.series, "2.5.0 of the same series", true],
    ["tells what another has made from its own", "99", "99.1.0", false],
  ])("%s", (_, series, version, taken) => {
    const device = testDevice();
    const theirs = { name: "of another copy" };
    const holds = (kind: string, value: object) => kind === "CommandEncoder" && value === theirs;
    copies.push({ version, series, path: "their/folder", holds });
    try {
      const type = device.encoder().constructor as abstract new () => object;
      expect(theirs instanceof type).toBe(taken);
      if (!taken)
        expect(message(() => increment(wrong(theirs), { x: device.tensor("u32", [4]) }))).toBe(
          "increment: `encoder` must be a CommandEncoder, got a CommandEncoder of @mlxts/core 99.1.0 in their/folder — " +
            `@mlxts/core ${own.version} in ${own.path} checks this call: let both use one version (\`npm ls @mlxts/core\` shows who brings which)`,
        );
    } finally {
      copies.pop();
    }
  });

  it("leave errors of others alone", () => {
    expect(new Error("no") instanceof MlxtsError).toBe(false);
    expect(new MlxtsError("Io", "yes") instanceof MlxtsError).toBe(true);
    class Mine extends MlxtsError {}
    expect([new MlxtsError("Io", "") instanceof Mine, new Mine("Io", "") instanceof Mine]).toEqual([false, true]);
  });
});
