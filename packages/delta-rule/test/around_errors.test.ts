// What the ops around the rule refuse before anything is encoded.
import { Device } from "@mlxts/core";
import { type Loose, refuses } from "@mlxts/test-kit/refusals";
import { afterAll, describe, it } from "vitest";
import { causalConv1d, convRollback, deltaGates } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());
const f32 = (...shape: number[]) => device.tensor("f32", shape);
const bf16 = (...shape: number[]) => device.tensor("bf16", shape);

describe("causalConv1d refuses", () => {
  const x = f32(2, 5, 6);
  const weight = f32(6, 4);
  const cases: [string, Loose, string, Loose?][] = [
    ["a kernel of one token", { weight: f32(6, 1) }, "`W` must be ≥ 2, got 1"],
    ["another activation", {}, "`activation` must be one of none, silu, got gelu", { activation: "gelu" }],
    ["weights of fewer channels", { weight: f32(5, 4) }, "`weight` must have shape [6, 4], got [5, 4]"],
    ["weights of another dtype", { weight: bf16(6, 4) }, "`weight` must have dtype f32, got bf16"],
    ["a bias of another dtype", { bias: bf16(6) }, "`bias` must have dtype f32, got bf16"],
    ["a bias of another length", { bias: f32(4) }, "`bias` must have shape [6], got [4]"],
    [
      "a state of too few rows",
      { initialState: f32(2, 2, 6) },
      "`initialState` must have shape [2, 3, 6], got [2, 2, 6]",
    ],
    [
      "a state of [N, C, W − 1]",
      { initialState: f32(2, 6, 3) },
      "`initialState` must have shape [2, 6, 6], got [2, 6, 3]",
    ],
    [
      "a final state of too few rows",
      { finalState: f32(2, 2, 6) },
      "`finalState` must have shape [2, 3, 6], got [2, 2, 6]",
    ],
    [
      "a final state of other rows than the initial one",
      { initialState: f32(2, 5, 6), finalState: f32(2, 4, 6) },
      "`finalState` must have shape [2, 5, 6], got [2, 4, 6]",
    ],
    [
      "packed sequences in two rows",
      { cuSeqlens: device.tensor("i32", [3]) },
      "`cuSeqlens` must come with one row of tokens (N = 1), got 2",
    ],
    ["cuSeqlens in u32", { cuSeqlens: device.tensor("u32", [3]) }, "`cuSeqlens` must have dtype i32, got u32"],
    ["cuSeqlens without an end", { cuSeqlens: device.tensor("i32", [1]) }, "`cuSeqlens` must have shape [2], got [1]"],
    [
      "a state for each row where sequences are packed",
      { x: f32(1, 5, 6), cuSeqlens: device.tensor("i32", [3]), initialState: f32(1, 3, 6) },
      "`initialState` must have shape [2, 3, 6], got [1, 3, 6]",
    ],
    [
      "a mask with packed sequences",
      { x: f32(1, 5, 6), cuSeqlens: device.tensor("i32", [3]), mask: device.tensor("u8", [1, 5]) },
      "`mask` must not be given with `cuSeqlens`, got both",
    ],
    ["a mask of other tokens", { mask: device.tensor("u8", [2, 4]) }, "`mask` must have shape [2, 5], got [2, 4]"],
    ["a mask in f32", { mask: f32(2, 5) }, "`mask` must have dtype u8, got f32"],
    [
      "a final state over another part of the initial one",
      (() => {
        const memory = f32(3, 3, 6);
        return { initialState: memory.slice(0, 2), finalState: memory.slice(1, 3) };
      })(),
      "`finalState` must be exactly `initialState` or not overlap it, got overlapping views",
    ],
    ["y over x", { y: x }, "`y` must not overlap `x`, got overlapping views"],
    [
      "a final state of another dtype than the initial one",
      { x: bf16(2, 5, 6), initialState: f32(2, 3, 6), finalState: bf16(2, 3, 6) },
      "`finalState` must have the dtype of `initialState`, f32, got bf16",
    ],
  ];
  it.each(cases)("%s", (_, inputs, message, options = {}) =>
    refuses(device, causalConv1d, { inputs: { x, weight }, options: {} }, { inputs, options, message }),
  );
  it("a larger kernel than a thread of a CPU has scratch for", () => {
    using cpu = Device.open("cpu");
    const inputs = {
      x: cpu.tensor("f32", [1, 1, 1]),
      weight: cpu.tensor("f32", [1, 16384]),
      y: cpu.tensor("f32", [1, 1, 1]),
    };
    const message = "`scratch` must take at most 16777216 bytes, got 16778240";
    refuses(cpu, causalConv1d, { inputs, options: {} }, { message });
  });
});

