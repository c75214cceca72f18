// The contract's table of errors for the stages and for rollback, in its order.
import { Device } from "@mlxts/core";
import { type Loose, type Mistake, refusesInOrder } from "@mlxts/test-kit/refusals";
import { afterAll, describe } from "vitest";
import {
  chunkCumsum,
  chunkInverse,
  chunkKkt,
  chunkOutput,
  chunkState,
  chunkWu,
  gatedDeltaRollback,
} from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());
const f32 = (...shape: number[]) => device.tensor("f32", shape);
const bf16 = (...shape: number[]) => device.tensor("bf16", shape);
const i32 = (...shape: number[]) => device.tensor("i32", shape);
const u8 = (...shape: number[]) => device.tensor("u8", shape);

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
const sums = ROWS.g;
const pairs = f32(2, 20, 4, 16);
const w = f32(2, 20, 4, 16);
const states = f32(2, 2, 4, 8, 16);
const packedRows: Mistake = {
  inputs: { cuSeqlens: i32(3) },
  message: "`cuSeqlens` must come with one row of tokens (B = 1), got 2",
};
const chunks: Mistake = { options: { chunkLength: 48 }, message: "`chunkLength` must be one of 16, 32, 64, got 48" };
const map: Mistake = { options: { gqa: "mod" }, message: "`gqa` must be one of block, tiled, got mod" };
/** Rows 2 and 3 of the table. */
const heads = (inputs: Loose): Mistake => ({ inputs, message: "`H` must be a multiple of Hk (2), got 3" });
const dims = (key: string): Mistake[] => [
  { inputs: { [key]: f32(2, 20, 2, 264) }, message: "`k` must have at most 256 elements per head (K), got 264" },
  {
    inputs: { [key]: f32(2, 20, 2, 20) },
    message: '`k` must have a multiple of 8 elements per head (K) on the chunk path, got 20 — use path "recurrent"',
  },
];
const low = { inputs: { GLow: f32(2, 20, 4, 16) }, message: "`GLow` must have shape [2, 20, 4], got [2, 20, 4, 16]" };
const G16 = { inputs: { G: bf16(2, 20, 4) }, message: "`G` must have dtype f32, got bf16" };
const cu64: Mistake = { inputs: { cuSeqlens: u8(3) }, message: "`cuSeqlens` must have dtype i32, got u8" };

