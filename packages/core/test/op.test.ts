import { describe, expect, it } from "vitest";
import {
  type CommandEncoder,
  Device,
  defineOp,
  inputTensors,
  opParams,
  shapeText,
  Tensor,
  unsupported,
} from "../src/index.ts";
import { caught, message, testDevice } from "./helpers.ts";
import { increment } from "./kernels/probe.ts";
import { wrappable } from "./wrappable.ts";

const steps: string[] = [];
/** An op that uses every feature of a declaration and encodes nothing. */
const sample = defineOp({
  name: "sample",
  summary: "nothing",
  inputs: {
    x: { dtype: ["f32", "bf16"], shape: "... D" },
    weight: { dtype: ["=x", "f32"], shape: "D 2" },
    mask: { dtype: ["u8"], shape: "D", optional: true },
    q: {
      type: "Codes",
      tensors: { codes: { dtype: ["u32"], shape: { text: "D / 4", of: (c) => [(c.dims.D as number) / 4] } } },
      attributes: { bits: { kind: "choice", values: [4, 8] } },
    },
  },
  outputs: {
    out: { dtype: ["=x"], shape: "... D", inPlace: ["x"] },
    sums: { dtype: (c) => (c.options.wide ? "f32" : "bf16"), shape: "D" },
    extra: { dtype: ["f32"], shape: "D", optional: true },
    limits: { dtype: ["f32"], shape: "D", optional: true, needs: ["limit"] },
  },
  params: {
    eps: { kind: "number", default: 1e-6, min: 0, max: 1 },
    gain: { kind: "number", above: 0, default: 1 },
    count: { kind: "number", integer: true, min: 1, default: 2 },
    wide: { kind: "boolean", default: true },
    mode: { kind: "choice", values: ["a", "b"], default: "a" },
    limit: { kind: "number", optional: true },
    bound: { kind: "number", below: 0, optional: true },
    share: { kind: "number", above: 0, f64: true, default: 1 },
  },
  relations: ({ dims, fail }) => {
    steps.push("relations");
    if ((dims.D as number) % 4 !== 0) fail("x", "have a last dimension that is a multiple of 4", dims.D);
  },
  rules: ({ options, fail }) => {
    steps.push("rules");
    if (options.count === 9) fail("count", "not be 9", 9);
  },
  check: ({ options, fail }) => {
    steps.push("check");
    if (options.mode === "b" && options.limit === undefined) fail("limit", "be given with mode b", undefined);
  },
  encode: () => {
    steps.push("encode");
  },
});

