// One row of x against tiles of W, on GPUs that copy by themselves: threadgroups that take several tiles, for which the
// op's own choice needs larger matrices than a simulator has time for. The kernel that every NVIDIA GPU has gives the
// same bits.
import { Device, type Tensor } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { quant4Library } from "../src/library.ts";
import { TILES_VARIANTS } from "../src/product_launch.ts";
import { quantizedMatvecKernel } from "../src/quantized_matmul.ts";
import { randomQuantized } from "./groups.ts";

const device = Device.open();
afterAll(() => device.dispose());
const has = device.library(quant4Library).has(quantizedMatvecKernel.name, TILES_VARIANTS[0] as string);

describe.skipIf(!has)(`one row of x against tiles${has ? "" : " (skipped: not on this device)"}`, () => {
  it.each([
    { rows: 64, cols: 256, groupSize: 64, threadgroups: 1, dtype: "bf16", shift: 0 },
    { rows: 107, cols: 448, groupSize: 64, threadgroups: 2, dtype: "f16", shift: 2 },
    { rows: 79, cols: 2688, groupSize: 128, threadgroups: 3, dtype: "f32", shift: 3 },
    { rows: 33, cols: 1024, groupSize: 64, threadgroups: 3, dtype: "bf16", shift: 6 },
  ] as const)("[$rows, $cols], groups of $groupSize, $threadgroups threadgroups, $dtype", async (one) => {
    const { rows, cols, groupSize, threadgroups, dtype, shift } = one;
    const made = randomQuantized(1, rows, cols, { bits: 4, groupSize }, 3);
    const groups = (rows * cols) / groupSize;
    /** Scales need not begin at a whole piece. */
    const shifted = (data: ArrayLike<number>) =>
      device.tensor(dtype, [groups + shift], [...Array(shift).fill(0), ...Array.from(data)]).view(shift, [groups]);
    const buffers = {
      x: device.tensor("bf16", [1, cols], new Random(4).normals(cols)),
      weight: device.tensor("u32", [rows, cols / 8], made.weight),
      scales: shifted(made.scales),
      biases: shifted(made.biases),
      bias: device.tensor("f32", [rows], new Random(5).normals(rows)),
    };
    const sizes = { m: 1, rows, cols, groupSize, batch: 1, oneRow: true };
    const ones = { batch0: 1, batch1: 1, xStride0: 0, xStride1: 0, xStride2: 0, qStride0: 0, qStride1: 0, qStride2: 0 };
    const product = async (suffix: string, more: object): Promise<Tensor<"f32">> => {
      const out = device.tensor("f32", [rows]);
      const encoder = device.encoder();
      encoder.dispatch(quantizedMatvecKernel, {
        op: "quantizedMatmul",
        variant: `bf16_${dtype}_f32_b4${suffix}`,
        buffers: { ...buffers, out },
        params: { m: 1, rows, cols, groupSize, biasDtype: 1, ...ones },
        sizes: { ...sizes, ...more },
      });
      await encoder.commit();
      return out;
    };
    const inTiles = { scaleBytes: dtype === "f32" ? 4 : 2, threadgroups };
    const [tiles, lanes] = [await product("_tiles", { inTiles }), await product("", {})];
    expect(await tiles.read()).toEqual(await lanes.read());
  });
});
