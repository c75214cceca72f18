// The contract's table of errors, row by row and in its order: of two mistakes the first is reported. What is refused
// encodes, allocates and changes nothing.
import { Device } from "@mlxts/core";
import { type Loose, type Mistake, refuses, refusesInOrder } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { deltaGatesRule, gatedDeltaRule, gatedDeltaRuleRecurrent } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

const f32 = (...shape: number[]) => device.tensor("f32", shape);
const bf16 = (...shape: number[]) => device.tensor("bf16", shape);
const i32 = (...shape: number[]) => device.tensor("i32", shape);
const u8 = (...shape: number[]) => device.tensor("u8", shape);

it("no tensor has a dimension of 0, and none has more than there are", () => {
  for (const dim of [0, 2 ** 31, 1.5])
    expect(() => f32(1, dim, 2, 16)).toThrow(
      `device.tensor: \`shape\` must have dimensions that are integers from 1 to 2147483647, got [1, ${dim}, 2, 16]`,
    );
});

const v = f32(2, 20, 4, 8);
/** Two rows of 20 tokens. */
const ROWS = {
  q: f32(2, 20, 2, 16),
  k: f32(2, 20, 2, 16),
  v,
  g: f32(2, 20, 4),
  beta: f32(2, 20, 4),
  initialState: f32(2, 4, 8, 16),
};
const KEYS = (dim: number) => ({ q: f32(2, 20, 2, dim), k: f32(2, 20, 2, dim) });

const dimensions: Mistake[] = [
  { inputs: { v: f32(2, 20, 3, 8) }, message: "`H` must be a multiple of Hk (2), got 3" },
  { inputs: KEYS(264), message: "`k` must have at most 256 elements per head (K), got 264" },
];
const scalars: Mistake[] = [
  { options: { scale: Number.NaN }, message: "`scale` must be a finite number, got NaN" },
  { options: { gate: "exp" }, message: "`gate` must be one of ln, log2, linear, neg-ln, got exp" },
  { options: { gqa: "repeat" }, message: "`gqa` must be one of block, tiled, got repeat" },
  { options: { stateLayout: "kt" }, message: "`stateLayout` must be one of vk, kv, got kt" },
  { options: { qkNorm: "l2" }, message: "`qkNorm` must be one of none, sum-eps, mean-eps, max-eps, got l2" },
  { options: { qkNormEps: -1 }, message: "`qkNormEps` must be a finite number > 0, got -1" },
];
const counts: Mistake[] = [
  { options: { snapshotEvery: 0 }, message: "`snapshotEvery` must be an integer ≥ 1, got 0" },
  { options: { lastTokens: 65 }, message: "`lastTokens` must be an integer ≥ 1 and ≤ 64, got 65" },
];
const tensors: Mistake[] = [
  { inputs: { k: bf16(2, 20, 2, 16) }, message: "`k` must have dtype f32, got bf16" },
  { inputs: { v: f32(2, 19, 4, 8) }, message: "`v` must have shape [2, 20, 4, 8], got [2, 19, 4, 8]" },
  { inputs: { g: f32(2, 20, 4, 8) }, message: "`g` must have shape [2, 20, 4, 16], got [2, 20, 4, 8]" },
  { inputs: { beta: f32(2, 20, 4, 16) }, message: "`beta` must have shape [2, 20, 4], got [2, 20, 4, 16]" },
  {
    inputs: { initialState: f32(2, 4, 16, 8) },
    message: "`initialState` must have shape [2, 4, 8, 16], got [2, 4, 16, 8]",
  },
  { inputs: { cuSeqlens: f32(3) }, message: "`cuSeqlens` must have dtype i32, got f32" },
  { inputs: { mask: u8(2, 21) }, message: "`mask` must have shape [2, 20], got [2, 21]" },
  { inputs: { o: bf16(2, 20, 4, 8) }, message: "`o` must have dtype f32, got bf16" },
  { inputs: { finalState: bf16(2, 4, 8, 16) }, message: "`finalState` must have dtype f32, got bf16" },
];
/** With cuSeqlens [3] as a part of them, so that each stands for the first of its kind alone. */
const combinations: Mistake[] = [
  { inputs: { snapshots: true }, message: "`snapshotEvery` must be given with `snapshots`, got undefined" },
  { inputs: { lastStates: true }, message: "`lastTokens` must be given with `lastStates`, got undefined" },
  { inputs: { logKeys: true }, message: "`lastTokens` must be given with `logKeys`, got undefined" },
  { inputs: { cuSeqlens: i32(3) }, message: "`cuSeqlens` must come with one row of tokens (B = 1), got 2" },
];
const aliasing: Mistake[] = [{ inputs: { o: v }, message: "`o` must not overlap `v`, got overlapping views" }];