/** Each stage: a good call, and its mistakes in order. */
const STAGES: [unknown, Loose, Loose, Mistake[]][] = [
  [
    chunkCumsum,
    { g: sums },
    { chunkLength: 16 },
    [
      chunks,
      { options: { gate: "e" }, message: "`gate` must be one of ln, log2, linear, neg-ln, got e" },
      { inputs: { g: bf16(2, 20, 4) }, message: "`g` must have dtype f32, got bf16" },
      cu64,
      { inputs: { mask: u8(20) }, message: "`mask` must have shape [2, 20], got [20]" },
      { inputs: { G: f32(2, 20, 5) }, message: "`G` must have shape [2, 20, 4], got [2, 20, 5]" },
      packedRows,
      { inputs: { GLow: sums }, message: "`GLow` must not overlap `g`, got overlapping views" },
    ],
  ],
  [
    chunkKkt,
    { k: ROWS.k, beta: ROWS.beta, G: sums },
    { chunkLength: 16 },
    [
      heads({ beta: f32(2, 20, 3) }),
      ...dims("k"),
      chunks,
      map,
      { inputs: { k: i32(2, 20, 2, 16) }, message: "`k` must have dtype f32 or f16 or bf16, got i32" },
      { inputs: { beta: bf16(2, 20, 4) }, message: "`beta` must have dtype f32, got bf16" },
      G16,
      low,
      cu64,
      { inputs: { A: f32(2, 20, 4, 32) }, message: "`A` must have shape [2, 20, 4, 16], got [2, 20, 4, 32]" },
      packedRows,
    ],
  ],
  [
    chunkInverse,
    { A: pairs },
    { chunkLength: 16 },
    [
      chunks,
      { inputs: { A: bf16(2, 20, 4, 16) }, message: "`A` must have dtype f32, got bf16" },
      cu64,
      { inputs: { X: f32(2, 20, 4, 32) }, message: "`X` must have shape [2, 20, 4, 16], got [2, 20, 4, 32]" },
      packedRows,
      { inputs: { A: f32(2, 20, 4, 32) }, message: "`A` must have a last dimension of chunkLength (16), got 32" },
    ],
  ],
  [
    chunkWu,
    { k: ROWS.k, v, beta: ROWS.beta, G: sums, X: pairs },
    { chunkLength: 16 },
    [
      heads({ v: f32(2, 20, 3, 8) }),
      ...dims("k"),
      chunks,
      map,
      { inputs: { v: bf16(2, 20, 4, 8) }, message: "`v` must have dtype f32, got bf16" },
      { inputs: { beta: f32(2, 20, 5) }, message: "`beta` must have shape [2, 20, 4], got [2, 20, 5]" },
      G16,
      low,
      cu64,
      { inputs: { X: f32(2, 20, 4, 64) }, message: "`X` must have shape [2, 20, 4, 16], got [2, 20, 4, 64]" },
      { inputs: { w: bf16(2, 20, 4, 16) }, message: "`w` must have dtype f32, got bf16" },
      packedRows,
      { inputs: { u: v }, message: "`u` must not overlap `v`, got overlapping views" },
    ],
  ],
  [
    chunkState,
    { k: ROWS.k, w, u: v, G: sums, initialState: ROWS.initialState },
    { chunkLength: 16, snapshotEvery: 16 },
    [
      heads({ w: f32(2, 20, 3, 16) }),
      ...dims("k"),
      chunks,
      map,
      { options: { stateLayout: "k" }, message: "`stateLayout` must be one of vk, kv, got k" },
      { options: { snapshotEvery: 1.5 }, message: "`snapshotEvery` must be an integer ≥ 1, got 1.5" },
      { inputs: { w: bf16(2, 20, 4, 16) }, message: "`w` must have dtype f32, got bf16" },
      { inputs: { u: f32(2, 20, 5, 8) }, message: "`u` must have shape [2, 20, 4, 8], got [2, 20, 5, 8]" },
      G16,
      low,
      cu64,
      {
        inputs: { initialState: f32(2, 4, 16, 8) },
        message: "`initialState` must have shape [2, 4, 8, 16], got [2, 4, 16, 8]",
      },
      {
        inputs: { h: f32(2, 1, 4, 8, 16) },
        message: "`h` must have shape [2, 2, 4, 8, 16], got [2, 1, 4, 8, 16]",
        alone: true,
      },
      {
        inputs: { finalState: f32(1, 4, 8, 16) },
        message: "`finalState` must have shape [2, 4, 8, 16], got [1, 4, 8, 16]",
      },
      {
        inputs: { snapshots: f32(1, 4, 8, 16) },
        message: "`snapshots` must have shape [2, 4, 8, 16], got [1, 4, 8, 16]",
      },
      { ...packedRows, inputs: { ...packedRows.inputs, initialState: undefined } },
      { inputs: { vNew: w.view(0, [2, 20, 4, 8]) }, message: "`vNew` must not overlap `w`, got overlapping views" },
    ],
  ],
  [
    chunkOutput,
    { q: ROWS.q, k: ROWS.k, vNew: v, h: states, G: sums },
    { chunkLength: 16, scale: 1 },
    [
      heads({ vNew: f32(2, 20, 3, 8) }),
      ...dims("q"),
      chunks,
      map,
      { options: { scale: Number.NEGATIVE_INFINITY }, message: "`scale` must be a finite number, got -Infinity" },
      { inputs: { k: f32(2, 20, 1, 16) }, message: "`k` must have shape [2, 20, 2, 16], got [2, 20, 1, 16]" },
      { inputs: { vNew: bf16(2, 20, 4, 8) }, message: "`vNew` must have dtype f32, got bf16" },
      {
        inputs: { h: f32(2, 2, 4, 16, 8) },
        message: "`h` must have shape [2, 2, 4, 8, 16], got [2, 2, 4, 16, 8]",
        alone: true,
      },
      G16,
      low,
      { inputs: { ...cu64.inputs, h: f32(2, 3, 4, 8, 16) }, message: cu64.message, alone: true },
      { inputs: { mask: i32(2, 20) }, message: "`mask` must have dtype u8, got i32" },
      { inputs: { o: bf16(2, 20, 4, 8) }, message: "`o` must have dtype f32, got bf16" },
      { inputs: { ...packedRows.inputs, h: f32(2, 3, 4, 8, 16) }, message: packedRows.message, alone: true },
      { inputs: { o: v }, message: "`o` must not overlap `vNew`, got overlapping views" },
    ],
  ],
];

for (const [op, inputs, options, mistakes] of STAGES)
  describe(`${(op as typeof chunkCumsum).op.name} refuses, in order,`, () =>
    refusesInOrder(device, op, { inputs, options }, mistakes));

describe("gatedDeltaRollback refuses, in order,", () => {
  const inputs = {
    logState: f32(2, 4, 8, 16),
    logKeys: f32(2, 3, 2, 16),
    logDeltas: f32(2, 3, 4, 8),
    logGates: f32(2, 3, 4),
    rejected: i32(2),
  };
  refusesInOrder(device, gatedDeltaRollback, { inputs, options: {} }, [
    heads({ logDeltas: f32(2, 3, 3, 8) }),
    { inputs: { logKeys: f32(2, 3, 2, 264) }, message: "`k` must have at most 256 elements per head (K), got 264" },
    { options: { gate: "log10" }, message: "`gate` must be one of ln, log2, linear, neg-ln, got log10" },
    { options: { gqa: "none" }, message: "`gqa` must be one of block, tiled, got none" },
    { options: { stateLayout: "vv" }, message: "`stateLayout` must be one of vk, kv, got vv" },
    { inputs: { logState: f32(2, 4, 16, 8) }, message: "`logState` must have shape [2, 4, 8, 16], got [2, 4, 16, 8]" },
    { inputs: { logKeys: bf16(2, 3, 2, 16) }, message: "`logKeys` must have dtype f32, got bf16" },
    { inputs: { logDeltas: f32(2, 2, 4, 8) }, message: "`logDeltas` must have shape [2, 3, 4, 8], got [2, 2, 4, 8]" },
    { inputs: { logGates: f32(2, 3, 4, 8) }, message: "`logGates` must have shape [2, 3, 4, 16], got [2, 3, 4, 8]" },
    { inputs: { rejected: i32(3) }, message: "`rejected` must have shape [2], got [3]" },
    {
      inputs: { finalState: f32(1, 4, 8, 16) },
      message: "`finalState` must have shape [2, 4, 8, 16], got [1, 4, 8, 16]",
    },
  ]);
});
