import { expect, it } from "vitest";
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
