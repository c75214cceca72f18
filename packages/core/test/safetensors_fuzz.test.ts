import { writeFileSync } from "node:fs";
import { join } from "node:path";
import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MlxtsError, openCheckpoint, readSafetensors } from "../src/index.ts";
import { testDevice, testFolder } from "./helpers.ts";
import { rawFile } from "./raw_safetensors.ts";

const device = testDevice();
const path = join(testFolder(), "fuzz.safetensors");

/** Bytes of any kind are read, or refused with an error of this package. True: they were read. */
async function survives(bytes: Uint8Array): Promise<boolean> {
  writeFileSync(path, bytes);
  try {
    const { tensors } = readSafetensors(path);
    using checkpoint = await openCheckpoint(device, path);
    expect(checkpoint.names).toEqual([...tensors.keys()]);
    for (const [name, { shape, data }] of tensors) {
      expect(shape.reduce((a, b) => a * b, 1)).toBe(data.length);
      if (data.length > 0 && checkpoint.info(name).dtype)
        expect(checkpoint.tensor(name).readSync().length).toBe(data.length);
    }
    return true;
  } catch (error) {
    if (!(error instanceof MlxtsError)) throw error;
    expect(["Safetensors", "Io"]).toContain(error.code);
    expect(error.message).not.toMatch(/[\n\r]/);
    expect(error.message.length).toBeLessThan(1200);
    return false;
  }
}

const runs = { numRuns: 250, seed: 7 };
const name = fc.oneof(
  fc.constantFrom("a", "b", "__proto__", "constructor", "__metadata__", "toString", "dtype", ""),
  fc.string({ maxLength: 5 }),
);
const dtype = fc.oneof(
  fc.constantFrom("F32", "F16", "BF16", "U8", "BOOL", "I64", "F64", "U64", "F8_E4M3"),
  fc.constantFrom("f32", "F33", "__proto__", "toString", 1, null),
);
const dim = fc.oneof(fc.nat(4), fc.constantFrom(-1, 0.5, 2 ** 31, 2 ** 53, 1e308, "1", null, -0));
const offset = fc.oneof(fc.nat(70), fc.constantFrom(-1, 0.5, 2 ** 53, 1e300, "0", null));
const lyingTensor = fc.record(
  { dtype, shape: fc.array(dim, { maxLength: 4 }), data_offsets: fc.array(offset, { maxLength: 3 }) },
  { requiredKeys: [] },
);
const SIZES = { F32: 4, BF16: 2, U8: 1, I64: 8, F64: 8, BOOL: 1 } as const;

/** Valid files. */
const valid = fc
  .array(
    fc.record({
      name: name.filter((text) => text !== "__metadata__"),
      dtype: fc.constantFrom(...(Object.keys(SIZES) as (keyof typeof SIZES)[])),
      shape: fc.array(fc.nat(3), { maxLength: 3 }),
    }),
    { maxLength: 6 },
  )
  .map((entries) => {
    let at = 0;
    const seen = new Map<string, object>();
    for (const { name, dtype, shape } of entries) {
      if (seen.has(name)) continue;
      const end = at + shape.reduce((a, b) => a * b, SIZES[dtype]);
      seen.set(name, { dtype, shape, data_offsets: [at, end] });
      at = end;
    }
    const json = `{${[...seen].map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`).join()}}`;
    return rawFile(json, new Uint8Array(at).fill(0x3c));
  });

describe("any file is read or refused", () => {
  it("of arbitrary bytes", async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 200 }), async (bytes) => void (await survives(bytes))),
      runs,
    );
  });

  it("of arbitrary JSON", async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.json({ maxDepth: 6 }),
        fc.nat(64),
        async (json, bytes) => void (await survives(rawFile(json, new Uint8Array(bytes)))),
      ),
      runs,
    );
  });

  it("with lies about dtypes, shapes and offsets", async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(fc.tuple(name, lyingTensor), { maxLength: 4 }), fc.nat(64), async (entries, bytes) => {
        // Built as text, so that duplicate names stay.
        const json = `{${entries.map(([key, value]) => `${JSON.stringify(key)}:${JSON.stringify(value)}`).join()}}`;
        await survives(rawFile(json, new Uint8Array(bytes)));
      }),
      runs,
    );
  });

  it("with any header length", async () => {
    await fc.assert(
      fc.asyncProperty(valid, fc.bigInt(0n, 2n ** 64n - 1n), fc.nat(300), async (bytes, length, small) => {
        for (const value of [length, BigInt(small)]) {
          const copy = bytes.slice();
          new DataView(copy.buffer).setBigUint64(0, value, true);
          await survives(copy);
        }
      }),
      runs,
    );
  });

  it("nested to any depth", async () => {
    for (const depth of [1, 2, 3, 4, 100, 1e5])
      for (const [open, close] of [
        ["[", "]"],
        ['{"a":', "}"],
      ] as const) {
        await survives(rawFile(open.repeat(depth), new Uint8Array(0)));
        await survives(rawFile(open.repeat(depth) + close.repeat(depth), new Uint8Array(0)));
      }
  });

  it("that is right is read", async () => {
    await fc.assert(
      fc.asyncProperty(valid, async (bytes) => {
        expect(await survives(bytes)).toBe(true);
      }),
      runs,
    );
  });

  it("that was right before it was changed", async () => {
    const change = fc.tuple(fc.constantFrom("flip", "cut", "insert", "repeat"), fc.nat(), fc.nat(255));
    await fc.assert(
      fc.asyncProperty(valid, fc.array(change, { minLength: 1, maxLength: 4 }), async (bytes, changes) => {
        let now = [...bytes];
        for (const [kind, at, byte] of changes) {
          const i = at % Math.max(1, now.length);
          if (kind === "flip") now[i] = byte;
          else if (kind === "cut") now = now.slice(0, i);
          else if (kind === "insert") now.splice(i, 0, byte);
          else now.splice(i, 0, ...now.slice(i, i + (byte % 20)));
        }
        await survives(Uint8Array.from(now));
      }),
      { ...runs, numRuns: 600 },
    );
  });
});
