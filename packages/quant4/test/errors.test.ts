import { Device, type Dtype, type Tensor } from "@mlxts/core";
import { refusalTests, type WrongCall } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { dequantize, type Quantized, quantize, quantizedEmbedding, quantizedMatmul } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());

const t = (dtype: Dtype, ...shape: number[]) => device.tensor(dtype, shape);
const q = (changes: object = {}): Quantized => ({
  weight: t("u32", 6, 16),
  scales: t("bf16", 6, 2),
  biases: t("bf16", 6, 2),
  bits: 4,
  groupSize: 64,
  mode: "affine",
  ...changes,
});
const x = () => t("f32", 3, 128);
const matmul =
  (inputs: object, options: object = {}) =>
  () => {
    quantizedMatmul(device.encoder(), { x: x(), q: q(), ...inputs }, options);
  };
const decode = (changes: object) => () => {
  dequantize(device.encoder(), { q: q(changes) });
};
const encode =
  (w: Tensor, options: object = {}) =>
  () => {
    quantize(device.encoder(), { w }, options);
  };
const embed = (inputs: object) => () => {
  quantizedEmbedding(device.encoder(), { ids: t("u32", 2), q: q(), ...inputs });
};

describe("errors, before anything is recorded", () => {
  const overlapping = t("f32", 600);
  refusalTests([
    [
      "mode",
      matmul({ q: q({ mode: "mxfp4" }) }),
      "quantizedMatmul: mode mxfp4 is not supported — mode affine is",
      "UnsupportedDtype",
    ],
    ["unknown mode", matmul({ q: q({ mode: "linear" }) }), "quantizedMatmul: `mode` must be one of affine, got linear"],
    [
      "3 bits",
      matmul({ q: q({ bits: 3 }) }),
      "quantizedMatmul: a width of 3 bits is not supported — bits 4, 8 are",
      "UnsupportedDtype",
    ],
    [
      "2 bits",
      matmul({ q: q({ bits: 2 }) }),
      "quantizedMatmul: a width of 2 bits is not supported — bits 4, 8 are",
      "UnsupportedDtype",
    ],
    [
      "5 bits, dequantize",
      decode({ bits: 5 }),
      "dequantize: a width of 5 bits is not supported — bits 2, 4, 8 are",
      "UnsupportedDtype",
    ],
    [
      "6 bits, quantize",
      encode(t("f32", 2, 64), { bits: 6 }),
      "quantize: a width of 6 bits is not supported — bits 2, 4, 8 are",
      "UnsupportedDtype",
    ],
    ["7 bits", decode({ bits: 7 }), "dequantize: `bits` must be one of 2, 4, 8, got 7"],
    [
      "nvfp4, embedding",
      embed({ q: q({ mode: "nvfp4" }) }),
      "quantizedEmbedding: mode nvfp4 is not supported — mode affine is",
      "UnsupportedDtype",
    ],
    [
      "group size",
      matmul({ q: q({ groupSize: 48 }) }),
      "quantizedMatmul: `groupSize` must be one of 32, 64, 128, got 48",
    ],
    [
      "group size, quantize",
      encode(t("f32", 2, 64), { groupSize: 16 }),
      "quantize: `groupSize` must be one of 32, 64, 128, got 16",
    ],
    ...[16, 0, 256].map(
      (groupSize): WrongCall => [
        `group size ${groupSize} and columns, quantize`,
        encode(t("f32", 2, 100), { groupSize }),
        `quantize: \`groupSize\` must be one of 32, 64, 128, got ${groupSize}`,
      ],
    ),
    [
      "bits and columns, quantize",
      encode(t("f32", 2, 100), { bits: 7 }),
      "quantize: `bits` must be one of 2, 4, 8, got 7",
    ],
    [
      "group size and shapes",
      matmul({ x: t("f32", 3, 100), q: q({ groupSize: 0, scales: t("bf16", 6, 3) }) }),
      "quantizedMatmul: `groupSize` must be one of 32, 64, 128, got 0",
    ],
    [
      "record",
      matmul({ q: undefined }),
      "quantizedMatmul: `q` must be an object with weight, scales, biases, got undefined",
      "TypeError",
    ],
    [
      "weight missing",
      matmul({ q: q({ weight: undefined }) }),
      "quantizedMatmul: `weight` must be a Tensor, got undefined",
      "TypeError",
    ],
    [
      "weight dtype",
      matmul({ q: q({ weight: t("i32", 6, 16) }) }),
      "quantizedMatmul: `weight` must have dtype u32, got i32",
    ],
    ["weight rank", decode({ weight: t("u32", 16) }), "dequantize: `weight` must have at least 2 dimensions, got [16]"],
    [
      "weight columns",
      decode({ weight: t("u32", 6, 12) }),
      "dequantize: `weight` must have a last dimension that is a multiple of 8 (groupSize 64, 4 bits), got [6, 12]",
    ],
    [
      "scales dtype",
      decode({ scales: t("u32", 6, 2) }),
      "dequantize: `scales` must have dtype f32 or f16 or bf16, got u32",
    ],
    ["biases dtype", decode({ biases: t("f32", 6, 2) }), "dequantize: `biases` must have dtype bf16, got f32"],
    [
      "scales rows",
      decode({ scales: t("bf16", 5, 2) }),
      "dequantize: `scales` must have shape [6, 2] (groupSize 64, 4 bits), got [5, 2]",
    ],
    [
      "biases shape",
      decode({ biases: t("bf16", 6, 3) }),
      "dequantize: `biases` must have shape [6, 2] (groupSize 64, 4 bits), got [6, 3]",
    ],
    [
      "8 bits for 4",
      decode({ bits: 8 }),
      "dequantize: `scales` must have shape [6, 1] (groupSize 64, 8 bits), got [6, 2]",
    ],
    ["w dtype", encode(t("u32", 2, 64)), "quantize: `w` must have dtype f32 or f16 or bf16, got u32"],
    [
      "w columns",
      encode(t("f32", 2, 96)),
      "quantize: `w` must have a last dimension that is a multiple of 64 (groupSize), got [2, 96]",
    ],
    ["w rank", encode(t("f32", 64)), "quantize: `w` must have shape [..., rows, cols], got [64]"],
    [
      "variant",
      encode(t("f32", 2, 64), { variant: "metal" }),
      "quantize: `variant` must be one of cpu, gpu, got metal",
    ],
    [
      "x columns",
      matmul({ x: t("f32", 3, 64) }),
      "quantizedMatmul: `x` must have a last dimension of 128 (cols), got [3, 64]",
    ],
    [
      "x rows",
      matmul({}, { transpose: false }),
      "quantizedMatmul: `x` must have a last dimension of 6 (rows, as transpose is false), got [3, 128]",
    ],
    ["x dtype", matmul({ x: t("i32", 3, 128) }), "quantizedMatmul: `x` must have dtype f32 or f16 or bf16, got i32"],
    [
      "batch",
      matmul({
        x: t("f32", 4, 3, 128),
        q: q({ weight: t("u32", 2, 6, 16), scales: t("bf16", 2, 6, 2), biases: t("bf16", 2, 6, 2) }),
      }),
      "quantizedMatmul: `x` must have leading dimensions that broadcast with [2], got [4, 3, 128]",
    ],
    ["out shape", matmul({ out: t("f32", 3, 5) }), "quantizedMatmul: `out` must have shape [3, 6], got [3, 5]"],
    ["out dtype", matmul({ out: t("f16", 3, 6) }), "quantizedMatmul: `out` must have dtype f32, got f16"],
    ["outDtype", matmul({}, { outDtype: "u32" }), "quantizedMatmul: `outDtype` must be one of f32, f16, bf16, got u32"],
    [
      "approximate",
      matmul({}, { approximate: "int4-activations" }),
      "quantizedMatmul: `approximate` must be one of int8-activations, got int4-activations",
    ],
    [
      "approximate, transpose false",
      matmul({ x: t("f32", 3, 6) }, { approximate: "int8-activations", transpose: false }),
      "quantizedMatmul: `approximate` must be left out where transpose is false, got int8-activations — groups lie along the columns of W only",
    ],
    ...(device.gpu
      ? [
          [
            "approximate on a GPU",
            matmul({}, { approximate: "int8-activations" }),
            "quantizedMatmul: `approximate` must be left out on this device, got int8-activations — its products are exact, only those of a CPU may be others",
          ] as WrongCall,
        ]
      : []),
    ["bias shape", matmul({ bias: t("f32", 5) }), "quantizedMatmul: `bias` must have shape [6], got [5]"],
    [
      "bias dtype",
      matmul({ bias: t("u32", 6) }),
      "quantizedMatmul: `bias` must have dtype f32 or f16 or bf16, got u32",
    ],
    ["transpose", matmul({}, { transpose: 1 }), "quantizedMatmul: `transpose` must be a boolean, got 1", "TypeError"],
    [
      "out over x",
      matmul({ x: overlapping.view(0, [3, 128]), out: overlapping.view(380, [3, 6]) }),
      "quantizedMatmul: `out` must not overlap `x`, got overlapping views",
    ],
    ["ids dtype", embed({ ids: t("f32", 2) }), "quantizedEmbedding: `ids` must have dtype u32 or i32, got f32"],
    [
      "stacked embedding",
      embed({ q: q({ weight: t("u32", 2, 6, 16), scales: t("bf16", 2, 6, 2), biases: t("bf16", 2, 6, 2) }) }),
      "quantizedEmbedding: `weight` must have 2 dimensions, got [2, 6, 16]",
    ],
  ]);
});

