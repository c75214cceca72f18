// One row of x against tiles of W that are copied as a whole, on GPUs that copy by themselves: the bits of the kernel that
// every NVIDIA GPU has, wherever scales begin and rows end.
import { Device } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { quant4Library } from "../src/library.ts";
import { TILE_VARIANTS } from "../src/product_launch.ts";
import { quantizedMatvecKernel } from "../src/quantized_matmul.ts";
import { randomQuantized } from "./groups.ts";

const device = Device.open();
afterAll(() => device.dispose());
const has = device.library(quant4Library).has(quantizedMatvecKernel.name, TILE_VARIANTS[0] as string);

describe.skipIf(!has)(`one row of x against tiles of W${has ? "" : " (skipped: not on this device)"}`, () => {
  it.each([
    { rows: 64, cols: 256, groupSize: 64, dtype: "bf16", shift: 0 },
    { rows: 107, cols: 448, groupSize: 64, dtype: "f16", shift: 2 },
    { rows: 41, cols: 2688, groupSize: 128, dtype: "f32", shift: 3 },
    { rows: 5, cols: 64, groupSize: 64, dtype: "bf16", shift: 6 },
  ] as const)("[$rows, $cols], groups of $groupSize, $dtype", async ({ rows, cols, groupSize, dtype, shift }) => {
    const made = randomQuantized(1, rows, cols, { bits: 4, groupSize }, 3);
    const groups = (rows * cols) / groupSize;
    const shifted = (data: Float64Array) =>
      device.tensor(dtype, [groups + shift], [...Array(shift).fill(0), ...data]).view(shift, [groups]);
    const buffers = {
      x: device.tensor("bf16", [1, cols], new Random(4).normals(cols)),
      weight: device.tensor("u32", [rows, cols / 8], made.weight),
      scales: shifted(made.scales),
      biases: shifted(made.biases),
      bias: device.tensor("f32", [rows], new Random(5).normals(rows)),
    };
    const ones = { batch0: 1, batch1: 1, xStride0: 0, xStride1: 0, xStride2: 0, qStride0: 0, qStride1: 0, qStride2: 0 };
    const product = async (suffix: string, copied?: { scaleBytes: number }) => {
      const out = device.tensor("f32", [rows]);
      const encoder = device.encoder();
      encoder.dispatch(quantizedMatvecKernel, {
        op: "quantizedMatmul",
        variant: `bf16_${dtype}_f32_b4${suffix}`,
        buffers: { ...buffers, out },
        params: { m: 1, rows, cols, groupSize, biasDtype: 1, ...ones },
        sizes: { m: 1, rows, cols, groupSize, batch: 1, oneRow: true, copied },
      });
      await encoder.commit();
      return out.read();
    };
    expect(await product("_tile", { scaleBytes: dtype === "f32" ? 4 : 2 })).toEqual(await product(""));
  });
});
