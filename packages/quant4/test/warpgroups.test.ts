// Tiles of products with many rows of x on GPUs whose warpgroups multiply; the op's own choice needs larger products for
// some of them than a simulator has time for.
import { Device } from "@mlxts/core";
import { BARS, compare, Random, within } from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { quant4Library } from "../src/library.ts";
import { WARPGROUP_TILES, WARPGROUP_VARIANTS, warpgroupTileFor } from "../src/product_launch.ts";
import { quantizedMatmulKernel } from "../src/quantized_matmul.ts";
import { decodeExactly, productReference } from "../src/reference.ts";
import { randomQuantized } from "./groups.ts";

const device = Device.open();
afterAll(() => device.dispose());
const has = device.library(quant4Library).has(quantizedMatmulKernel.name, WARPGROUP_VARIANTS[0] as string);

describe.skipIf(!has)(`products of warpgroups${has ? "" : " (skipped: not on this device)"}`, () => {
  it.each(
    WARPGROUP_TILES.flatMap((tile) => [
      { tile, m: 2 * tile.m + 17, rows: 2 * tile.rows + 6, cols: 1024, groupSize: 64, mean: 0 },
      { tile, m: 5, rows: tile.rows - 3, cols: 768, groupSize: 128, mean: 4 },
    ]),
  )("$tile.rows rows of W, $tile.m of x: m $m [$rows, $cols], groups of $groupSize", async (one) => {
    const { tile, m, rows, cols, groupSize, mean } = one;
    const setting = { bits: 4, groupSize, mode: "affine" } as const;
    const made = randomQuantized(1, rows, cols, setting, 3);
    const random = new Random(4);
    const unit = 1 / Math.sqrt(cols * (1 + mean * mean));
    const buffers = {
      x: device.tensor("bf16", [m, cols], random.normals(m * cols, unit, mean * unit)),
      weight: device.tensor("u32", [rows, cols / 8], made.weight),
      scales: device.tensor("bf16", [rows, cols / groupSize], made.scales),
      biases: device.tensor("bf16", [rows, cols / groupSize], made.biases),
      bias: device.tensor("f32", [rows], random.normals(rows)),
      // Rows of an odd number of elements do not begin at whole pairs.
      out: device.tensor("bf16", [m, rows]),
    };
    const encoder = device.encoder();
    const ones = { batch0: 1, batch1: 1, xStride0: 0, xStride1: 0, xStride2: 0, qStride0: 0, qStride1: 0, qStride2: 0 };
    encoder.dispatch(quantizedMatmulKernel, {
      op: "quantizedMatmul",
      variant: `bf16_bf16_bf16_b4_${tile.rows}x${tile.m}`,
      buffers,
      params: { m, rows, cols, groupSize, biasDtype: 1, ...ones },
      sizes: { m, rows, cols, groupSize, batch: 1, mBlock: 0, tile },
    });
    await encoder.commit();
    const [x, scales, biases, bias] = await Promise.all(
      [buffers.x, buffers.scales, buffers.biases, buffers.bias].map((tensor) => tensor.readNumbers()),
    );
    const weights = decodeExactly(made.weight, scales as Float64Array, biases as Float64Array, setting);
    const expected = productReference(x as Float64Array, weights, rows, cols, true).map(
      (v, i) => v + ((bias as Float64Array)[i % rows] as number),
    );
    const { R } = BARS;
    expect(within(compare(await buffers.out.readNumbers(), expected), R.bf16, R.spread)).toBe(true);
  });
});

describe("the tile of a product", () => {
  const at = (byteOffset: number) => ({ byteOffset }) as never;
  const tensors = (byteOffset = 0) => ({ x: at(0), weight: at(0), scales: at(0), biases: at(byteOffset) });
  const sizes = (m: number, rows: number, cols: number, groupSize = 64) => ({ m, rows, cols, groupSize, batch: 1 });
  const chosen = (...[m, rows, cols, groupSize]: Parameters<typeof sizes>) =>
    warpgroupTileFor("bf16_bf16_bf16_b4", sizes(m, rows, cols, groupSize), tensors(), () => true)?.variant.slice(18);

  it("is that which leaves the fewest multiprocessors idle", () => {
    expect(chosen(512, 4096, 4096)).toBe("128x128");
    expect(chosen(512, 2560, 9216)).toBe("128x96");
    expect(chosen(512, 6144, 1024)).toBe("128x128");
    expect(chosen(512, 2048, 1024)).toBe("128x64");
    expect(chosen(512, 1024, 3584)).toBe("64x64");
  });

  it("is none where a tile cannot be brought, or other tiles are as fast", () => {
    expect(chosen(512, 4096, 4096 + 64)).toBeUndefined();
    expect(chosen(512, 4096, 4096, 32)).toBeUndefined();
    expect(chosen(32, 4096, 4096)).toBeUndefined();
    const large = sizes(512, 4096, 4096);
    expect(warpgroupTileFor("bf16_bf16_bf16_b4", large, tensors(4), () => true)).toBeUndefined();
    expect(warpgroupTileFor("bf16_bf16_bf16_b8", large, tensors(), () => true)).toBeUndefined();
    expect(warpgroupTileFor("bf16_bf16_bf16_b4", large, tensors(), () => false)).toBeUndefined();
  });
});
