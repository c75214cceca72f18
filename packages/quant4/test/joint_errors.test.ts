// What products of one x with several matrices refuse.
import { Device, type Dtype } from "@mlxts/core";
import { changeLimits } from "@mlxts/core/testing";
import { refusalTests } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { multiQuantizedMatmul, type Quantized, quantizedMatmulSwiglu } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

const t = (dtype: Dtype, ...shape: number[]) => device.tensor(dtype, shape);
const matrix = (rows: number, changes: object = {}): Quantized => ({
  weight: t("u32", rows, 16),
  scales: t("bf16", rows, 2),
  biases: t("bf16", rows, 2),
  bits: 4,
  groupSize: 64,
  mode: "affine",
  ...changes,
});
const WIDE = { weight: t("u32", 6, 32), scales: t("bf16", 6, 4), biases: t("bf16", 6, 4) };
const EIGHT = { weight: t("u32", 6, 32), bits: 8 };
const SMALL_GROUPS = { scales: t("bf16", 6, 4), biases: t("bf16", 6, 4), groupSize: 32 };
const STACK = { weight: t("u32", 2, 6, 16), scales: t("bf16", 2, 6, 2), biases: t("bf16", 2, 6, 2) };
const IN_F16 = { scales: t("f16", 6, 2), biases: t("f16", 6, 2) };

const gated =
  (inputs: object, options: object = {}) =>
  () => {
    quantizedMatmulSwiglu(
      device.encoder(),
      { x: t("f32", 3, 128), gate: matrix(6), up: matrix(6), ...inputs },
      options,
    );
  };
const multi =
  (inputs: object, options: object = {}) =>
  () => {
    const given = { x: t("f32", 3, 128), a: matrix(6), b: matrix(7), ...inputs };
    multiQuantizedMatmul(device.encoder(), given as never, options);
  };

describe("quantizedMatmulSwiglu refuses", () => {
  const name = "quantizedMatmulSwiglu";
  refusalTests([
    [
      "no gate",
      gated({ gate: undefined }),
      `${name}: \`gate\` must be an object with weight, scales, biases, got undefined`,
      "TypeError",
    ],
    [
      "no up",
      gated({ up: undefined }),
      `${name}: \`up\` must be an object with weight, scales, biases, got undefined`,
      "TypeError",
    ],
    [
      "a part missing",
      gated({ up: matrix(6, { biases: undefined }) }),
      `${name}: \`up.biases\` must be a Tensor, got undefined`,
      "TypeError",
    ],
    [
      "weight dtype",
      gated({ up: matrix(6, { weight: t("i32", 6, 16) }) }),
      `${name}: \`up.weight\` must have dtype u32, got i32`,
    ],
    [
      "2 bits",
      gated({ gate: matrix(6, { bits: 2 }) }),
      `${name}: a width of 2 bits is not supported — bits 4, 8 are`,
      "UnsupportedDtype",
    ],
    [
      "mode",
      gated({ up: matrix(6, { mode: "mxfp4" }) }),
      `${name}: mode mxfp4 is not supported — mode affine is`,
      "UnsupportedDtype",
    ],
    ["unknown bits", gated({ up: matrix(6, { bits: 7 }) }), `${name}: \`up.bits\` must be one of 2, 4, 8, got 7`],
    ["other rows", gated({ up: matrix(7) }), `${name}: \`up.weight\` must have 6 rows, as \`gate\` has, got 7`],
    [
      "other columns",
      gated({ up: matrix(6, WIDE) }),
      `${name}: \`up.weight\` must have 128 columns, as \`gate\` has, got 256`,
    ],
    ["other bits", gated({ up: matrix(6, EIGHT) }), `${name}: \`up.bits\` must be 4, as \`gate\` has, got 8`],
    [
      "other groups",
      gated({ up: matrix(6, SMALL_GROUPS) }),
      `${name}: \`up.groupSize\` must be 64, as \`gate\` has, got 32`,
    ],
    [
      "other scales",
      gated({ up: matrix(6, IN_F16) }),
      `${name}: \`up.scales\` must have dtype bf16, as \`gate.scales\` has, got f16`,
    ],
    ["a stack", gated({ gate: matrix(6, STACK) }), `${name}: \`gate.weight\` must have 2 dimensions, got [2, 6, 16]`],
    [
      "x columns",
      gated({ x: t("f32", 3, 64) }),
      `${name}: \`x\` must have a last dimension of 128 (cols), got [3, 64]`,
    ],
    ["x dtype", gated({ x: t("u32", 3, 128) }), `${name}: \`x\` must have dtype f32 or f16 or bf16, got u32`],
    ["out shape", gated({ out: t("f32", 3, 5) }), `${name}: \`out\` must have shape [3, 6], got [3, 5]`],
    ["out dtype", gated({ out: t("f32", 3, 6) }, { outDtype: "f16" }), `${name}: \`out\` must have dtype f16, got f32`],
    ["outDtype", gated({}, { outDtype: "u32" }), `${name}: \`outDtype\` must be one of f32, f16, bf16, got u32`],
  ]);
});

