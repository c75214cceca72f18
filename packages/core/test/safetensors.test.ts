import { existsSync, mkdirSync, readdirSync, readFileSync, statSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import {
  createSafetensors,
  DTYPES,
  type Dtype,
  type HostBytes,
  readSafetensors,
  readStoredSafetensors,
  writeSafetensors,
} from "../src/index.ts";
import { caught, message, testFolder } from "./helpers.ts";
import { rawFile } from "./raw_safetensors.ts";

const folder = testFolder();
let files = 0;
const fresh = () => join(folder, `${files++}.safetensors`);

/** Writes a file with that header and data; gives the message of reading it. */
function refusal(header: unknown, dataBytes = 0, options: Parameters<typeof rawFile>[2] = {}): string {
  const path = fresh();
  writeFileSync(path, rawFile(header, new Uint8Array(dataBytes), options));
  const error = caught(() => readSafetensors(path));
  expect(error.code).toBe("Safetensors");
  expect(error).toMatchObject({ transient: false, details: { path } });
  expect(error.message.startsWith(path)).toBe(true);
  return error.message.slice(path.length + 2);
}

const f32 = (shape: unknown, offsets: unknown) => ({ dtype: "F32", shape, data_offsets: offsets });

describe("reading", () => {
  it("gives every dtype, rank 0 as [1], and empty tensors", () => {
    const path = fresh();
    const data = new Uint8Array(16 + 8 + 1 + 8 + 8);
    new Float64Array(data.buffer, 0, 2).set([1.5, -0.1]);
    new BigInt64Array(data.buffer, 16, 1)[0] = -5n;
    data[24] = 1;
    const header = {
      __metadata__: { format: "pt" },
      f64: { dtype: "F64", shape: [2], data_offsets: [0, 16] },
      i64: { dtype: "I64", shape: [], data_offsets: [16, 24] },
      bool: { dtype: "BOOL", shape: [1, 1], data_offsets: [24, 25] },
      fp8: { dtype: "F8_E4M3", shape: [8], data_offsets: [25, 33] },
      bf16: { dtype: "BF16", shape: [4], data_offsets: [33, 41] },
      empty: f32([3, 0], [41, 41]),
    };
    writeFileSync(path, rawFile(header, data));
    const { tensors, metadata } = readSafetensors(path);
    expect(metadata).toEqual({ format: "pt" });
    expect([...tensors].map(([name, { dtype, shape }]) => [name, dtype, shape])).toEqual([
      ["f64", "f32", [2]],
      ["i64", "i64", [1]],
      ["bool", "u8", [1, 1]],
      ["fp8", "u8", [8]],
      ["bf16", "bf16", [4]],
      ["empty", "f32", [3, 0]],
    ]);
    expect([...(tensors.get("f64")?.data ?? [])]).toEqual([1.5, Math.fround(-0.1)]);
    expect([...(tensors.get("i64")?.data ?? [])]).toEqual([-5n]);
    expect(tensors.get("empty")?.data).toEqual(new Float32Array(0));
    const stored = readStoredSafetensors(path);
    expect([...stored.keys()]).toEqual([...tensors.keys()]);
    expect(stored.get("bool")).toEqual({ storedDtype: "BOOL", dtype: "u8", shape: [1, 1], bytes: Uint8Array.of(1) });
    const { bytes, ...f64 } = stored.get("f64") as HostBytes;
    expect([f64, [...new Float64Array(bytes.buffer)]]).toEqual([
      { storedDtype: "F64", dtype: undefined, shape: [2] },
      [1.5, -0.1],
    ]);
  });

  it.each([
    ["C64", [3], 24],
    ["F6_E2M3", [2, 4], 6],
    ["F6_E3M2", [4], 3],
    ["F4", [3, 2], 3],
  ])("gives the bytes of %s, which no dtype carries, beside tensors that can be read", (dtype, shape, size) => {
    const path = fresh();
    const offsets = (begin: number, bytes: number) => [begin, begin + bytes];
    const header = { odd: { dtype, shape, data_offsets: offsets(4, size) }, one: f32([1], [0, 4]) };
    writeFileSync(path, rawFile(header, new Uint8Array(4 + size).fill(9, 4)));
    expect(readStoredSafetensors(path).get("odd")).toEqual({
      storedDtype: dtype,
      dtype: undefined,
      shape,
      bytes: new Uint8Array(size).fill(9),
    });
    expect(() => readSafetensors(path)).toThrow(`tensor \`odd\`: has dtype ${dtype}, which cannot be read`);
  });

  it("allows gaps and padding", () => {
    const path = fresh();
    writeFileSync(path, rawFile({ a: f32([1], [4, 8]), b: f32([1], [16, 20]) }, new Uint8Array(24), { pad: 40 }));
    expect([...readSafetensors(path).tensors.keys()]).toEqual(["a", "b"]);
  });

  it("says what file it cannot read", () => {
    const path = join(folder, "none.safetensors");
    expect(caught(() => readSafetensors(path))).toMatchObject({
      code: "Io",
      details: { path, operation: "open", systemCode: "ENOENT" },
    });
    expect(message(() => readSafetensors(folder))).toBe(`${folder}: is not a file`);
  });

  it("refuses files that are shorter than they say", () => {
    const path = fresh();
    writeFileSync(path, new Uint8Array(7));
    expect(message(() => readSafetensors(path))).toBe(`${path}: has 7 bytes, fewer than the 8 of a header length`);
    expect(refusal({}, 0, { headerBytes: 3n })).toBe("the header's 3 bytes reach past the file's 10 bytes");
    expect(refusal({}, 0, { headerBytes: 2n ** 64n - 1n })).toBe(
      "the header's 18446744073709551615 bytes reach past the file's 10 bytes",
    );
  });

  it("says that a JSON file is no safetensors file", () => {
    for (const text of ['{"a":1}', '  \n{ "model_type": "qwen3_5", "hidden_size": 128 }', "[1, 2, 3, 4, 5, 6]"]) {
      const path = fresh();
      writeFileSync(path, text);
      expect(message(() => readSafetensors(path))).toBe(`${path}: is a text in JSON, not a safetensors file`);
    }
    // A header of 0x7b bytes begins with the byte of "{", too.
    const path = fresh();
    const header = JSON.stringify({ a: f32([1], [0, 4]) }).padEnd(0x7b);
    writeFileSync(path, rawFile(header, new Uint8Array(4)));
    expect(readFileSync(path)[0]).toBe(0x7b);
    expect([...readSafetensors(path).tensors.keys()]).toEqual(["a"]);
  });

  it("refuses headers beyond 100 MB", () => {
    const path = fresh();
    writeFileSync(path, rawFile({}, new Uint8Array(0), { headerBytes: 100_000_001n }));
    truncateSync(path, 100_000_100);
    expect(message(() => readSafetensors(path))).toBe(
      `${path}: the header must have at most 100000000 bytes, got 100000001`,
    );
  });

  it("refuses a tensor that the host cannot hold, though the file is as long as it says", () => {
    const path = fresh();
    const bytes = 2 ** 40;
    const header = rawFile({ a: { dtype: "U8", shape: [1024, 2 ** 30], data_offsets: [0, bytes] } }, new Uint8Array(0));
    writeFileSync(path, header);
    truncateSync(path, header.length + bytes);
    expect(message(() => readSafetensors(path))).toBe(
      `${path}: tensor \`a\`: has ${bytes} bytes, more than the host can hold`,
    );
  });

  it.each<[string, unknown, number, string]>([
    ["an array", [], 0, "the header is not a JSON object"],
    ["null", null, 0, "the header is not a JSON object"],
    ["a name twice", '{"a":{},"a":{}}', 0, "tensor `a`: the header has the name `a` twice"],
    ["a name twice, once escaped", '{"a":{},"\\u0061":{}}', 0, "tensor `a`: the header has the name `a` twice"],
    [
      "a field twice",
      '{"a":{"dtype":"F32","dtype":"F16"}}',
      0,
      "tensor `dtype`: the header has the name `dtype` twice",
    ],
    ["deep nesting", "[".repeat(100_000), 0, "the header is nested deeper than 3 levels"],
    ["a tensor that is no object", { a: 3 }, 0, "tensor `a`: must be an object with dtype, shape and data_offsets"],
    ["an array for a tensor", { a: [] }, 0, "tensor `a`: must be an object with dtype, shape and data_offsets"],
    [
      "no dtype",
      { a: { shape: [1], data_offsets: [0, 4] } },
      4,
      "tensor `a`: dtype must be one of F32, F16, BF16, U32, I32, U16, I16, U8, I8, I64, BOOL, F8_E4M3, F8_E5M2, F8_E8M0, F64, U64, C64, F6_E2M3, F6_E3M2, F4, got undefined",
    ],
    [
      "half a byte",
      { a: { dtype: "F4", shape: [3], data_offsets: [0, 1] } },
      1,
      "tensor `a`: shape [3] does not fill whole bytes of F4",
    ],
    [
      "no shape",
      { a: f32(undefined, [0, 4]) },
      4,
      "tensor `a`: shape must be an array of integers from 0 to 2147483647",
    ],
    [
      "a negative dimension",
      { a: f32([-1], [0, 4]) },
      4,
      "tensor `a`: shape must be an array of integers from 0 to 2147483647",
    ],
    [
      "a huge dimension",
      { a: f32([2 ** 31], [0, 4]) },
      4,
      "tensor `a`: shape must be an array of integers from 0 to 2147483647",
    ],
    [
      "a dimension of text",
      { a: f32(["1"], [0, 4]) },
      4,
      "tensor `a`: shape must be an array of integers from 0 to 2147483647",
    ],
    [
      "2^60 elements",
      { a: f32([2 ** 30, 2 ** 30], [0, 4]) },
      4,
      "tensor `a`: shape [1073741824, 1073741824] has too many elements",
    ],
    ["no offsets", { a: f32([1], undefined) }, 4, "tensor `a`: data_offsets must be two integers ≥ 0"],
    ["three offsets", { a: f32([1], [0, 4, 8]) }, 8, "tensor `a`: data_offsets must be two integers ≥ 0"],
    ["a negative offset", { a: f32([1], [-4, 0]) }, 4, "tensor `a`: data_offsets must be two integers ≥ 0"],
    ["a fractional offset", { a: f32([1], [0.5, 4.5]) }, 8, "tensor `a`: data_offsets must be two integers ≥ 0"],
    [
      "a span too short",
      { a: f32([2], [0, 4]) },
      8,
      "tensor `a`: data_offsets [0, 4] must span the 8 bytes of F32 [2]",
    ],
    [
      "a span backwards",
      { a: f32([0], [4, 0]) },
      8,
      "tensor `a`: data_offsets [4, 0] must span the 0 bytes of F32 [0]",
    ],
    [
      "data past the end",
      { a: f32([2], [4, 12]) },
      8,
      "tensor `a`: data_offsets [4, 12] reach past the file's 8 data bytes",
    ],
    [
      "an empty tensor past the end",
      { a: f32([0], [12, 12]) },
      8,
      "tensor `a`: data_offsets [12, 12] reach past the file's 8 data bytes",
    ],
    ["overlap", { b: f32([2], [4, 12]), a: f32([2], [0, 8]) }, 12, "tensor `b`: its bytes overlap those of `a`"],
    [
      "the same place twice",
      { a: f32([1], [0, 4]), b: f32([1], [0, 4]) },
      4,
      "tensor `b`: its bytes overlap those of `a`",
    ],
    ["metadata that is no object", { __metadata__: "x" }, 0, "`__metadata__` must be an object of strings"],
    ["metadata that is not text", { __metadata__: { x: 1 } }, 0, "`__metadata__` must hold strings, `x` is not one"],
    [
      "U64",
      { a: { dtype: "U64", shape: [1], data_offsets: [0, 8] } },
      8,
      "tensor `a`: has dtype U64, which cannot be read",
    ],
  ])("refuses %s", (_, header, bytes, text) => {
    expect(refusal(header, bytes)).toBe(text);
  });

  it.each([
    ["no JSON", "{"],
    ["other text after it", "{} x"],
    ["nothing", ""],
    ["bytes that are not UTF-8", new Uint8Array([0x7b, 0x22, 0xff, 0x22, 0x3a, 0x7b, 0x7d, 0x7d])],
    ["a byte order mark", new Uint8Array([0xef, 0xbb, 0xbf, 0x7b, 0x7d])],
  ])("refuses %s", (_, header) => {
    expect(refusal(header)).toMatch(/^the header is not JSON in UTF-8: /);
  });

  it("takes names that objects have", () => {
    const path = fresh();
    const names = ["__proto__", "constructor", "toString", "hasOwnProperty", ""];
    const header = `{"__metadata__":{"__proto__":"a"},${names.map((name, i) => `${JSON.stringify(name)}:${JSON.stringify(f32([1], [4 * i, 4 * i + 4]))}`).join()}}`;
    writeFileSync(path, rawFile(header, new Uint8Array(20)));
    const { tensors, metadata } = readSafetensors(path);
    expect([...tensors.keys()]).toEqual(names);
    expect(Object.entries(metadata)).toEqual([["__proto__", "a"]]);
  });
});

describe("writing", () => {
  const dtypes = Object.keys(DTYPES) as Dtype[];
  const all = dtypes.map((dtype, i) => {
    const data = new DTYPES[dtype].array(6);
    new Uint8Array(data.buffer).set(Array.from({ length: data.byteLength }, (_, j) => i * 40 + j));
    return [dtype, { dtype, shape: [2, 3], data }] as const;
  });

  it("gives back what it was given", () => {
    const path = fresh();
    writeSafetensors(
      path,
      [
        ...all,
        ["empty", { dtype: "f32", shape: [0, 4], data: new Float32Array(0) }],
        ["scalar", { dtype: "f32", shape: [], data: new Float32Array([7]) }],
      ],
      { about: 'é "x"' },
    );
    const { tensors, metadata } = readSafetensors(path);
    expect(metadata).toEqual({ about: 'é "x"' });
    for (const [name, tensor] of all) expect(tensors.get(name)).toEqual(tensor);
    expect(tensors.get("empty")?.shape).toEqual([0, 4]);
    expect(tensors.get("scalar")).toEqual({ dtype: "f32", shape: [1], data: new Float32Array([7]) });
    expect(tensors.size).toBe(all.length + 2);
  });

  it("aligns the data, and every tensor in it", () => {
    const path = fresh();
    writeSafetensors(path, [["odd", { dtype: "u8", shape: [3], data: new Uint8Array(3) }], ...all]);
    const bytes = readFileSync(path);
    const n = Number(bytes.readBigUInt64LE(0));
    expect((8 + n) % 64).toBe(0);
    const header = JSON.parse(bytes.subarray(8, 8 + n).toString()) as Record<
      string,
      { data_offsets: [number, number] }
    >;
    for (const [name, { dtype }] of all)
      expect((header[name] as { data_offsets: [number, number] }).data_offsets[0] % DTYPES[dtype].bytesPerElement).toBe(
        0,
      );
    expect(bytes.length).toBe(8 + n + 3 + all.reduce((sum, [, { data }]) => sum + data.byteLength, 0));
  });

  it("writes piece by piece, and shows the file when it is whole", () => {
    const path = fresh();
    const writer = createSafetensors(path, [
      { name: "a", dtype: "f32", shape: [2] },
      { name: "b", dtype: "bf16", shape: [4] },
    ]);
    writer.write("b", new Uint16Array([1, 2, 3, 4]));
    expect(existsSync(path)).toBe(false);
    expect(message(() => writer.close())).toBe(
      "safetensors.close: `tensors` must all have been written, got none for a",
    );
    writer.write("a", new Float32Array([1, 2]).subarray(0, 2));
    writer.close();
    expect([...(readSafetensors(path).tensors.get("b")?.data ?? [])]).toEqual([1, 2, 3, 4]);
    expect(caught(() => writer.write("a", new Float32Array(2))).code).toBe("Disposed");
    expect(caught(() => writer.close()).code).toBe("Disposed");
    writer.abort();
    expect(existsSync(path)).toBe(true);
  });

  it("leaves nothing behind when it is given up, nor touches the file that was there", () => {
    const inside = join(folder, "aborted");
    mkdirSync(inside);
    const path = join(inside, "x.safetensors");
    writeFileSync(path, "old");
    {
      using writer = createSafetensors(path, [{ name: "a", dtype: "f32", shape: [2] }]);
      writer.write("a", new Float32Array(2));
    }
    expect(
      caught(() => writeSafetensors(path, [["a", { dtype: "f32", shape: [2], data: new Float32Array(1) }]])).message,
    ).toBe("safetensors.write: `data` must have 8 bytes, got 4");
    expect(readdirSync(inside)).toEqual(["x.safetensors"]);
    expect(readFileSync(path, "utf8")).toBe("old");
    writeSafetensors(path, []);
    expect(statSync(path).size).toBe(64);
    expect(readSafetensors(path).tensors.size).toBe(0);
  });

  it.each<[object[], string]>([
    [
      [{ name: "__metadata__", dtype: "f32", shape: [1] }],
      "createSafetensors: `entries` must not have the reserved name, got __metadata__",
    ],
    [
      [{ name: "a", dtype: "f64", shape: [1] }],
      "createSafetensors: `entries` must have dtypes of f32, f16, bf16, u32, i32, u16, i16, u8, i8, i64, got f64",
    ],
    [
      [{ name: "a", dtype: "f32", shape: [-1] }],
      "createSafetensors: `entries` must have dimensions that are integers from 0 to 2147483647, got [-1]",
    ],
    [
      [{ name: "a", dtype: "f32", shape: [2 ** 30, 2 ** 30] }],
      "createSafetensors: `entries` must have dimensions that are integers from 0 to 2147483647, got [1073741824, 1073741824]",
    ],
    [
      [{ name: "a", dtype: "f32", shape: 3 }],
      "createSafetensors: `entries` must have shapes that are arrays of dimensions, got 3",
    ],
    [[{ name: 1, dtype: "f32", shape: [1] }], "createSafetensors: `entries` must have names that are strings, got 1"],
    [
      [
        { name: "a", dtype: "f32", shape: [1] },
        { name: "a", dtype: "f32", shape: [1] },
      ],
      "createSafetensors: `entries` must have names that differ, got a twice",
    ],
  ])("refuses entries %#", (entries, text) => {
    expect(message(() => createSafetensors(fresh(), entries as never))).toBe(text);
  });

  it("refuses other wrong arguments", () => {
    using writer = createSafetensors(fresh(), [{ name: "a", dtype: "f32", shape: [1] }]);
    expect(message(() => writer.write("b", new Float32Array(1)))).toBe(
      "safetensors.write: `name` must be one of the declared tensors, got b",
    );
    expect(message(() => writer.write("a", [1] as never))).toBe(
      "safetensors.write: `data` must be a typed array or DataView, got [1]",
    );
    writer.write("a", new Float32Array(1));
    expect(message(() => writer.write("a", new Float32Array(1)))).toBe(
      "safetensors.write: `name` must be written once, got a again",
    );
    const path = join(folder, "no", "folder");
    expect(caught(() => createSafetensors(path, []))).toMatchObject({
      code: "Io",
      details: { path, operation: "create", systemCode: "ENOENT" },
    });
    expect(message(() => createSafetensors(fresh(), [], { a: 1 as never }))).toBe(
      "createSafetensors: `metadata` must hold strings, got Object",
    );
  });
});
