// gatherQuantizedMatmulSwiglu: what it refuses, and what fails when the data are wrong.
import { Device, type Dtype } from "@mlxts/core";
import { DEVICES } from "@mlxts/test-kit/devices";
import { pairOrderOn } from "@mlxts/test-kit/gathered_pairs";
import { refusalTests } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { gatherQuantizedMatmulSwiglu, type Quantized } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

const [EXPERTS, ROWS, COLS] = [5, 6, 128];
const t = (dtype: Dtype, ...shape: number[]) => device.tensor(dtype, shape);
function stack(experts: number, rows: number, cols: number, changes: object = {}, on: Device = device): Quantized {
  return {
    weight: on.tensor("u32", [experts, rows, cols / 8]),
    scales: on.tensor("bf16", [experts, rows, cols / 64]),
    biases: on.tensor("bf16", [experts, rows, cols / 64]),
    bits: 4,
    groupSize: 64,
    mode: "affine",
    ...changes,
  };
}
const call =
  (inputs: object, options: object = {}) =>
  () => {
    const gate = stack(EXPERTS, ROWS, COLS);
    const up = stack(EXPERTS, ROWS, COLS);
    const given = { x: t("f32", 3, 1, 1, COLS), gate, up, rhsIndices: t("u32", 3, 2), ...inputs };
    gatherQuantizedMatmulSwiglu(device.encoder(), given, options);
  };

describe("gatherQuantizedMatmulSwiglu refuses", () => {
  const name = "gatherQuantizedMatmulSwiglu";
  const [order, offsets] = [t("i32", 6), t("i32", EXPERTS + 1)];
  const one = { weight: t("u32", 6, 16), scales: t("bf16", 6, 2), biases: t("bf16", 6, 2) };
  refusalTests([
    [
      "no up",
      call({ up: undefined }),
      `${name}: \`up\` must be an object with weight, scales, biases, got undefined`,
      "TypeError",
    ],
    [
      "one matrix",
      call({ up: { ...stack(1, 1, COLS), ...one } }),
      `${name}: \`up.weight\` must have 3 dimensions [E, rows, words], got [6, 16]`,
    ],
    [
      "fewer matrices",
      call({ up: stack(4, ROWS, COLS) }),
      `${name}: \`up.weight\` must have 5 matrices, as \`gate\` has, got [4, 6, 16]`,
    ],
    [
      "more rows",
      call({ up: stack(EXPERTS, 7, COLS) }),
      `${name}: \`up.weight\` must have 6 rows, as \`gate\` has, got [5, 7, 16]`,
    ],
    [
      "other columns",
      call({ up: stack(EXPERTS, ROWS, 64) }),
      `${name}: \`up.weight\` must have 128 columns, as \`gate\` has, got 64`,
    ],
    [
      "columns of x",
      call({ x: t("f32", 3, 1, 1, 64) }),
      `${name}: \`x\` must have a last dimension of 128 (cols), got [3, 1, 1, 64]`,
    ],
    [
      "other bits",
      call({ up: stack(EXPERTS, ROWS, COLS, { bits: 8, weight: t("u32", EXPERTS, ROWS, COLS / 4) }) }),
      `${name}: \`up.bits\` must be 4, as \`gate\` has, got 8`,
    ],
    [
      "scales of another dtype",
      call({ up: stack(EXPERTS, ROWS, COLS, { scales: t("f32", 5, 6, 2), biases: t("f32", 5, 6, 2) }) }),
      `${name}: \`up.scales\` must have dtype bf16, as \`gate.scales\` has, got f32`,
    ],
    [
      "2 bits",
      call({ gate: stack(EXPERTS, ROWS, COLS, { bits: 2 }) }),
      `${name}: a width of 2 bits is not supported — bits 4, 8 are`,
      "UnsupportedDtype",
    ],
    [
      "tokens",
      call({ x: t("f32", 4, 1, 1, COLS) }),
      `${name}: \`rhsIndices\` must broadcast with the leading dimensions of \`x\` [4, 1], got [3, 2]`,
    ],
    ["order alone", call({ order }), `${name}: \`offsets\` must be given with \`order\`, got undefined`],
    [
      "an order of more rows",
      call({ x: t("f32", 3, 1, 2, COLS), order, offsets }),
      `${name}: \`x\` must have one row to a matrix (M = 1) with \`order\`, got [3, 1, 2, 128]`,
    ],
    [
      "shape of out",
      call({ out: t("f32", 3, 2, ROWS) }),
      `${name}: \`out\` must have shape [3, 2, 1, 6], got [3, 2, 6]`,
    ],
    ["outDtype", call({}, { outDtype: "u32" }), `${name}: \`outDtype\` must be one of f32, f16, bf16, got u32`],
  ]);
});

describe.each(DEVICES)("wrong data of gatherQuantizedMatmulSwiglu on %s", (_, open) => {
  const on: Device = open();
  afterAll(() => on.dispose());
  const TOKENS = 40;
  const right = Array.from({ length: TOKENS * 2 }, (_, pair) => (pair * 7) % EXPERTS);

  it.each<[string, { at: number; value: number; m?: number; ordered?: boolean; left?: boolean }, string]>([
    ["indices", { at: 13, value: 5 }, "`rhsIndices` must be from 0 to 4, got 5 at position 13"],
    ["negative indices", { at: 79, value: -1 }, "`rhsIndices` must be from 0 to 4, got -1 at position 79"],
    ["indices of many rows", { at: 3, value: 9, m: 12 }, "`rhsIndices` must be from 0 to 4, got 9 at position 3"],
    ["indices in order", { at: 40, value: 6, ordered: true }, "`rhsIndices` must be from 0 to 4, got 6 at position 40"],
    ["matrices of x", { at: 7, value: 40, left: true }, "`lhsIndices` must be from 0 to 39, got 40 at position 7"],
  ])("%s", async (_name, { at, value, m = 1, ordered, left }, text) => {
    const indices = (data: number[]) => on.tensor("i32", [TOKENS, 2], data);
    const lefts = right.map((_, pair) => pair % TOKENS);
    const encoder = on.encoder();
    gatherQuantizedMatmulSwiglu(encoder, {
      x: on.tensor("bf16", left ? [TOKENS, m, COLS] : [TOKENS, 1, m, COLS]),
      gate: stack(EXPERTS, ROWS, COLS, {}, on),
      up: stack(EXPERTS, ROWS, COLS, {}, on),
      rhsIndices: indices(left ? right : right.with(at, value)),
      ...(left && { lhsIndices: indices(lefts.with(at, value)) }),
      ...(ordered && pairOrderOn(on, right, EXPERTS)),
    });
    await expect(encoder.commit()).rejects.toMatchObject({
      code: "InvalidArgument",
      message: `gatherQuantizedMatmulSwiglu: ${text}`,
    });
  });
});
