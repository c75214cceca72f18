// Tiles of products with many rows of bf16 on GPUs whose warpgroups multiply; the op's own choice needs larger products
// for some of them than a simulator has time for.
import { Device } from "@mlxts/core";
import { BARS, compare, Random, within } from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { nnLibrary } from "../src/library.ts";
import { matmulKernel } from "../src/matmul.ts";
import { WARPGROUP_TILES, warpgroupTokens, warpgroupVariant } from "../src/product_launch.ts";
import { matmulReference } from "../src/reference_matmul.ts";

const device = Device.open();
afterAll(() => device.dispose());
const has = device.library(nnLibrary).has(matmulKernel.name, warpgroupVariant(WARPGROUP_TILES[0].tokens));

describe.skipIf(!has)(`products of warpgroups${has ? "" : " (skipped: not on this device)"}`, () => {
  it.each(
    WARPGROUP_TILES.flatMap(({ tokens }) => [
      { tokens, m: tokens + 17, n: 256 + 6, k: 640, bias: "f32" as const },
      { tokens, m: 5, n: 125, k: 64, bias: undefined },
      { tokens, m: tokens, n: 136, k: 192, bias: "bf16" as const },
    ]),
  )("$tokens rows of x in a threadgroup: m $m, weight [$n, $k], bias $bias", async ({ tokens, m, n, k, bias }) => {
    const random = new Random(tokens + m);
    const buffers = {
      x: device.tensor("bf16", [m, k], random.normals(m * k, 1 / Math.sqrt(k))),
      weight: device.tensor("bf16", [n, k], random.normals(n * k)),
      bias: bias && device.tensor(bias, [n], random.normals(n)),
      // Rows of an odd number of elements do not begin at whole pairs.
      out: device.tensor("bf16", [m, n]),
    };
    const encoder = device.encoder();
    encoder.dispatch(matmulKernel, {
      op: "matmul",
      variant: warpgroupVariant(tokens),
      buffers,
      params: { m, n, k, transpose: 1, biasF32: bias === "f32" ? 1 : 0 },
      sizes: { m, n, transpose: true, elementBytes: 2, rowBytes: 0, tokens },
    });
    await encoder.commit();
    const [x, weight] = await Promise.all([buffers.x, buffers.weight].map((tensor) => tensor.readNumbers()));
    const added = await buffers.bias?.readNumbers();
    const sizes = { m, n, k, transpose: true };
    const expected = matmulReference(x as Float64Array, weight as Float64Array, added, sizes);
    const { R } = BARS;
    expect(within(compare(await buffers.out.readNumbers(), expected), R.bf16, R.spread)).toBe(true);
  });
});

describe("rows of x of a threadgroup of warpgroups", () => {
  const most = [2 ** 31 - 1, 65535, 65535];

  it("are those that take the least time", () => {
    expect(warpgroupTokens(512, 4096, most)).toBe(128);
    expect(warpgroupTokens(4096, 4096, most)).toBe(256);
    expect(warpgroupTokens(512, 9216, most)).toBe(64);
    expect(warpgroupTokens(9, 4096, most)).toBe(64);
  });

  it("are none where the weight has more rows than a grid", () => {
    expect(warpgroupTokens(9, 128 * 65535, most)).toBe(64);
    expect(warpgroupTokens(9, 128 * 65535 + 1, most)).toBeUndefined();
  });
});
