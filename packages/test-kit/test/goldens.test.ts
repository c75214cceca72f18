import { expect, it } from "vitest";
import { compress, decompress } from "../../../fixtures/compressed.mjs";
import { goldens } from "../src/goldens.ts";

const read = goldens("goldens/hf_ops.safetensors");

it("golden vectors are read by name, as they are stored and as numbers", () => {
  const [name = ""] = read.names;
  expect(read.has(name)).toBe(true);
  const { shape } = read.tensor(name);
  expect(read.numbers(name)).toHaveLength(shape.reduce((product, length) => product * length, 1));
});

it("a missing one is an error", () => {
  expect(read.has("none")).toBe(false);
  for (const find of [read.tensor, read.numbers])
    expect(() => find("none")).toThrow("goldens/hf_ops.safetensors has no tensor none");
});

it("a file is the same after compression, whatever its length", () => {
  for (const width of [2, 4])
    for (let length = 0; length < 10; length++) {
      const bytes = Buffer.from(Array.from({ length }, (_, i) => 37 * i + 11));
      expect(decompress(compress(bytes, width), width)).toEqual(bytes);
    }
});