describe("convRollback refuses", () => {
  const given = { history: f32(2, 5, 6), rejected: device.tensor("i32", [2]) };
  const cases: [string, Loose, string, Loose?][] = [
    ["a kernel of one token", {}, "`kernelSize` must be an integer ≥ 2, got 1", { kernelSize: 1 }],
    [
      "a history that is too short",
      {},
      "`history` must have at least kernelSize − 1 = 6 rows, got 5",
      { kernelSize: 7 },
    ],
    ["rejected in u32", { rejected: device.tensor("u32", [2]) }, "`rejected` must have dtype i32, got u32"],
    ["rejected of other sequences", { rejected: device.tensor("i32", [3]) }, "`rejected` must have shape [2], got [3]"],
    [
      "a history of integers",
      { history: device.tensor("i32", [2, 5, 6]) },
      "`history` must have dtype f32 or f16 or bf16, got i32",
    ],
    ["a state of other rows", { finalState: f32(2, 4, 6) }, "`finalState` must have shape [2, 3, 6], got [2, 4, 6]"],
    ["a state of another dtype", { finalState: bf16(2, 3, 6) }, "`finalState` must have dtype f32, got bf16"],
    [
      "a state over the history",
      { finalState: given.history.view(0, [2, 3, 6]) },
      "`finalState` must not overlap `history`, got overlapping views",
    ],
  ];
  const good = { inputs: given, options: { kernelSize: 4 } };
  it.each(cases)("%s", (_, inputs, message, options = {}) =>
    refuses(device, convRollback, good, { inputs, options, message }),
  );
  it("a missing kernelSize", () =>
    refuses(device, convRollback, good, {
      options: { kernelSize: undefined },
      message: "`kernelSize` must be a number, got undefined",
      kind: "TypeError",
    }));
});

describe("deltaGates refuses", () => {
  const inputs = { a: f32(3, 4), b: f32(3, 4), aLog: f32(4), dtBias: f32(4) };
  const cases: [string, Loose, string, Loose?][] = [
    ["a betaScale of 0", {}, "`betaScale` must be a finite number > 0, got 0", { betaScale: 0 }],
    ["a lowerBound of 0", {}, "`lowerBound` must be a finite number < 0, got 0", { lowerBound: 0 }],
    ["aLog in bf16", { aLog: bf16(4) }, "`aLog` must have dtype f32, got bf16"],
    ["b of another dtype", { b: bf16(3, 4) }, "`b` must have dtype f32, got bf16"],
    ["b of other rows", { b: f32(2, 4) }, "`a` must have shape [2, 4], got [3, 4]"],
    ["gates for channels without biases for them", { a: f32(3, 4, 8) }, "`a` must have shape [3, 4], got [3, 4, 8]"],
    ["biases for channels without gates for them", { dtBias: f32(4, 8) }, "`a` must have shape [3, 4, 8], got [3, 4]"],
    [
      "gates for other channels",
      { a: f32(3, 4, 16), dtBias: f32(4, 8) },
      "`a` must have shape [3, 4, 8], got [3, 4, 16]",
    ],
    [
      "beta for each channel",
      { a: f32(3, 4, 8), dtBias: f32(4, 8), beta: f32(3, 4, 8) },
      "`beta` must have shape [3, 4], got [3, 4, 8]",
    ],
    [
      "one g for all channels",
      { a: f32(3, 4, 8), dtBias: f32(4, 8), g: f32(3, 4) },
      "`g` must have shape [3, 4, 8], got [3, 4]",
    ],
    ["dtBias of other heads", { dtBias: f32(3) }, "`dtBias` must have shape [4], got [3]"],
    ["g in bf16", { g: bf16(3, 4) }, "`g` must have dtype f32, got bf16"],
  ];
  it.each(cases)("%s", (_, changed, message, options = {}) =>
    refuses(device, deltaGates, { inputs, options: {} }, { inputs: changed, options, message }),
  );
});
