import { FLOATS, roundTo } from "@mlxts/core";
import type { Suite } from "@mlxts/core/testing";
import { gatherQuantizedMatmul } from "../src/index.ts";
import { unpackCodes } from "../src/reference.ts";
import type { GatheredPair } from "../src/reference_gather.ts";
import { type Call, makeCase, multiply, reference } from "./gather_cases.ts";
import { decode, product, right } from "./product_cases.ts";

const WIDTHS = [4, 8] as const;
const GROUPS = [32, 64, 128] as const;
const TOKENS = { lead: [5, 1], indices: [5, 4] } as const;
/** Experts of a token differ, as a router's do. */
const distinct = (k: number, experts: number) => (i: number) => (Math.floor(i / k) * 7 + (i % k) * 3 + 1) % experts;

/** Other pairs than the right ones. */
const pairsAs = (change: (pair: GatheredPair, call: Call) => Partial<GatheredPair>) =>
  reference((call) => multiply({ ...call, pairs: call.pairs.map((pair) => ({ ...pair, ...change(pair, call) })) }));
/** The right output with some of it changed. */
const outputAs = (change: (out: Float64Array, call: Call) => void) =>
  reference((call) => {
    const out = multiply(call);
    change(out, call);
    return out;
  });
/** Places in `order` whose rows a wrong product leaves out: `kept(i, n)` of the i-th of n rows of an expert. */
const orderedRows = (kept: (i: number, n: number) => boolean) =>
  outputAs((out, { inputs: { order, offsets }, experts, rows }) => {
    if (!order || !offsets) return;
    for (let e = 0; e < experts; e++) {
      const [begin, end] = [offsets.data[e] as number, offsets.data[e + 1] as number];
      for (let i = begin; i < end; i++) {
        const row = (order.data[i] as number) * rows;
        if (!kept(i - begin, end - begin)) out.fill(0, row, row + rows);
      }
    }
  });
const stackOf = ({ inputs: { x } }: Call) => x.shape.slice(0, -2).reduce((a, b) => a * b, 1);