describe("errors of the data", () => {
  it.each<[bad: number, at: number, message: string]>([
    [Number.NaN, 1300, "quantize: `w` must be finite, got NaN at index 1300 (row 10, column 20)"],
    [Number.POSITIVE_INFINITY, 64, "quantize: `w` must be finite, got Infinity at index 64 (row 0, column 64)"],
    [Number.NEGATIVE_INFINITY, 6399, "quantize: `w` must be finite, got -Infinity at index 6399 (row 49, column 127)"],
  ])("quantize: %d", async (bad, at, message) => {
    for (const dtype of ["f32", "f16", "bf16"] as const) {
      const data = new Float64Array(6400);
      // The first one is named, whichever thread meets one first.
      data[at] = bad;
      data[6399] = bad;
      const encoder = device.encoder();
      quantize(encoder, { w: device.tensor(dtype, [50, 128], data) });
      await expect(encoder.commit()).rejects.toMatchObject({ code: "InvalidArgument", message });
    }
  });

  it.each<[dtype: "u32" | "i32", bad: number, message: string]>([
    ["u32", 6, "quantizedEmbedding: `ids` must be < 6, got 6 at index 37"],
    ["i32", 6, "quantizedEmbedding: `ids` must be from 0 to 5, got 6 at index 37"],
    ["i32", -1, "quantizedEmbedding: `ids` must be from 0 to 5, got -1 at index 37"],
  ])("quantizedEmbedding: %s %d", async (dtype, bad, message) => {
    const ids = new Float64Array(100);
    ids[37] = bad;
    ids[99] = 1000;
    const encoder = device.encoder();
    quantizedEmbedding(encoder, { ids: device.tensor(dtype, [100], ids), q: q() });
    await expect(encoder.commit()).rejects.toMatchObject({ code: "InvalidArgument", message });
  });
});
