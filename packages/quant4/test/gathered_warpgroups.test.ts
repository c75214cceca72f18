// Tiles of gathered products on GPUs whose warpgroups multiply; the op's own choice needs more pairs for some of them than
// a simulator has time for.
import { Device } from "@mlxts/core";
import { BARS, compare, Random, within } from "@mlxts/core/testing";
import { pairOrderOn } from "@mlxts/test-kit/gathered_pairs";
import { afterAll, describe, expect, it } from "vitest";
import { gatherQuantizedMatmul, gatherQuantizedMatmulKernel } from "../src/gather_quantized_matmul.ts";
import { quant4Library } from "../src/library.ts";
import { GATHERED_TILES, GATHERED_VARIANTS, gatheredTileFor } from "../src/product_launch.ts";
import { decodeExactly, productReference } from "../src/reference.ts";
import { randomQuantized } from "./groups.ts";

const device = Device.open();
afterAll(() => device.dispose());
const has = device.library(quant4Library).has(gatherQuantizedMatmulKernel.name, GATHERED_VARIANTS[0] as string);

describe.skipIf(!has)(`gathered products of warpgroups${has ? "" : " (skipped: not on this device)"}`, () => {
  it.each(
    GATHERED_TILES.flatMap((tile) => [
      { tile, each: [0, 1, tile.m, 0, tile.m + 1, 0], rows: tile.rows + 6, cols: 512, groupSize: 64, mean: 0 },
      { tile, each: [2 * tile.m + 3, 2], rows: tile.rows - 3, cols: 256, groupSize: 128, mean: 4 },
    ]),
  )("$tile.rows rows of W, $tile.m of x: $each pairs [$rows, $cols], groups of $groupSize", async (one) => {
    const { tile, each, rows, cols, groupSize, mean } = one;
    const setting = { bits: 4, groupSize, mode: "affine" } as const;
    const matrices = each.length;
    const made = randomQuantized(matrices, rows, cols, setting, 3);
    const random = new Random(4);
    const chosen = each.flatMap((count, e) => Array<number>(count).fill(e)).sort(() => random.uniform() - 0.5);
    const pairs = chosen.length;
    const lefts = 7;
    const left = Array.from(random.integers(pairs, lefts));
    const unit = 1 / Math.sqrt(cols * (1 + mean * mean));
    const buffers = {
      x: device.tensor("bf16", [lefts, cols], random.normals(lefts * cols, unit, mean * unit)),
      weight: device.tensor("u32", [matrices, rows, cols / 8], made.weight),
      scales: device.tensor("bf16", [matrices, rows, cols / groupSize], made.scales),
      biases: device.tensor("bf16", [matrices, rows, cols / groupSize], made.biases),
      rhsIndices: device.tensor("u32", [pairs], chosen),
      lhsIndices: device.tensor("u32", [pairs], left),
      ...pairOrderOn(device, chosen, matrices),
      out: device.tensor("bf16", [pairs, rows]),
    };
    const encoder = device.encoder();
    const axes = { size0: pairs, size1: 1, left0: 1, left1: 0, left2: 0, right0: 1, right1: 0, right2: 0 };
    const counts = { pairs, m: 1, matrices, lefts, rhsCount: pairs, lhsCount: pairs, signedIndices: 0 };
    encoder.dispatch(gatherQuantizedMatmulKernel, {
      op: "gatherQuantizedMatmul",
      variant: `bf16_bf16_bf16_b4_${tile.rows}x${tile.m}`,
      buffers,
      params: { ...counts, ...axes, rows, cols, groupSize },
      sizes: { pairs, m: 1, matrices, rows, cols, groupSize, ordered: true, mBlock: 0, tile },
    });
    await encoder.commit();
    const [x, scales, biases] = (await Promise.all(
      [buffers.x, buffers.scales, buffers.biases].map((tensor) => tensor.readNumbers()),
    )) as [Float64Array, Float64Array, Float64Array];
    const weights = decodeExactly(made.weight, scales, biases, setting);
    const expected = new Float64Array(pairs * rows);
    for (let pair = 0; pair < pairs; pair++) {
      const [row, e] = [(left[pair] as number) * cols, (chosen[pair] as number) * rows * cols];
      const product = productReference(
        x.subarray(row, row + cols),
        weights.subarray(e, e + rows * cols),
        rows,
        cols,
        true,
      );
      expected.set(product, pair * rows);
    }
    const { R } = BARS;
    expect(within(compare(await buffers.out.readNumbers(), expected), R.bf16, R.spread)).toBe(true);
  });

  it("take rows of x that begin at no whole piece by other tiles", async () => {
    const [experts, rows, cols, pairs] = [2, 5, 256, 24];
    const setting = { bits: 4, groupSize: 64, mode: "affine" } as const;
    const made = randomQuantized(experts, rows, cols, setting, 3);
    const q = {
      weight: device.tensor("u32", [experts, rows, cols / 8], made.weight),
      scales: device.tensor("bf16", [experts, rows, cols / 64], made.scales),
      biases: device.tensor("bf16", [experts, rows, cols / 64], made.biases),
      ...setting,
    };
    const chosen = Array.from({ length: pairs }, (_, i) => i % experts);
    const choice = { rhsIndices: device.tensor("u32", [pairs], chosen), ...pairOrderOn(device, chosen, experts) };
    const data = new Random(4).normals(pairs * cols, 1 / 16);
    const x = device.tensor("bf16", [pairs * cols + 2], [0, 0, ...data]).view(2, [pairs, 1, cols]);
    const encoder = device.encoder();
    const own = gatherQuantizedMatmul(encoder, { x, q, ...choice });
    const aligned = gatherQuantizedMatmul(encoder, { x: device.tensor("bf16", [pairs, 1, cols], data), q, ...choice });
    await encoder.commit();
    const { R } = BARS;
    expect(within(compare(await own.readNumbers(), await aligned.readNumbers()), 2 * R.bf16, R.spread)).toBe(true);
  });
});

describe("the tile of gathered products", () => {
  const at = (byteOffset: number, byteLength = 0) => ({ byteOffset, byteLength }) as never;
  const tensors = { x: at(0), weight: at(16), scales: at(8), biases: at(8) };
  const sizes = { pairs: 128, m: 1, matrices: 128, ordered: true, cols: 2048, groupSize: 64 };
  const chosen = (changes: object, given: object = {}) =>
    gatheredTileFor("bf16_bf16_bf16_b4", { ...sizes, ...changes }, { ...tensors, ...given }, () => true)?.tile.m;

  it("has more rows of x the more a matrix has on average", () => {
    expect([1, 10, 11, 40, 41, 100, 101].map((each) => chosen({ pairs: 128 * each }))).toEqual([
      16, 16, 32, 32, 64, 64, 128,
    ]);
    expect([9, 33, 500].map((m) => chosen({ pairs: 2, m, ordered: false }))).toEqual([16, 32, 128]);
  });

  it("is none where a tile cannot be brought", () => {
    expect(chosen({ cols: 2048 + 64 })).toBeUndefined();
    expect(chosen({ groupSize: 32 })).toBeUndefined();
    expect(chosen({}, { x: at(8) })).toBeUndefined();
    expect(chosen({}, { x: at(0, 2 ** 33) })).toBeUndefined();
    expect(chosen({}, { scales: at(4) })).toBeUndefined();
    expect(gatheredTileFor("bf16_bf16_bf16_b8", sizes, tensors, () => true)).toBeUndefined();
    expect(gatheredTileFor("bf16_bf16_bf16_b4", sizes, tensors, () => false)).toBeUndefined();
  });
});
