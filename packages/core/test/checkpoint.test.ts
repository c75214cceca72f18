import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fixture } from "@mlxts/test-kit/goldens";
import { describe, expect, it } from "vitest";
import { Device, openCheckpoint, readSafetensors, Tensor, writeSafetensors } from "../src/index.ts";
import { sameBytes } from "../src/testing/index.ts";
import { caught, message, rejected, testDevice, testFolder } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";
import { rawFile } from "./raw_safetensors.ts";

const folder = testFolder();
let folders = 0;
function fresh(): string {
  const path = join(folder, String(folders++));
  mkdirSync(path);
  return path;
}
const u32 = (...values: number[]) => ({ dtype: "u32" as const, shape: [values.length], data: new Uint32Array(values) });
const f32 = (offsets: [number, number], shape = [(offsets[1] - offsets[0]) / 4]) => ({
  dtype: "F32",
  shape,
  data_offsets: offsets,
});
const INDEX = "model.safetensors.index.json";

describe("a checkpoint", () => {
  const device = testDevice();

  it("binds a file's tensors where they lie", async () => {
    using device = Device.open("cpu");
    using checkpoint = await openCheckpoint(device, fixture("tiny-qwen3.5"));
    const host = readSafetensors(fixture("tiny-qwen3.5/model.safetensors"));
    expect(new Set(checkpoint.names)).toEqual(new Set(host.tensors.keys()));
    expect(checkpoint.metadata).toEqual(host.metadata);
    for (const [name, { dtype, shape, data }] of host.tensors) {
      expect(checkpoint.info(name)).toMatchObject({ dtype, shape, storedDtype: dtype.toUpperCase() });
      const tensor = checkpoint.tensor(name);
      expect([tensor.dtype, tensor.shape]).toEqual([dtype, shape]);
      expect(sameBytes(tensor.readSync(), data)).toBe(true);
      expect(checkpoint.tensor(name)).toBe(tensor);
    }
    expect(device.counters).toMatchObject({ copiedTensors: 0, liveBuffers: 1 });
  });

  it("copies tensors whose offsets do not suit them, and counts the copies", async () => {
    using device = Device.open("cpu");
    using checkpoint = await openCheckpoint(device, fixture("tiny-qwen3.5-4bit"));
    const host = readSafetensors(fixture("tiny-qwen3.5-4bit/model.safetensors"));
    for (const [name, { data }] of host.tensors) expect(sameBytes(checkpoint.tensor(name).readSync(), data)).toBe(true);
    const words = [...host.tensors.values()].filter(({ dtype }) => dtype === "u32").length;
    expect(device.counters).toMatchObject({ copiedTensors: words, liveBuffers: 1 + words });
    checkpoint.dispose();
    expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
  });

  it("leaves tensors at any byte of a file where they lie, when asked to", async () => {
    using device = Device.open("cpu");
    using checkpoint = await openCheckpoint(device, fixture("tiny-qwen3.5-4bit"));
    const host = readSafetensors(fixture("tiny-qwen3.5-4bit/model.safetensors"));
    for (const [name, { dtype, shape, data }] of host.tensors) {
      const tensor = checkpoint.tensorAtAnyByte(name);
      expect([tensor.dtype, tensor.shape, tensor.buffer.readOnly]).toEqual([dtype, shape, true]);
      expect(sameBytes(tensor.readSync(), data)).toBe(true);
      expect(sameBytes(tensor.view(0, shape).readSync(), data)).toBe(true);
      expect(checkpoint.tensorAtAnyByte(name)).toBe(tensor);
      if (dtype !== "u32") expect(checkpoint.tensor(name)).toBe(tensor);
    }
    expect(device.counters).toMatchObject({ copiedTensors: 0, liveBuffers: 1 });
    const name = [...host.tensors].find(([, { dtype }]) => dtype === "u32")?.[0] as string;
    const words = checkpoint.tensorAtAnyByte(name);
    const odd = words.byteOffset % 4;
    expect(odd).toBeGreaterThan(0);
    const refused = `increment: \`x\` must start at a multiple of 4 bytes, got ${words.byteOffset}`;
    for (const x of [words, words.slice(0, 1)])
      expect(message(() => increment(device.encoder(), { x: x.reshape([x.size]) }))).toContain(refused.slice(0, 55));
    const copy = checkpoint.tensor(name);
    expect(copy).not.toBe(words);
    expect([copy.buffer.readOnly, device.counters.copiedTensors]).toEqual([false, 1]);
    expect(message(() => new Tensor(words.buffer, "u32", [1], { byteOffset: words.byteOffset }))).toContain(
      "must be a multiple of 4 for u32",
    );
    checkpoint.dispose();
    expect(words.disposed).toBe(true);
    expect(message(() => checkpoint.tensorAtAnyByte(name))).toBe("the checkpoint has been disposed");
  });

  it("is read-only, used by kernels, and outlives its file", async () => {
    const path = join(fresh(), "x.safetensors");
    writeSafetensors(path, [["x", u32(1, 2, 3)]]);
    const checkpoint = await openCheckpoint(device, path);
    rmSync(path);
    const x = checkpoint.tensor("x");
    const encoder = device.encoder();
    const out = increment(encoder, { x }, { microseconds: 20_000 });
    expect(message(() => increment(encoder, { x, out: x }))).toBe(
      "increment: `out` must be writable, got a read-only tensor",
    );
    expect(message(() => x.write([1, 2, 3]))).toContain("must be writable");
    const submission = encoder.commit();
    checkpoint.dispose();
    checkpoint.dispose();
    expect([checkpoint.disposed, x.disposed]).toEqual([true, true]);
    await submission;
    expect([...out.readSync()]).toEqual([2, 3, 4]);
    expect(message(() => checkpoint.tensor("x"))).toBe("the checkpoint has been disposed");
    expect(checkpoint.has("x")).toBe(true);
  });

  it("converts on request", async () => {
    const path = join(fresh(), "x.safetensors");
    const data = new ArrayBuffer(48);
    new Float64Array(data, 0, 2).set([0.1, 1e300]);
    new BigInt64Array(data, 16, 4).set([0n, 4294967295n, -1n, 2147483647n]);
    writeFileSync(
      path,
      rawFile(
        {
          f64: { dtype: "F64", shape: [2], data_offsets: [0, 16] },
          small: { dtype: "I64", shape: [2], data_offsets: [16, 32] },
          signed: { dtype: "I64", shape: [2], data_offsets: [32, 48] },
          u64: { dtype: "U64", shape: [0], data_offsets: [48, 48] },
        },
        new Uint8Array(data),
      ),
    );
    const { copiedTensors } = device.counters;
    using checkpoint = await openCheckpoint(device, path);
    expect(checkpoint.info("f64")).toEqual({ dtype: undefined, storedDtype: "F64", shape: [2], file: path });
    expect(message(() => checkpoint.tensor("f64"))).toBe(`${path}: tensor \`f64\`: has dtype F64; ask for it as f32`);
    expect([...checkpoint.tensor("f64", "f32").readSync()]).toEqual([Math.fround(0.1), Infinity]);
    expect([...checkpoint.tensor("small").cast("i64").readSync()]).toEqual([0n, 4294967295n]);
    expect([...checkpoint.tensor("small", "u32").readSync()]).toEqual([0, 4294967295]);
    expect([...checkpoint.tensor("signed", "i32").readSync()]).toEqual([-1, 2147483647]);
    expect(message(() => checkpoint.tensor("small", "i32"))).toBe(
      `${path}: tensor \`small\`: has the element 4294967295, which does not fit i32`,
    );
    expect(message(() => checkpoint.tensor("signed", "u32"))).toBe(
      `${path}: tensor \`signed\`: has the element -1, which does not fit u32`,
    );
    expect(message(() => checkpoint.tensor("small", "f32"))).toBe(
      `${path}: tensor \`small\`: has dtype I64, which is not converted to f32`,
    );
    expect(message(() => checkpoint.tensor("u64"))).toBe(`${path}: tensor \`u64\`: has dtype U64, which no tensor has`);
    expect(device.counters.copiedTensors - copiedTensors).toBeGreaterThanOrEqual(3);
  });

  it("tells of its bytes once, and leaves nothing open when it is stopped then", async () => {
    using device = Device.open("cpu");
    const path = fixture("tiny-qwen3.5");
    const reports: number[][] = [];
    const checkpoint = await openCheckpoint(device, path, { onProgress: (...report) => reports.push(report) });
    expect(reports).toEqual([[checkpoint.byteLength, checkpoint.byteLength]]);
    checkpoint.dispose();
    const reason = new Error("enough");
    const controller = new AbortController();
    const abort = () => controller.abort(reason);
    const fail = () => {
      throw reason;
    };
    const file = join(path, "model.safetensors");
    for (const open of [
      openCheckpoint,
      (device: Device, path: string, options = {}) => device.mapFile(path, 8, options),
    ]) {
      expect(await rejected(open(device, file, { signal: AbortSignal.abort(reason), onProgress: fail }))).toBe(reason);
      expect(await rejected(open(device, file, { onProgress: fail }))).toBe(reason);
    }
    expect(await rejected(openCheckpoint(device, path, { onProgress: abort, signal: controller.signal }))).toBe(reason);
    const again = new AbortController();
    const opened = openCheckpoint(device, path, { signal: again.signal });
    again.abort(reason);
    expect(await rejected(opened)).toBe(reason);
    expect(device.counters).toMatchObject({ liveBuffers: 0, liveBytes: 0 });
  });

  it("lists empty tensors and refuses to bind them", async () => {
    const path = join(fresh(), "x.safetensors");
    writeFileSync(path, rawFile({ empty: f32([0, 0], [0, 4]), scalar: f32([0, 4], []) }, new Uint8Array(4)));
    using checkpoint = await openCheckpoint(device, path);
    expect(checkpoint.names).toEqual(["empty", "scalar"]);
    expect(checkpoint.info("empty").shape).toEqual([0, 4]);
    expect(message(() => checkpoint.tensor("empty"))).toBe(
      `${path}: tensor \`empty\`: has shape [0, 4] and no elements`,
    );
    expect(checkpoint.tensor("scalar").shape).toEqual([1]);
    expect(caught(() => checkpoint.tensor("none"))).toMatchObject({
      code: "Safetensors",
      message: `${path}: tensor \`none\`: is missing`,
      details: { path, tensor: "none", reason: "is missing" },
    });
    expect(caught(() => checkpoint.info("toString")).code).toBe("Safetensors");
  });
});