describe("multiQuantizedMatmul refuses", () => {
  const name = "multiQuantizedMatmul";
  refusalTests([
    [
      "no a",
      multi({ a: undefined }),
      `${name}: \`a\` must be an object with weight, scales, biases, got undefined`,
      "TypeError",
    ],
    [
      "no b",
      multi({ b: undefined }),
      `${name}: \`b\` must be an object with weight, scales, biases, got undefined`,
      "TypeError",
    ],
    [
      "c without its product's matrix",
      multi({ outC: true }),
      `${name}: \`c\` must be given with \`outC\`, got undefined`,
    ],
    [
      "d without its product's matrix",
      multi({ c: matrix(6), outD: true }),
      `${name}: \`d\` must be given with \`outD\`, got undefined`,
    ],
    [
      "2 bits",
      multi({ b: matrix(6, { bits: 2 }) }),
      `${name}: a width of 2 bits is not supported — bits 4, 8 are`,
      "UnsupportedDtype",
    ],
    ["unknown bits", multi({ c: matrix(6, { bits: 7 }) }), `${name}: \`c.bits\` must be one of 2, 4, 8, got 7`],
    [
      "other columns",
      multi({ b: matrix(6, WIDE) }),
      `${name}: \`b.weight\` must have 128 columns, as \`a\` has, got 256`,
    ],
    ["other bits", multi({ c: matrix(6, EIGHT) }), `${name}: \`c.bits\` must be 4, as \`a\` has, got 8`],
    [
      "other groups",
      multi({ d: matrix(6, SMALL_GROUPS) }),
      `${name}: \`d.groupSize\` must be 64, as \`a\` has, got 32`,
    ],
    [
      "other scales",
      multi({ d: matrix(6, IN_F16) }),
      `${name}: \`d.scales\` must have dtype bf16, as \`a.scales\` has, got f16`,
    ],
    ["a stack", multi({ b: matrix(6, STACK) }), `${name}: \`b.weight\` must have 2 dimensions, got [2, 6, 16]`],
    [
      "x columns",
      multi({ x: t("f32", 3, 64) }),
      `${name}: \`x\` must have a last dimension of 128 (cols), got [3, 64]`,
    ],
    ["out shape", multi({ outB: t("f32", 3, 6) }), `${name}: \`outB\` must have shape [3, 7], got [3, 6]`],
    ["out dtype", multi({ outA: t("f16", 3, 6) }), `${name}: \`outA\` must have dtype f32, got f16`],
    ["outDtype", multi({}, { outDtype: "u32" }), `${name}: \`outDtype\` must be one of f32, f16, bf16, got u32`],
  ]);

  it("nothing else: d without c, and matrices whose products nobody asks for", () => {
    const { outC, outD } = multiQuantizedMatmul(device.encoder(), {
      ...{ x: t("f32", 3, 128), a: matrix(6), b: matrix(7) },
      ...{ c: matrix(8), d: matrix(9), outD: true },
    });
    expect(outC).toBeUndefined();
    expect(outD.shape).toEqual([3, 9]);
  });
});

it.skipIf(device.gpu)("rows of x that fit no threadgroup are refused", () => {
  const small = Device.open("cpu");
  const { maxThreadgroupBytes } = small.limits;
  changeLimits(small, { maxThreadgroupBytes: 16_384 });
  const q: Quantized = {
    weight: small.tensor("u32", [3, 512]),
    scales: small.tensor("f32", [3, 64]),
    biases: small.tensor("f32", [3, 64]),
    bits: 4,
    groupSize: 64,
    mode: "affine",
  };
  const x = small.tensor("f32", [2, 4096]);
  const rule = "`weight` must have rows that fit the 16384 bytes of a threadgroup, got 4096 columns";
  const encoder = small.encoder();
  expect(() => quantizedMatmulSwiglu(encoder, { x, gate: q, up: q })).toThrow(`quantizedMatmulSwiglu: ${rule}`);
  expect(() => multiQuantizedMatmul(encoder, { x, a: q, b: q })).toThrow(`multiQuantizedMatmul: ${rule}`);
  changeLimits(small, { maxThreadgroupBytes });
  small.dispose();
});
