// Inputs that are records, tensors in place of records, and records that may be left out.
import { describe, expect, it } from "vitest";
import { defineOp, inputTensors, opParams, opSignatures, type Tensor } from "../src/index.ts";
import { opArguments } from "../src/testing/index.ts";
import { message, testDevice } from "./helpers.ts";

const codes = {
  type: "Codes",
  tensors: {
    codes: { dtype: ["u32"], shape: { text: "any", of: (_: unknown, given: readonly number[]) => given } },
    scales: { dtype: ["f32", "f16"], shape: "G" },
    biases: { dtype: ["=scales"], shape: "G" },
  },
  attributes: {
    bits: { kind: "choice", values: [4, 8] },
    mode: { kind: "choice", values: ["affine"], default: "affine" },
  },
  doc: "a matrix",
} as const;

const seen: { tensors: string[]; options: object; inputs: object }[] = [];
const op = defineOp({
  name: "sample",
  summary: "nothing",
  inputs: {
    a: { ...codes, tensor: { dtype: ["f32"], shape: "R C" } },
    b: { ...codes, tensor: { dtype: ["f32"], shape: "C" }, optional: true },
    c: { ...codes, optional: true },
  },
  outputs: { out: { dtype: ["f32"], shape: "N" } },
  params: {},
  encode: ({ tensors, options, inputs }) => {
    seen.push({ tensors: Object.keys(tensors), options, inputs });
  },
});

describe("records", () => {
  const device = testDevice();
  const dense = device.tensor("f32", [2, 3]);
  const record = {
    codes: device.tensor("u32", [5, 7]),
    scales: device.tensor("f16", [2]),
    biases: device.tensor("f16", [2]),
    bits: 4 as const,
  };
  const out = device.tensor("f32", [1]);
  type Loose = Record<string, unknown>;
  const call = (inputs: Loose) => {
    seen.length = 0;
    (op as unknown as (encoder: unknown, inputs: Loose) => Tensor)(device.encoder(), { out, ...inputs });
    return seen[0] as (typeof seen)[number];
  };

  it("may be a tensor instead, or left out", () => {
    expect(call({ a: dense })).toMatchObject({ tensors: ["a"], options: {}, inputs: { a: dense } });
    const { tensors, options, inputs } = call({ a: record });
    expect(tensors).toEqual(["a.codes", "a.scales", "a.biases"]);
    expect(options).toEqual({ "a.bits": 4, "a.mode": "affine" });
    expect(inputs).toMatchObject({ a: record });
    expect(call({ a: dense, b: record, c: record }).options).toEqual({
      "b.bits": 4,
      "b.mode": "affine",
      bits: 4,
      mode: "affine",
    });
    expect(call({ a: record, b: device.tensor("f32", [3]) }).tensors).toEqual([...tensors, "b"]);
  });

  it.each<[string, Loose, string]>([
    ["nothing", {}, "sample: `a` must be a Tensor or an object with codes, scales, biases, got undefined"],
    ["a number", { a: 1 }, "sample: `a` must be a Tensor or an object with codes, scales, biases, got 1"],
    ["a tensor for a plain record", { a: dense, c: dense }, "sample: `codes` must be a Tensor, got undefined"],
    ["a part missing", { a: { ...record, biases: undefined } }, "sample: `a.biases` must be a Tensor, got undefined"],
    [
      "an attribute missing",
      { a: { ...record, bits: undefined } },
      "sample: `a.bits` must be one of 4, 8, got undefined",
    ],
    ["an attribute's value", { a: { ...record, bits: 3 } }, "sample: `a.bits` must be one of 4, 8, got 3"],
    [
      "a part's dtype",
      { a: dense, b: { ...record, biases: device.tensor("f32", [2]) } },
      "sample: `b.biases` must have dtype f16, got f32",
    ],
    ["the tensor's dtype", { a: device.tensor("f16", [2, 3]) }, "sample: `a` must have dtype f32, got f16"],
    ["the tensor's shape", { a: dense, b: device.tensor("f32", [2]) }, "sample: `b` must have shape [3], got [2]"],
  ])("are refused: %s", (_, inputs, expected) => {
    expect(message(() => call(inputs))).toBe(expected);
  });

  it("are put together from flat names", () => {
    expect(opArguments(op.op, { a: dense }, {})).toEqual({ inputs: { a: dense }, options: {} });
    const { bits, ...tensors } = record;
    const flat = Object.fromEntries(Object.entries(tensors).map(([name, tensor]) => [`b.${name}`, tensor]));
    expect(opArguments(op.op, { a: dense, ...flat }, { "b.bits": bits })).toEqual({
      inputs: { a: dense, b: record },
      options: {},
    });
  });

  it("go by input and part where several have the same parts", () => {
    const { inputs } = op.op;
    const both = { inputs: { c: inputs.c, d: inputs.c } } as Parameters<typeof inputTensors>[0];
    expect(inputTensors(both).map(([name, { dtype }]) => [name, dtype])).toEqual(
      ["c", "d"].flatMap((name) => [
        [`${name}.codes`, ["u32"]],
        [`${name}.scales`, ["f32", "f16"]],
        [`${name}.biases`, [`=${name}.scales`]],
      ]),
    );
    expect(opParams({ ...both, params: {} }).map(([name]) => name)).toEqual(["c.bits", "c.mode", "d.bits", "d.mode"]);
  });

  it("are described part by part; what need not be given is optional", () => {
    expect(inputTensors(op.op).map(([name, { dtype, optional }]) => [name, dtype, optional])).toEqual([
      ["a", ["f32"], true],
      ["a.codes", ["u32"], true],
      ["a.scales", ["f32", "f16"], true],
      ["a.biases", ["=a.scales"], true],
      ["b", ["f32"], true],
      ["b.codes", ["u32"], true],
      ["b.scales", ["f32", "f16"], true],
      ["b.biases", ["=b.scales"], true],
      ["codes", ["u32"], true],
      ["scales", ["f32", "f16"], true],
      ["biases", ["=scales"], true],
    ]);
    expect(opParams(op.op).map(([name, { optional }, record, part]) => [name, optional, record, part])).toEqual([
      ["a.bits", true, "a", "bits"],
      ["a.mode", true, "a", "mode"],
      ["b.bits", true, "b", "bits"],
      ["b.mode", true, "b", "mode"],
      ["bits", true, "c", "bits"],
      ["mode", true, "c", "mode"],
    ]);
    const text = opSignatures([op.op]);
    expect(text).toContain("  /** A matrix. [R, C], f32, or such a matrix as a `Codes`. */\n  a: Tensor | Codes;");
    expect(text).toContain("\n  b?: Tensor | Codes | undefined;");
    expect(text).toContain("\n  c?: Codes | undefined;");
  });
});