describe("a folder", () => {
  const device = testDevice();
  const index = (path: string, weightMap: unknown) =>
    writeFileSync(join(path, INDEX), JSON.stringify({ metadata: { total_size: 1 }, weight_map: weightMap }));

  it("may hold shards with an index", async () => {
    const path = fresh();
    writeSafetensors(
      join(path, "a.safetensors"),
      [
        ["x", u32(1)],
        ["unlisted", u32(9)],
      ],
      { format: "pt", only: "a" },
    );
    writeSafetensors(join(path, "b.safetensors"), [["y", u32(2)]], { format: "mlx" });
    index(path, { y: "b.safetensors", x: "a.safetensors" });
    using checkpoint = await openCheckpoint(device, path);
    expect(checkpoint.names).toEqual(["y", "x"]);
    expect(checkpoint.info("x").file).toBe(join(path, "a.safetensors"));
    expect([checkpoint.tensor("x").readSync()[0], checkpoint.tensor("y").readSync()[0]]).toEqual([1, 2]);
    expect(checkpoint.metadata).toEqual({ format: "mlx", only: "a" });
  });

  it("may hold shards without one", async () => {
    const path = fresh();
    writeSafetensors(join(path, "model-2.safetensors"), [["y", u32(2)]]);
    writeSafetensors(join(path, "model-1.safetensors"), [["x", u32(1)]]);
    writeSafetensors(join(path, "other.safetensors"), [["x", u32(1)]]);
    using checkpoint = await openCheckpoint(device, path);
    expect(checkpoint.names).toEqual(["x", "y"]);
    writeSafetensors(join(path, "model-3.safetensors"), [["y", u32(2)]]);
    expect((await rejected(openCheckpoint(device, path))).message).toBe(
      `${join(path, "model-3.safetensors")}: tensor \`y\`: is also in ${join(path, "model-2.safetensors")}`,
    );
  });

  it("may hold one file, which goes first, also through a link", async () => {
    const path = fresh();
    writeSafetensors(join(path, "blob"), [["x", u32(5)]]);
    symlinkSync("blob", join(path, "model.safetensors"));
    index(path, { y: "none.safetensors" });
    using checkpoint = await openCheckpoint(device, path);
    expect(checkpoint.names).toEqual(["x"]);
  });

  it("must hold tensors", async () => {
    const path = fresh();
    expect((await rejected(openCheckpoint(device, path))).message).toBe(
      `${path}: has neither model.safetensors nor ${INDEX} nor model*.safetensors`,
    );
    expect(await rejected(openCheckpoint(device, join(path, "none")))).toMatchObject({
      code: "Io",
      details: { path: join(path, "none"), operation: "open", systemCode: "ENOENT" },
    });
  });

  it.each<[string, unknown, string | RegExp]>([
    [
      "a shard that is missing",
      { x: "none.safetensors" },
      /names the shard .*none\.safetensors, which does not exist: download it; where the files there are complete without it, the index is an old one: delete it$/,
    ],
    [
      "a tensor that its shard lacks",
      { z: "a.safetensors" },
      /tensor `z`: is not in .*a\.safetensors, where the index says it is$/,
    ],
    [
      "a shard above the folder",
      { x: "../a.safetensors" },
      /tensor `x`: its shard must be a file name, got "\.\.\/a\.safetensors"$/,
    ],
    ["an absolute shard", { x: "/etc/passwd" }, /its shard must be a file name/],
    ["the folder itself", { x: ".." }, /its shard must be a file name/],
    ["a Windows path", { x: "..\\a" }, /its shard must be a file name/],
    ["a shard without a name", { x: "" }, /its shard must be a file name/],
    ["a shard that is no text", { x: 1 }, /`weight_map` must hold strings, `x` is not one$/],
    ["no map", undefined, /`weight_map` must be an object of strings$/],
    ["an array for a map", ["x"], /`weight_map` must be an object of strings$/],
  ])("is refused with %s in its index", async (_, map, text) => {
    const path = fresh();
    writeSafetensors(join(path, "a.safetensors"), [["x", u32(1)]]);
    index(path, map);
    const { liveBuffers } = device.counters;
    const error = await rejected(openCheckpoint(device, path));
    expect(error).toMatchObject({ code: "Safetensors", details: { path: join(path, INDEX) } });
    expect(error.message).toMatch(text);
    expect(device.counters.liveBuffers).toBe(liveBuffers);
  });

  it("has a tensor of two files from the one that its index names", async () => {
    const path = fresh();
    writeSafetensors(join(path, "a.safetensors"), [
      ["x", u32(1)],
      ["z", u32(4)],
    ]);
    writeSafetensors(join(path, "overlay.safetensors"), [
      ["x", u32(2)],
      ["y", u32(3)],
    ]);
    const values = async (files: Record<string, string>) => {
      index(path, files);
      using checkpoint = await openCheckpoint(device, path);
      return checkpoint.names.map((name) => [name, checkpoint.tensor(name).readSync()[0]]);
    };
    const others = { y: "overlay.safetensors", z: "a.safetensors" };
    expect(await values({ x: "a.safetensors", ...others })).toEqual([
      ["x", 1],
      ["y", 3],
      ["z", 4],
    ]);
    expect(await values({ x: "overlay.safetensors", ...others })).toEqual([
      ["x", 2],
      ["y", 3],
      ["z", 4],
    ]);
  });

  it("is refused with links that lead to each other", async () => {
    const path = fresh();
    symlinkSync("b.safetensors", join(path, "a.safetensors"));
    symlinkSync("a.safetensors", join(path, "b.safetensors"));
    index(path, { x: "a.safetensors" });
    expect(await rejected(openCheckpoint(device, path))).toMatchObject({
      code: "Io",
      details: { path: join(path, "a.safetensors"), operation: "open", systemCode: "ELOOP" },
    });
  });

  it("is refused with an index that is malformed", async () => {
    const path = fresh();
    for (const [text, reason] of [
      ["{", /is not JSON in UTF-8/],
      ["[]", /the index is not a JSON object/],
      ['{"weight_map":{"x":"a","x":"b"}}', /the index has the name `x` twice/],
    ] as const) {
      writeFileSync(join(path, INDEX), text);
      expect((await rejected(openCheckpoint(device, path))).message).toMatch(reason);
    }
  });
});