export const suite: Suite = {
  op: gatherQuantizedMatmul,
  errorClass: "R",
  reference: reference(),
  cases: [
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
    ...[64, 65, 129].map((T) =>
      makeCase({
        name: "all to one expert",
        ...{ lead: [T, 1], indices: [T, 1], experts: 9, rows: 9, cols: 64, ordered: true, choose: () => 5 },
      }),
    ),
    makeCase({
      name: "1, 2, … 13 rows to an expert",
      ...{ lead: [91], indices: [91], experts: 15, rows: 20, cols: 64, ordered: true },
      choose: (i) => Math.ceil(Math.sqrt(2 * i + 2.25) - 0.5),
    }),
    makeCase({
      name: "more than a block of rows",
      ...{ lead: [1100], indices: [1100], experts: 3, rows: 3, cols: 32, ordered: true },
      choose: (i) => (i % 50 ? 2 : 0),
    }),
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
    // x near and below the smallest normal number.
    ...[false, true].flatMap((ordered) =>
      [2 ** -100, 2 ** -126].map((tiny) =>
        makeCase({
          ...{ lead: [24], indices: [24], experts: 2, rows: 34, cols: 64, tiny, ordered },
          ...{ outDtype: "f32", scales: "f32", dtypes: ["bf16", "f32"] },
        }),
      ),
    ),
  ],
  mutants: {
    "the first expert for all": pairsAs(() => ({ matrix: 0 })),
    "the next expert": pairsAs(({ matrix }, { experts }) => ({ matrix: (matrix + 1) % experts })),
    "the expert of the next pair": pairsAs(({ pair }, { pairs }) => ({
      matrix: (pairs[(pair + 1) % pairs.length] as GatheredPair).matrix,
    })),
    "one expert for all slots of a token": pairsAs(({ pair }, { inputs, pairs }) => {
      const slots = inputs.rhsIndices.shape.at(-1) as number;
      return { matrix: (pairs[pair - (pair % slots)] as GatheredPair).matrix };
    }),
    "an index that broadcasts is read along the pairs": pairsAs(({ pair }, { inputs: { rhsIndices } }) =>
      pair >= rhsIndices.data.length ? {} : { matrix: rhsIndices.data[pair] as number },
    ),
    "lhsIndices ignored": pairsAs(({ pair }, call) => (call.inputs.lhsIndices ? { left: pair % stackOf(call) } : {})),
    "a row of x for each pair, though tokens share it": pairsAs(({ pair }, call) => ({ left: pair % stackOf(call) })),
    "rows of x in the order of the experts": pairsAs(({ pair }, { inputs: { order }, pairs }) =>
      order ? { left: (pairs[order.data[pair] as number] as GatheredPair).left } : {},
    ),
    "results in the order of the experts": outputAs((out, { inputs: { order }, rows }) => {
      const natural = out.slice();
      order?.data.forEach((pair, place) => {
        out.set(natural.subarray(pair * rows, (pair + 1) * rows), place * rows);
      });
    }),
    "experts with rows take each other's places": pairsAs(({ matrix }, { inputs, pairs }) => {
      const used = [...new Set(pairs.map((pair) => pair.matrix))].sort((a, b) => a - b);
      return inputs.order ? { matrix: used.indexOf(matrix) } : {};
    }),
    "offsets of the next expert": reference((call) => {
      const { offsets, order } = call.inputs;
      if (!offsets || !order) return multiply(call);
      const place = new Map(Array.from(order.data, (pair, i) => [pair, i]));
      const pairs = call.pairs.map((pair) => {
        const at = place.get(pair.pair) as number;
        const shifted = offsets.data.findIndex((_, e) => at < (offsets.data[Math.min(e + 2, call.experts)] as number));
        return { ...pair, matrix: Math.min(Math.max(shifted, 0), call.experts - 1) };
      });
      return multiply({ ...call, pairs });
    }),
    "the last row of an expert left out": orderedRows((i, n) => i + 1 < n),
    "one row to an expert": orderedRows((i) => i === 0),
    "rows beyond a multiple of 6 left out": orderedRows((i, n) => n <= 6 || i < n - (n % 6)),
    "rows beyond the first 8 of an expert left out": orderedRows((i) => i < 8),
    "rows beyond the first 64 of an expert left out": orderedRows((i) => i < 64),
    "rows beyond the first 512 of an expert left out": orderedRows((i) => i < 512),
    "experts that nobody chose leak": outputAs((out, { inputs: { scales } }) => {
      const all = scales.data.reduce((a, b) => a + b, 0);
      for (let i = 0; i < out.length; i++) (out[i] as number) += 0 * all;
    }),
    "the first row of a matrix of x for all": outputAs((out, { m, rows }) => {
      for (let i = 0; i < out.length; i++) out[i] = out[i - (Math.floor(i / rows) % m) * rows] as number;
    }),
    "rows of x beyond the first 8 left out": outputAs((out, { m, rows }) => {
      for (let i = 0; i < out.length; i++) if (Math.floor(i / rows) % m >= 8) out[i] = 0;
    }),
    "scales of the first expert for all": reference((call) =>
      multiply(call, (m) => {
        const groups = m.scales.length;
        return right({ ...m, scales: call.inputs.scales.data.subarray(0, groups) });
      }),
    ),
    "biases ignored": reference((call) => multiply(call, (m) => right({ ...m, biases: m.biases.map(() => 0) }))),
    "8 bits read as 4": reference((call) =>
      multiply(call, (m) =>
        m.options.bits === 4
          ? right(m)
          : product(
              m,
              unpackCodes(m.words, 4)
                .subarray(0, m.rows * m.cols)
                .map((q, i) => {
                  const g = Math.floor(i / m.options.groupSize);
                  return q * (m.scales[g] as number) + (m.biases[g] as number);
                }),
            ),
      ),
    ),
    "the last group skipped": reference((call) =>
      multiply(call, (m) =>
        product(
          m,
          decode(m).map((v, i) => (i % m.cols < m.cols - m.options.groupSize ? v : 0)),
        ),
      ),
    ),
    "rows of W beyond a multiple of 64 unwritten": outputAs((out, { rows }) => {
      for (let i = 0; i < out.length; i++) if (rows >= 64 && i % rows >= rows - (rows % 64)) out[i] = Number.NaN;
    }),
    "sums in bf16": reference((call) =>
      multiply(call, (m) => {
        const w = decode(m);
        return right(m).map((_, i) => {
          const [r, row] = [Math.floor(i / m.rows), i % m.rows];
          let sum = 0;
          for (let k = 0; k < m.cols; k++)
            sum = roundTo("bf16", sum + (m.x[r * m.cols + k] as number) * (w[row * m.cols + k] as number));
          return sum;
        });
      }),
    ),
    "weights rounded to bf16": reference((call) =>
      multiply(call, (m) =>
        product(
          m,
          decode(m).map((v) => roundTo("bf16", v)),
        ),
      ),
    ),
    "the output left unwritten": outputAs((out) => out.fill(Number.NaN)),
  },
};
