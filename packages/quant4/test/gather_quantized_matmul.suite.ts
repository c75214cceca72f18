import { FLOATS, roundTo } from "@mlxts/core";
import type { Suite } from "@mlxts/core/testing";
import { distinct, gatheredChanges, gatheredMutants, moreAndMore, TOKENS } from "@mlxts/test-kit/gathered_suite";
import { gatherQuantizedMatmul } from "../src/index.ts";
import { type Call, caseMaker, multiply, reference } from "./gather_cases.ts";
import { decode, product, right } from "./product_cases.ts";
import { wrongProducts } from "./product_mutants.ts";

const WIDTHS = [4, 8] as const;
const GROUPS = [32, 64, 128] as const;

const makeCase = caseMaker();

const changes = gatheredChanges<Call>(reference, multiply);
const { outputAs, rowsOfX, orderedRows, leak } = changes;

export const suite: Suite = {
  op: gatherQuantizedMatmul,
  errorClass: "R",
  reference: reference(),
  cases: [
    // All rows to one expert, or more to each than to the one before.
    ...[64, 65, 129].map((T) =>
      makeCase({
        name: "all to one expert",
        ...{ lead: [T, 1], indices: [T, 1], experts: 9, rows: 9, cols: 64, ordered: true, choose: () => 5 },
      }),
    ),
    makeCase({
      name: "1, 2, … 13 rows to an expert",
      ...{ lead: [91], indices: [91], experts: 15, rows: 20, cols: 64, ordered: true },
      choose: moreAndMore,
    }),
    makeCase({
      name: "more than a block of rows",
      ...{ lead: [1100], indices: [1100], experts: 3, rows: 3, cols: 32, ordered: true },
      choose: (i) => (i % 50 ? 2 : 0),
    }),
    // One token: up and down projections.
    makeCase({ lead: [1, 1], indices: [1, 8], experts: 16, rows: 40, cols: 64, choose: distinct(8, 16) }),
    makeCase({ lead: [1, 8], indices: [1, 8], experts: 16, rows: 65, cols: 96, choose: distinct(8, 16) }),
    makeCase({ lead: [1, 1], indices: [1, 8], experts: 128, rows: 33, cols: 512, groupSize: 64 }),
    makeCase({ lead: [1], indices: [1], experts: 1, rows: 257, cols: 64, groupSize: 64 }),
    ...[1, 3, 8, 31, 257].map((rows) => makeCase({ ...TOKENS, experts: 8, rows, cols: 64 })),
    ...[32, 96, 160, 1408].map((cols) => makeCase({ ...TOKENS, experts: 8, rows: 31, cols, signed: true })),
    // Indices and leading dimensions that broadcast.
    makeCase({ lead: [37], indices: [37], experts: 3, rows: 10, cols: 32 }),
    makeCase({ lead: [1], indices: [36], experts: 3, rows: 10, cols: 32 }),
    makeCase({ lead: [36], indices: [1], experts: 3, rows: 10, cols: 32 }),
    makeCase({ lead: [2, 1, 3], indices: [4, 1], experts: 5, rows: 20, cols: 32 }),
    makeCase({ lead: [5], lhs: [4, 3], indices: [4, 3], experts: 6, rows: 32, cols: 64, signed: true }),
    makeCase({ lead: [2, 3], lhs: [4, 1], indices: [3], experts: 6, rows: 32, cols: 64 }),
    makeCase({ lead: [5], lhs: [4, 3], indices: [4, 3], experts: 6, rows: 32, cols: 64, ordered: true }),
    // Rows to a matrix of x.
    ...[2, 3, 7, 8, 9, 33, 65].map((m) =>
      makeCase({ lead: [3, 1], indices: [3, 2], m, experts: 4, rows: 67, cols: 64 }),
    ),
    makeCase({ lead: [2], lhs: [3], indices: [3], m: 20, experts: 3, rows: 21, cols: 96 }),
    makeCase({ name: "more than a block of them", lead: [2], indices: [3, 1], m: 530, experts: 3, rows: 9, cols: 32 }),
    // In order: few and many rows to an expert, experts without rows, slots that are full and that are not.
    ...WIDTHS.flatMap((bits) =>
      GROUPS.flatMap((groupSize) => [
        makeCase({ ...TOKENS, experts: 8, rows: 35, cols: 384, bits, groupSize }),
        makeCase({ lead: [40, 1], indices: [40, 2], experts: 5, rows: 70, cols: 384, bits, groupSize, ordered: true }),
      ]),
    ),
    makeCase({ lead: [1, 1], indices: [1, 8], experts: 16, rows: 40, cols: 64, ordered: true }),
    makeCase({ lead: [9, 3], indices: [9, 3], experts: 40, rows: 33, cols: 96, ordered: true, signed: true }),
    makeCase({ lead: [70, 1], indices: [70, 1], experts: 1, rows: 66, cols: 128, groupSize: 64, ordered: true }),
    makeCase({ lead: [33, 1], indices: [33, 2], experts: 128, rows: 9, cols: 32, ordered: true }),
    // What warpgroups multiply on NVIDIA's GPUs, by each of their tiles: slots that are empty, full or have one row, and
    // rows of W that are no multiple of a tile's.
    ...(
      [
        [16, 9],
        [32, 5],
        [64, 3],
        [128, 2],
      ] as const
    ).map(([m, experts]) => ({
      ...makeCase({
        name: `slots of ${m}`,
        ...{ lead: [7], lhs: [2 * m + 2], indices: [2 * m + 2], experts, rows: m < 64 ? 70 : 134, cols: 256 },
        ...{ groupSize: 64, ordered: true },
        choose: (i) => (i === 0 ? 0 : i <= m ? experts - 2 : experts - 1),
      }),
      aligned: true,
    })),
    makeCase({
      ...{ lead: [40, 1], indices: [40, 2], experts: 16, rows: 61, cols: 512, groupSize: 128, mean: 4, ordered: true },
    }),
    makeCase({ lead: [5, 1], indices: [5, 2], experts: 4, rows: 40, cols: 256, groupSize: 64, m: 40 }),
    // Every dtype of x, scales and output, in each kernel.
    ...WIDTHS.flatMap((bits) =>
      FLOATS.flatMap((scales) =>
        FLOATS.flatMap((outDtype) => [
          makeCase({ ...TOKENS, experts: 8, rows: 34, cols: 64, bits, scales, outDtype }),
          makeCase({
            lead: [24],
            indices: [24],
            experts: 2,
            rows: 34,
            cols: 64,
            bits,
            scales,
            outDtype,
            ordered: true,
          }),
        ]),
      ),
    ),
    ...[false, true].map((ordered) =>
      makeCase({
        lead: [24, 1],
        indices: [24, 2],
        experts: 3,
        rows: 40,
        cols: 1024,
        mean: 4,
        ordered,
        outDtype: "f32",
      }),
    ),
    // Weights that a file does not align, in each kernel and dtype, with parts of vectors.
    ...WIDTHS.flatMap((bits) =>
      GROUPS.flatMap((groupSize) =>
        FLOATS.flatMap((scales) => [
          makeCase({ ...TOKENS, experts: 8, rows: 35, cols: 384, bits, groupSize, scales, anyByte: true }),
          makeCase({
            ...{ lead: [40, 1], indices: [40, 2], experts: 5, rows: 70, cols: 384, ordered: true },
            ...{ bits, groupSize, scales, anyByte: true },
          }),
        ]),
      ),
    ),
    ...[32, 96, 160].map((cols) => makeCase({ ...TOKENS, experts: 8, rows: 3, cols, anyByte: true })),
    makeCase({ lead: [3, 1], indices: [3, 2], m: 9, experts: 4, rows: 67, cols: 96, anyByte: true }),
    // x near and below the smallest normal number.
    ...[false, true].flatMap((ordered) =>
      [2 ** -100, 2 ** -126].map((tiny) =>
        makeCase({
          ...{ lead: [24], indices: [24], experts: 2, rows: 34, cols: 64, tiny, ordered },
          ...{ outDtype: "f32", scales: "f32", dtypes: ["bf16", "f32"] },
        }),
      ),
    ),
    ...[31, 64, 257].map((m) => makeCase({ lead: [2], indices: [2], m, experts: 2, rows: 5, cols: 32 })),
    // Long rows, and many.
    ...[false, true].flatMap((ordered) => [
      makeCase({ lead: [9, 1], indices: [9, 2], experts: 2, rows: 3, cols: 4096, groupSize: 128, ordered }),
      makeCase({ lead: [2, 1], indices: [2, 2], experts: 3, rows: 3, cols: 7168, groupSize: 64, ordered }),
    ]),
    makeCase({ lead: [1], indices: [2], experts: 2, rows: 4096, cols: 32 }),
    // One row of bf16 x for each pair on NVIDIA's GPUs, in every dtype of scales and output.
    ...FLOATS.flatMap((scales) =>
      FLOATS.map((outDtype) => ({
        ...makeCase({ ...TOKENS, experts: 8, rows: 34, cols: 256, groupSize: 64, scales, outDtype, dtypes: ["bf16"] }),
        aligned: true,
      })),
    ),
  ],
  mutants: {
    ...gatheredMutants(changes),
    ...Object.fromEntries(
      Object.entries(wrongProducts).map(([name, wrong]) => [name, reference((call) => multiply(call, wrong))]),
    ),
    "rows beyond the first 512 of an expert left out": orderedRows((i) => i < 512),
    "rows of x beyond the first 512 left out": rowsOfX((i) => i < 512),
    "experts that nobody chose leak": leak(({ inputs: { scales } }) => scales.data),
    "scales of the first expert for all": reference((call) =>
      multiply(call, (m) => {
        const groups = m.scales.length;
        return right({ ...m, scales: call.inputs.scales.data.subarray(0, groups) });
      }),
    ),
    "biases ignored": reference((call) => multiply(call, (m) => right({ ...m, biases: m.biases.map(() => 0) }))),
    "rows of W beyond a multiple of 64 unwritten": outputAs((out, { rows }) => {
      for (let i = 0; i < out.length; i++) if (rows >= 64 && i % rows >= rows - (rows % 64)) out[i] = Number.NaN;
    }),
    "weights rounded to bf16": reference((call) =>
      multiply(call, (m) =>
        product(
          m,
          decode(m).map((v) => roundTo("bf16", v)),
        ),
      ),
    ),
  },
};