describe("gatedDeltaRule refuses, in order,", () => {
  refusesInOrder(device, gatedDeltaRule, { inputs: ROWS, options: { scale: 1 } }, [
    {
      inputs: { state: v },
      message:
        "`state` must be one of q, k, v, g, beta, initialState, cuSeqlens, mask, o, finalState, snapshots, lastStates, " +
        "logState, logKeys, logDeltas, logGates, got an unknown tensor name",
      kind: "TypeError",
    },
    ...dimensions,
    { options: { chunkLength: 8 }, message: "`chunkLength` must be one of 16, 32, 64, got 8" },
    ...scalars,
    { options: { path: "scan" }, message: "`path` must be one of auto, recurrent, chunk, got scan" },
    ...counts,
    { options: { precision: "bf16" }, message: "`precision` must be one of activation, f32, got bf16" },
    ...tensors,
    ...combinations,
    ...aliasing,
  ]);
});

describe("gatedDeltaRuleRecurrent refuses, in order,", () => {
  refusesInOrder(device, gatedDeltaRuleRecurrent, { inputs: ROWS, options: { scale: 1 } }, [
    ...dimensions,
    ...scalars,
    ...counts,
    ...tensors,
    ...combinations,
    ...aliasing,
  ]);
});

describe("deltaGatesRule refuses, in order,", () => {
  const { g: _, beta: __, ...inputs } = ROWS;
  const gates = { a: f32(2, 20, 4), b: f32(2, 20, 4), aLog: f32(4), dtBias: f32(4) };
  const own: readonly string[] = ["`g`", "`beta`", "`gate`"];
  const shared = (mistakes: Mistake[]) =>
    mistakes.filter(({ message }) => !own.some((name) => message.startsWith(name)));
  refusesInOrder(device, deltaGatesRule, { inputs: { ...inputs, ...gates }, options: { scale: 1 } }, [
    {
      inputs: { g: gates.a },
      message:
        "`g` must be one of q, k, v, a, b, aLog, dtBias, initialState, cuSeqlens, mask, o, finalState, snapshots, " +
        "lastStates, logState, logKeys, logDeltas, logGates, got an unknown tensor name",
      kind: "TypeError",
    },
    ...dimensions,
    ...shared(scalars),
    ...counts,
    { options: { betaScale: 0 }, message: "`betaScale` must be a finite number > 0, got 0" },
    { options: { lowerBound: 0 }, message: "`lowerBound` must be a finite number < 0, got 0" },
    ...shared(tensors).slice(0, 2),
    { inputs: { a: bf16(2, 20, 4) }, message: "`a` must have dtype f32, got bf16" },
    { inputs: { b: f32(2, 20, 2) }, message: "`b` must have shape [2, 20, 4], got [2, 20, 2]" },
    { inputs: { aLog: bf16(4) }, message: "`aLog` must have dtype f32, got bf16" },
    { inputs: { dtBias: f32(2) }, message: "`dtBias` must have shape [4], got [2]" },
    ...shared(tensors).slice(2),
    ...combinations,
    ...aliasing,
  ]);
  it("gates of channels", () => {
    const channels = { a: f32(2, 20, 4, 16), dtBias: f32(4, 16) };
    const message = "`a` must have shape [2, 20, 4], got [2, 20, 4, 16]";
    refuses(
      device,
      deltaGatesRule,
      { inputs: { ...inputs, ...gates }, options: { scale: 1 } },
      { inputs: channels, message },
    );
  });
});

/** One row of sequences. */
const PACKED = {
  q: f32(1, 40, 2, 16),
  k: f32(1, 40, 2, 16),
  v: f32(1, 40, 4, 8),
  g: f32(1, 40, 4, 16),
  beta: f32(1, 40, 4),
  initialState: f32(3, 4, 16, 8),
  cuSeqlens: i32(4),
};

