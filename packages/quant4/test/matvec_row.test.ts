// One row of x in whole numbers against bytes of codes, on NVIDIA's GPUs: within the bars wherever scales begin and rows
// end, however large x is, and with the same bits for a matrix alone and among others.
import { Device, type Dtype } from "@mlxts/core";
import { BARS, compare, Random, sameBytes, within } from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { gateProductsKernel } from "../src/gate_products.ts";
import { multiQuantizedMatmul, type Quantized, quantizedMatmul, quantizedMatmulSwiglu } from "../src/index.ts";
import { quant4Library } from "../src/library.ts";
import { ROW_VARIANTS } from "../src/product_launch.ts";
import { quantizedMatvecKernel } from "../src/quantized_matmul.ts";
import { decodeExactly, productReference } from "../src/reference.ts";
import { randomQuantized } from "./groups.ts";

const device = Device.open();
afterAll(() => device.dispose());
const has = device.library(quant4Library).has(quantizedMatvecKernel.name, ROW_VARIANTS[0] as string);

interface Matrix {
  rows: number;
  cols: number;
  groupSize: 64 | 128;
  dtype: "f32" | "f16" | "bf16";
  /** Numbers before the first scale. */
  shift?: number;
}

function matrix({ rows, cols, groupSize, dtype, shift = 0 }: Matrix, seed: number): Quantized {
  const made = randomQuantized(1, rows, cols, { bits: 4, groupSize }, seed);
  const groups = (rows * cols) / groupSize;
  const shifted = (data: Float64Array) =>
    device
      .tensor(dtype as Dtype, [groups + shift], [...Array(shift).fill(0), ...data])
      .view(shift, [rows, cols / groupSize]);
  const weight = device.tensor("u32", [rows, cols / 8], made.weight);
  const [scales, biases] = [shifted(made.scales), shifted(made.biases)];
  return { weight, scales, biases, bits: 4, groupSize, mode: "affine" };
}

async function decoded(q: Quantized): Promise<Float64Array> {
  const words = await q.weight.readNumbers();
  return decodeExactly(words, await q.scales.readNumbers(), await q.biases.readNumbers(), q);
}

describe.skipIf(!has)(`one row of x${has ? "" : " (skipped: not on this device)"}`, () => {
  const { R } = BARS;

  it.each([
    { rows: 64, cols: 256, groupSize: 64, dtype: "bf16" },
    { rows: 107, cols: 768, groupSize: 64, dtype: "f16", shift: 4 },
    { rows: 41, cols: 2816, groupSize: 128, dtype: "f32", shift: 2 },
    { rows: 5, cols: 512, groupSize: 128, dtype: "bf16", shift: 6 },
    { rows: 5, cols: 512, groupSize: 64, dtype: "bf16", shift: 2 },
    { rows: 4243, cols: 256, groupSize: 64, dtype: "f32" },
    { rows: 2120, cols: 2304, groupSize: 64, dtype: "bf16" },
    { rows: 40, cols: 9216, groupSize: 64, dtype: "bf16" },
    { rows: 17, cols: 16384, groupSize: 128, dtype: "f32" },
  ] as const)("[$rows, $cols], groups of $groupSize, $dtype", async (setting) => {
    const { rows, cols } = setting;
    const q = matrix(setting, 3);
    const x = device.tensor("bf16", [1, cols], new Random(4).normals(cols));
    const encoder = device.encoder();
    const out = quantizedMatmul(encoder, { x, q }, { outDtype: "f32" });
    await encoder.commit();
    const expected = productReference(await x.readNumbers(), await decoded(q), rows, cols, true);
    const compared = compare(await out.readNumbers(), expected);
    expect(within(compared, R.f32, R.spread), `${compared.ratio}`).toBe(true);
  });

  it.each([-133, -126, -120, -60, 60, 118])("x about 2^%i, and zeros", async (exponent) => {
    const [rows, cols] = [32, 512];
    const q = matrix({ rows, cols, groupSize: 64, dtype: "f32" }, 5);
    const numbers = new Random(6).normals(cols).map((v, i) => (i < 64 || i % 3 === 0 ? 0 : v * 2 ** exponent));
    const x = device.tensor("bf16", [1, cols], numbers);
    const encoder = device.encoder();
    const out = quantizedMatmul(encoder, { x, q }, { outDtype: "f32" });
    await encoder.commit();
    const scaled = (data: Float64Array) => data.map((v) => v * 2 ** -exponent);
    const expected = productReference(await x.readNumbers(), await decoded(q), rows, cols, true);
    const compared = compare(scaled(await out.readNumbers()), scaled(expected));
    // The last digits of f32 count 2^-149.
    const bar = Math.max(R.f32, 2 ** (-147 - exponent));
    expect(within(compared, bar, R.spread), `${compared.ratio}`).toBe(true);
  });

  it.each([Number.NaN, Number.POSITIVE_INFINITY])("x with %f", async (wrong) => {
    const q = matrix({ rows: 48, cols: 512, groupSize: 64, dtype: "bf16" }, 7);
    const numbers = new Random(8).normals(512);
    numbers[301] = wrong;
    const encoder = device.encoder();
    const out = quantizedMatmul(encoder, { x: device.tensor("bf16", [1, 512], numbers), q });
    await encoder.commit();
    expect((await out.readNumbers()).some(Number.isFinite)).toBe(false);
  });

  it("has the same bits whatever other matrices are there", async () => {
    const setting = { cols: 1280, groupSize: 64, dtype: "bf16" } as const;
    const [a, b, c, d] = [2064, 16, 40, 2200].map((rows, i) => matrix({ ...setting, rows }, 10 + i)) as [
      Quantized,
      Quantized,
      Quantized,
      Quantized,
    ];
    const x = device.tensor("bf16", [1, 1280], new Random(9).normals(1280));
    const encoder = device.encoder();
    const all = multiQuantizedMatmul(encoder, { x, a, b, c, d, outC: true, outD: true });
    const each = [a, b, c, d].map((q) => quantizedMatmul(encoder, { x, q }));
    const up = matrix({ ...setting, rows: 40 }, 20);
    const gated = quantizedMatmulSwiglu(encoder, { x, gate: c, up });
    const out = device.tensor("bf16", [1, 40]);
    encoder.dispatch(gateProductsKernel, {
      op: "swiglu",
      variant: "bf16",
      buffers: { gates: each[2] as typeof out, ups: quantizedMatmul(encoder, { x, q: up }), out },
      params: {},
      sizes: { size: 40 },
    });
    await encoder.commit();
    expect(sameBytes(await gated.read(), await out.read())).toBe(true);
    for (const [i, out] of [all.outA, all.outB, all.outC, all.outD].entries())
      expect(sameBytes(await out.read(), await (each[i] as typeof out).read()), `${i}`).toBe(true);
  });
});