describe("ops", () => {
  const device = testDevice();
  const other = testDevice();
  const make = (d: Device = device) => ({
    x: d.tensor("f32", [2, 3, 8]),
    weight: d.tensor("f32", [8, 2]),
    q: { codes: d.tensor("u32", [2]), bits: 4 as const },
  });
  const good = make();
  type Loose = Record<string, unknown>;
  const call = (inputs: Loose = {}, options: Loose = {}, encoder: unknown = device.encoder()) =>
    (sample as unknown as (encoder: unknown, inputs: unknown, options: unknown) => Record<string, Tensor>)(
      encoder,
      { ...good, ...inputs },
      options,
    );
  const disposed = device.tensor("f32", [8, 2]);
  disposed.dispose();
  const wide = device.tensor("f32", [2, 3, 9]);

  it("allocate the outputs that are not given, and return them all", () => {
    const { out, sums, extra } = call() as { out: Tensor; sums: Tensor; extra?: Tensor };
    expect([out.shape, out.dtype, sums.shape, sums.dtype, extra]).toEqual([[2, 3, 8], "f32", [8], "f32", undefined]);
    expect(call({}, { wide: false }).sums?.dtype).toBe("bf16");
    const given = device.tensor("f32", [8]);
    expect(call({ extra: given, sums: device.tensor("f32", [8]) }).extra).toBe(given);
    expect(call({ x: device.tensor("f32", [8]) }).out?.shape).toEqual([8]);
  });

  it("allocate optional outputs that are asked for", () => {
    expect(call({ extra: true }).extra?.shape).toEqual([8]);
  });

  it("refuse an optional output without the options that it needs", () => {
    const refused = "sample: `limit` must be given with `limits`, got undefined";
    expect(message(() => call({ limits: true }))).toBe(refused);
    expect(message(() => call({ limits: device.tensor("f32", [8]) }))).toBe(refused);
    expect(call({ limits: true }, { limit: 1 }).limits?.shape).toEqual([8]);
    expect(call({}, { limit: 1 }).limits).toBeUndefined();
  });

  it("take their outputs from the encoder's arena", () => {
    using arena = device.arena(4096);
    const { out } = call({}, {}, device.encoder({ arena }));
    expect(out?.buffer).not.toBe(good.x.buffer);
    expect(arena.used).toBe(256 + 256);
  });

  it("return a single output as itself", () => {
    expect(increment(device.encoder(), { x: device.tensor("u32", [4]) })).toBeInstanceOf(Tensor);
  });

  it.each<[string, () => unknown, string]>([
    ["encoder", () => call({}, {}, {}), "sample: `encoder` must be a CommandEncoder, got Object"],
    [
      "inputs",
      () => (sample as unknown as (...a: unknown[]) => unknown)(device.encoder(), null),
      "sample: `inputs` must be an object of tensors, got null",
    ],
    ["options", () => call({}, null as never), "sample: `options` must be an object, got null"],
    [
      "unknown tensor",
      () => call({ y: good.x }),
      "sample: `y` must be one of x, weight, mask, q, out, sums, extra, limits, got an unknown tensor name",
    ],
    [
      "unknown option",
      () => call({}, { epsilon: 1 }),
      "sample: `epsilon` must be one of eps, gain, count, wide, mode, limit, bound, share, got an unknown option",
    ],
    [
      "inherited option",
      () => call({}, { toString: 1 }),
      "sample: `toString` must be one of eps, gain, count, wide, mode, limit, bound, share, got an unknown option",
    ],
    ["missing tensor", () => call({ x: undefined }), "sample: `x` must be a Tensor, got undefined"],
    ["no tensor", () => call({ mask: [1, 2] }), "sample: `mask` must be a Tensor, got [1, 2]"],
    ["missing record", () => call({ q: undefined }), "sample: `q` must be an object with codes, got undefined"],
    ["tensor of a record", () => call({ q: { bits: 4 } }), "sample: `codes` must be a Tensor, got undefined"],
    [
      "attribute of a record",
      () => call({ q: { codes: good.q.codes } }),
      "sample: `bits` must be one of 4, 8, got undefined",
    ],
    ["kind of an output", () => call({ out: 3 }), "sample: `out` must be a Tensor or true, got 3"],
    ["kind of a number", () => call({}, { eps: "1" }), 'sample: `eps` must be a number, got "1"'],
    ["kind of a boolean", () => call({}, { wide: 1 }), "sample: `wide` must be a boolean, got 1"],
    [
      "relation",
      () => call({ x: device.tensor("f32", [6]) }),
      "sample: `x` must have a last dimension that is a multiple of 4, got 6",
    ],
    ["number below", () => call({}, { eps: -1 }), "sample: `eps` must be a finite number ≥ 0 and ≤ 1, got -1"],
    ["number above", () => call({}, { eps: 2 }), "sample: `eps` must be a finite number ≥ 0 and ≤ 1, got 2"],
    ["NaN", () => call({}, { eps: Number.NaN }), "sample: `eps` must be a finite number ≥ 0 and ≤ 1, got NaN"],
    ["open bound", () => call({}, { gain: 0 }), "sample: `gain` must be a finite number > 0, got 0"],
    ["infinity", () => call({}, { gain: Infinity }), "sample: `gain` must be a finite number > 0, got Infinity"],
    ["upper open bound", () => call({}, { bound: 0 }), "sample: `bound` must be a finite number < 0, got 0"],
    [
      "too large for f32",
      () => call({}, { gain: 1e39 }),
      "sample: `gain` must be a finite number > 0 as f32, got 1e+39 — f32 holds magnitudes from 1.4e-45 to 3.4e38",
    ],
    [
      "too large for f32, negative",
      () => call({}, { limit: -3.5e38 }),
      "sample: `limit` must be a finite number as f32, got -3.5e+38 — f32 holds magnitudes from 1.4e-45 to 3.4e38",
    ],
    [
      "0 as f32",
      () => call({}, { gain: 1e-50 }),
      "sample: `gain` must be a finite number > 0 as f32, got 1e-50 — f32 holds magnitudes from 1.4e-45 to 3.4e38",
    ],
    [
      "0 as f32, negative",
      () => call({}, { bound: -1e-50 }),
      "sample: `bound` must be a finite number < 0 as f32, got -1e-50 — f32 holds magnitudes from 1.4e-45 to 3.4e38",
    ],
    ["a zero with a sign", () => call({}, { gain: -0 }), "sample: `gain` must be a finite number > 0, got 0"],
    ["a bigint", () => call({}, { gain: 1n }), "sample: `gain` must be a number, got 1"],
    ["fraction", () => call({}, { count: 1.5 }), "sample: `count` must be an integer ≥ 1, got 1.5"],
    ["choice", () => call({}, { mode: "c" }), "sample: `mode` must be one of a, b, got c"],
    ["choice of a record", () => call({ q: { ...good.q, bits: 5 } }), "sample: `bits` must be one of 4, 8, got 5"],
    [
      "device",
      () => call({ x: make(other).x }),
      "sample: `x` must belong to the encoder's device, got a tensor of another device",
    ],
    ["disposed", () => call({ weight: disposed }), "the tensor `weight` has been disposed"],
    ["dtype", () => call({ x: device.tensor("f16", [8]) }), "sample: `x` must have dtype f32 or bf16, got f16"],
    [
      "dtype by another",
      () => call({ weight: device.tensor("bf16", [8, 2]) }),
      "sample: `weight` must have dtype f32, got bf16",
    ],
    [
      "dtypes by another",
      () => call({ x: device.tensor("bf16", [8]), weight: device.tensor("u8", [8, 2]) }),
      "sample: `weight` must have dtype bf16 or f32, got u8",
    ],
    [
      "shape",
      () => call({ weight: device.tensor("f32", [4, 2]) }),
      "sample: `weight` must have shape [8, 2], got [4, 2]",
    ],
    [
      "literal dimension",
      () => call({ weight: device.tensor("f32", [8, 3]) }),
      "sample: `weight` must have shape [8, 2], got [8, 3]",
    ],
    ["rank", () => call({ weight: device.tensor("f32", [16]) }), "sample: `weight` must have shape [8, 2], got [16]"],
    [
      "computed shape",
      () => call({ q: { codes: device.tensor("u32", [3]), bits: 4 } }),
      "sample: `codes` must have shape [2], got [3]",
    ],
    [
      "shape of an output",
      () => call({ out: device.tensor("f32", [6, 8]) }),
      "sample: `out` must have shape [2, 3, 8], got [6, 8]",
    ],
    ["larger output", () => call({ sums: device.tensor("f32", [9]) }), "sample: `sums` must have shape [8], got [9]"],
    [
      "dtype of an output",
      () => call({ out: device.tensor("bf16", [2, 3, 8]) }),
      "sample: `out` must have dtype f32, got bf16",
    ],
    [
      "computed dtype",
      () => call({ sums: device.tensor("f32", [8]) }, { wide: false }),
      "sample: `sums` must have dtype bf16, got f32",
    ],
    [
      "outputs that overlap",
      () => call({ sums: wide.view(0, [8]), extra: wide.view(7, [8]) }),
      "sample: `extra` must not overlap `sums`, got overlapping views",
    ],
    [
      "an output over an input",
      () => call({ sums: good.weight.view(8, [8]) }),
      "sample: `sums` must not overlap `weight`, got overlapping views",
    ],
    [
      "an output partly over its input",
      () => call({ x: wide.view(0, [2, 3, 8]), out: wide.view(1, [2, 3, 8]) }),
      "sample: `out` must be exactly `x` or not overlap it, got overlapping views",
    ],
    ["the op's own check", () => call({}, { mode: "b" }), "sample: `limit` must be given with mode b, got undefined"],
  ])("refuse: %s", (_, act, text) => {
    const before = device.counters;
    expect(message(act)).toBe(text);
    // Nothing was encoded or allocated beyond what the call itself made.
    const { dispatches, submissions } = device.counters;
    expect([dispatches, submissions]).toEqual([before.dispatches, before.submissions]);
  });

  it("refuse outputs that are read-only", () => {
    const out = new Tensor(device.wrap(wrappable(new Uint8Array(32)), { readOnly: true }), "f32", [8]);
    expect(message(() => call({ sums: out }))).toBe("sample: `sums` must be writable, got a read-only tensor");
  });

  it("write in place where they may", () => {
    expect(call({ out: good.x }).out).toBe(good.x);
    expect(call({ out: good.x.reshape([2, 3, 8]) }).out?.byteOffset).toBe(0);
  });

  it("check in the contract's order", () => {
    const wrong: [Loose, Loose, string][] = [
      [{ y: 1, x: device.tensor("f16", [6]) }, { eps: -1 }, "y"],
      [{ x: device.tensor("f16", [6]) }, { eps: "1" }, "eps"],
      [{ x: device.tensor("f16", [6]) }, { eps: -1 }, "x"],
      [{ x: device.tensor("f16", [8]) }, { eps: -1 }, "eps"],
      [{ x: device.tensor("f16", [8]), weight: disposed }, { mode: "b" }, "x"],
      [{ x: device.tensor("f16", [8]) }, { count: 9 }, "x"],
      [{ sums: good.weight.view(8, [8]) }, { count: 9 }, "count"],
      [{ sums: good.weight.view(8, [8]) }, { mode: "b" }, "sums"],
    ];
    for (const [inputs, options, argument] of wrong)
      expect(caught(() => call(inputs, options))).toMatchObject({ fault: { argument } });
    steps.length = 0;
    call();
    expect(steps).toEqual(["relations", "rules", "check", "encode"]);
  });

  it("allocate nothing when they refuse", () => {
    using device = Device.open("cpu");
    const x = device.tensor("u32", [6]);
    const encoder = device.encoder();
    const before = device.counters;
    expect(message(() => increment(encoder, { x }, { groups: 4 }))).toBe(
      "increment: `groups` must divide N = 6, got 4",
    );
    expect(device.counters).toEqual(before);
  });

  it("refuse an encoder that has ended", async () => {
    const encoder: CommandEncoder = device.encoder();
    await encoder.commit();
    expect(message(() => increment(encoder, { x: device.tensor("u32", [4]) }))).toBe(
      "encoder.dispatch: `encoder` must be recording, got a committed encoder — make a new one with device.encoder()",
    );
  });

  it("describe themselves to tools", () => {
    expect(sample.name).toBe("sample");
    expect(sample.op.summary).toBe("nothing");
    expect(inputTensors(sample.op).map(([name, , record]) => [name, record])).toEqual([
      ["x", undefined],
      ["weight", undefined],
      ["mask", undefined],
      ["codes", "q"],
    ]);
    expect(opParams(sample.op).map(([name]) => name)).toEqual([
      "bits",
      "eps",
      "gain",
      "count",
      "wide",
      "mode",
      "limit",
      "bound",
      "share",
    ]);
    expect(shapeText("B T 3")).toBe("[B, T, 3]");
    expect(shapeText({ text: "D / 4", of: () => [] })).toBe("[D / 4]");
    expect(unsupported("op", "f16", "use f32")).toMatchObject({
      code: "UnsupportedDtype",
      message: "op: f16 is not supported — use f32",
      details: { op: "op", dtype: "f16" },
    });
  });
});