describe.each([
  ["gatedDeltaRule", gatedDeltaRule],
  ["gatedDeltaRuleRecurrent", gatedDeltaRuleRecurrent],
] as const)("%s refuses of packed sequences in [K, V]", (_, op) => {
  const options = { scale: 1, stateLayout: "kv", snapshotEvery: 16, lastTokens: 3 };
  const log = { logState: true, logKeys: true, logDeltas: true, logGates: true };
  const mistakes: Mistake[] = [
    {
      inputs: { initialState: f32(2, 4, 16, 8) },
      message: "`initialState` must have shape [3, 4, 16, 8], got [2, 4, 16, 8]",
    },
    { inputs: { initialState: undefined, cuSeqlens: i32(1) }, message: "`cuSeqlens` must have shape [2], got [1]" },
    { inputs: { cuSeqlens: i32(4, 1) }, message: "`cuSeqlens` must have shape [4], got [4, 1]" },
    {
      inputs: { finalState: f32(3, 4, 8, 16) },
      message: "`finalState` must have shape [3, 4, 16, 8], got [3, 4, 8, 16]",
    },
    {
      inputs: { snapshots: f32(3, 4, 16, 8) },
      message: "`snapshots` must have shape [2, 4, 16, 8], got [3, 4, 16, 8]",
    },
    {
      inputs: { lastStates: f32(3, 4, 4, 16, 8) },
      message: "`lastStates` must have shape [3, 3, 4, 16, 8], got [3, 4, 4, 16, 8]",
    },
    {
      inputs: { ...log, logState: f32(1, 4, 16, 8) },
      message: "`logState` must have shape [3, 4, 16, 8], got [1, 4, 16, 8]",
    },
    {
      inputs: { ...log, logKeys: f32(3, 3, 4, 16) },
      message: "`logKeys` must have shape [3, 3, 2, 16], got [3, 3, 4, 16]",
    },
    {
      inputs: { ...log, logDeltas: f32(3, 3, 2, 8) },
      message: "`logDeltas` must have shape [3, 3, 4, 8], got [3, 3, 2, 8]",
    },
    { inputs: { ...log, logGates: f32(3, 3, 4) }, message: "`logGates` must have shape [3, 3, 4, 16], got [3, 3, 4]" },
    { inputs: { mask: u8(1, 40) }, message: "`mask` must not be given with `cuSeqlens`, got both" },
    {
      inputs: { snapshots: true },
      options: { snapshotEvery: 64 },
      message: "`snapshotEvery` must be at most the 40 tokens of a row, got 64 — ask for no `snapshots`",
    },
    {
      inputs: { ...log, logDeltas: undefined },
      message: "`logDeltas` must be given with `logState`: the log is written in whole, got undefined",
    },
    {
      inputs: { logGates: true },
      message: "`logState` must be given with `logGates`: the log is written in whole, got undefined",
    },
  ];
  for (const mistake of mistakes) it(mistake.message, () => refuses(device, op, { inputs: PACKED, options }, mistake));
  it("outputs over others and over inputs", () => {
    const memory = f32(3, 4, 16, 8);
    const overlap = (inputs: Loose, message: string) =>
      refuses(device, op, { inputs: PACKED, options }, { inputs, message });
    overlap(
      { finalState: memory, ...log, logState: memory },
      "`logState` must not overlap `finalState`, got overlapping views",
    );
    overlap(
      { ...log, logState: PACKED.initialState },
      "`logState` must not overlap `initialState`, got overlapping views",
    );
    if (op === gatedDeltaRuleRecurrent)
      overlap(
        { snapshots: PACKED.initialState.slice(0, 2) },
        "`snapshots` must not overlap `initialState`, got overlapping views",
      );
  });
});

it("gatedDeltaRule refuses snapshots inside of chunks, the recurrent form takes them", () => {
  const mistake: Mistake = {
    inputs: { snapshots: true },
    options: { snapshotEvery: 7 },
    message: "`snapshotEvery` must be a multiple of chunkLength (16), got 7",
  };
  refuses(device, gatedDeltaRule, { inputs: ROWS, options: { scale: 1, chunkLength: 16 } }, mistake);
  expect(() =>
    gatedDeltaRuleRecurrent(device.encoder(), { ...ROWS, snapshots: true }, { scale: 1, snapshotEvery: 7 }),
  ).not.toThrow();
});
