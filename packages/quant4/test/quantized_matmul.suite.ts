import { FLOATS } from "@mlxts/core";
import type { Suite } from "@mlxts/core/testing";
import { quantizedMatmul } from "../src/index.ts";
import { caseMaker, reference } from "./product_cases.ts";
import { mutants } from "./product_mutants.ts";

const WIDTHS = [4, 8] as const;
const GROUPS = [32, 64, 128] as const;
const makeCase = caseMaker();

export const suite: Suite = {
  op: quantizedMatmul,
  errorClass: "R",
  reference: reference(),
  cases: [
    // Few outputs make a chance of rms(err): at least 256 of them.
    ...WIDTHS.flatMap((bits) => GROUPS.flatMap((g) => [1, 2, 3, 7, 8, 9].map((m) => makeCase(m, 257, 384, bits, g)))),
    ...WIDTHS.flatMap((bits) => [31, 33, 64].map((m) => makeCase(m, 67, 1408, bits, 64))),
    // Few rows, more or less than a block's rows of W, a section's groups and a span's.
    ...WIDTHS.flatMap((bits) => [4, 5, 6].map((m) => makeCase(m, 71, 1600, bits, 64))),
    ...WIDTHS.flatMap((bits) => [4, 8].map((m) => makeCase(m, 47, 2304, bits, 128))),
    ...[1, 3, 7].map((m) => makeCase(m, 260, 8384, 4, 64, { dtypes: ["f32", "bf16"] })),
    makeCase(1, 150, 16448, 4, 64, { dtypes: ["bf16"] }),
    makeCase(1, 260, 8448, 8, 128, { dtypes: ["f32"] }),
    makeCase(257, 1, 64, 4, 64),
    makeCase(257, 3, 128, 8, 128),
    makeCase(100, 8, 96, 4, 32),
    makeCase(4, 65, 96, 8, 32),
    makeCase(1, 300, 32, 4, 32),
    makeCase(1, 300, 32, 8, 32),
    makeCase(5, 64, 160, 4, 32),
    makeCase(6, 64, 192, 4, 64),
    makeCase(1, 300, 512, 4, 64, { vector: true }),
    makeCase(1, 333, 2048, 4, 32),
    makeCase(257, 40, 512, 4, 32, { dtypes: ["bf16", "f32"] }),
    makeCase(12, 96, 2304, 4, 128),
    makeCase(13, 130, 4096, 4, 64, { dtypes: ["f32"] }),
    ...[1, 3, 40].map((m) => makeCase(m, 256, 512, 4, 64, { mean: 4 })),
    ...[1, 3, 40].map((m) => makeCase(m, 256, 512, 8, 64, { mean: 4 })),
    // Every dtype of x, scales and output, in each kernel.
    ...WIDTHS.flatMap((bits) =>
      FLOATS.flatMap((scales) =>
        FLOATS.flatMap((outDtype) => [
          ...[2, 20].map((m) => makeCase(m, 130, 128, bits, 32, { scales, outDtype })),
          ...[2, 12].map((m) => makeCase(m, 34, 128, bits, 32, { scales, outDtype, transpose: false })),
        ]),
      ),
    ),
    ...(["f32", "f16", "bf16"] as const).flatMap((bias) =>
      [2, 5, 20].map((m) => makeCase(m, 130, 128, 4, 64, { bias })),
    ),
    // x near and below the smallest normal number.
    ...[1, 5, 20].flatMap((m) =>
      [2 ** -100, 2 ** -122, 2 ** -126].map((factor) =>
        makeCase(m, 256, 64, 4, 32, { factor, outDtype: "f32", scales: "f32", dtypes: ["bf16", "f32"] }),
      ),
    ),
    // x near the largest number that limbs hold, and the largest of all, and x whose columns differ by many powers of two.
    ...[1, 20].flatMap((m) =>
      [2 ** 96, 2 ** 99, 2 ** 110, 2 ** 119].map((factor) =>
        makeCase(m, 256, 64, 4, 32, { factor, outDtype: "f32", dtypes: ["bf16", "f32"] }),
      ),
    ),
    ...WIDTHS.flatMap((bits) =>
      [1, 3, 6, 20].map((m) =>
        makeCase(m, 130, 2048, bits, 64, { spread: 40, outDtype: "f32", dtypes: ["f32", "f16"] }),
      ),
    ),
    // The same of few rows in groups that tiles hold.
    ...[2 ** -126, 2 ** -100, 2 ** -78, 2 ** 110, 2 ** 119].flatMap((factor) =>
      [1, 5].map((m) =>
        makeCase(m, 256, 128, 4, 64, { factor, outDtype: "f32", scales: "f32", dtypes: ["bf16", "f32"] }),
      ),
    ),
    // One row of x, with few digits lost; half a span of columns last, and several tiles of rows to a threadgroup.
    ...[128, 320, 1600].map((cols) => makeCase(1, 270, cols, 4, 64, { outDtype: "f32", dtypes: ["bf16"] })),
    makeCase(1, 270, 2304, 4, 128, { outDtype: "f32", dtypes: ["bf16"], peaks: 1000 }),
    makeCase(1, 270, 1024, 4, 64, { outDtype: "f32", dtypes: ["bf16"], mean: 4 }),
    makeCase(1, 8500, 128, 4, 64, { outDtype: "f32", dtypes: ["bf16"] }),
    // x larger than limbs can be, and with few large numbers.
    makeCase(20, 256, 64, 4, 32, { factor: 2 ** 104, outDtype: "f32", scales: "f32", dtypes: ["bf16", "f32"] }),
    ...WIDTHS.flatMap((bits) => [1, 6, 20].map((m) => makeCase(m, 256, 512, bits, 128, { peaks: 1000 }))),
    // Batches: one matrix for all, one x for all, both, alternating.
    ...[2, 12].flatMap((m) => [
      makeCase(m, 40, 64, 4, 64, { lead: [3, 2] }),
      makeCase(m, 40, 64, 4, 32, { stack: [3, 2] }),
      makeCase(m, 40, 64, 8, 64, { lead: [3, 2], stack: [3, 2] }),
      makeCase(m, 40, 64, 4, 64, { lead: [2, 3], stack: [3] }),
      makeCase(m, 40, 64, 4, 64, { lead: [2, 1, 3], stack: [2, 1] }),
      makeCase(m, 20, 64, 4, 64, { lead: [2, 1, 2, 1, 3], stack: [1, 2, 1, 2, 1] }),
    ]),
    // x · W
    ...WIDTHS.flatMap((bits) =>
      GROUPS.flatMap((g) => [1, 3, 8, 33].map((m) => makeCase(m, 67, 384, bits, g, { transpose: false }))),
    ),
    makeCase(1, 4096, 512, 4, 64, { transpose: false, dtypes: ["f32"] }),
    makeCase(8, 1, 96, 4, 32, { transpose: false }),
    makeCase(5, 64, 64, 4, 64, { transpose: false }),
    makeCase(17, 257, 32, 8, 32, { transpose: false, mean: 4 }),
    makeCase(2, 33, 160, 4, 32, { transpose: false, bias: "f32" }),
    makeCase(2, 31, 96, 4, 32, { transpose: false, lead: [2, 3], stack: [3], outDtype: "f32" }),
    ...[2, 12].map((m) => makeCase(m, 40, 64, 4, 64, { transpose: false, lead: [2, 1, 3], stack: [5, 1] })),
    ...[2, 12].map((m) => makeCase(m, 20, 64, 4, 64, { transpose: false, lead: [2, 1, 3, 1], stack: [2, 1, 2] })),
    makeCase(1, 300, 1408, 4, 64, { transpose: false, vector: true }),
    // Tiles: rows of x beside multiples of 16, a last panel of fewer groups, more blocks of rows of W than meet x at once.
    makeCase(15, 330, 160, 4, 32),
    makeCase(17, 300, 224, 8, 32),
    makeCase(48, 270, 192, 4, 64),
    makeCase(49, 65, 320, 8, 64),
    makeCase(33, 321, 384, 8, 128),
    makeCase(16, 129, 352, 4, 32, { mean: 4 }),
    // Scaled weights in tiles: the same, with half a panel last, and every dtype of scales.
    makeCase(33, 321, 384, 4, 128, { dtypes: ["bf16"] }),
    makeCase(65, 290, 1088, 4, 64, { dtypes: ["bf16"], bias: "f32" }),
    makeCase(80, 33, 64, 4, 64, { dtypes: ["bf16"], stack: [2] }),
    makeCase(130, 600, 448, 4, 64, { dtypes: ["bf16"], mean: 4 }),
    ...FLOATS.map((scales) => makeCase(40, 130, 320, 4, 64, { scales, dtypes: ["bf16"] })),
    ...FLOATS.map((scales) => makeCase(40, 130, 256, 4, 128, { scales, dtypes: ["bf16"], peaks: 1000 })),
    makeCase(40, 130, 512, 4, 64, { dtypes: ["bf16"], factor: 2 ** -100 }),
    makeCase(40, 130, 512, 4, 64, { dtypes: ["bf16"], factor: 2 ** 119 }),
    // One row of bf16 x on NVIDIA's GPUs, in every dtype of scales and output.
    ...FLOATS.flatMap((scales) =>
      FLOATS.map((outDtype) => ({
        ...makeCase(1, 290, 512, 4, 64, { scales, outDtype, dtypes: ["bf16"] }),
        aligned: true,
      })),
    ),
    // The tiles of warpgroups for as many rows of x and of W.
    ...[64, 96, 128].map((m) => ({
      ...makeCase(m, 67 * 128 - 7, 256, 4, 64, { dtypes: ["bf16"] }),
      aligned: true,
      only: "cuda" as const,
    })),
  ],
  mutants,
};
