import { ELSEWHERE, roundTo } from "@mlxts/core";
import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { pairOrder } from "@mlxts/test-kit/pair_order";
import { gatherMatmul } from "../src/index.ts";
import { type GatheredPair, type GatherInputs, gatheredPairs, gatherMatmulReference } from "../src/reference_gather.ts";

const random = new Random(21);

interface Shape {
  name?: string;
  /** Of x, without its last two; and of the indices. */
  lead: readonly number[];
  indices: readonly number[];
  lhs?: readonly number[];
  m?: number;
  experts: number;
  rows: number;
  cols: number;
  /** The expert of each index; default: at random. */
  choose?: (i: number) => number;
  ordered?: boolean;
  /** Where each expert begins, in a weight of so many elements. Where one is elsewhere, the output keeps what it had. */
  starts?: { at: (expert: number) => number; span: number };
  signed?: boolean;
  weight?: CaseInput["dtype"];
  outDtype?: "f32" | "f16" | "bf16";
  mean?: number;
  dtypes?: Case["dtypes"];
}

const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** Outputs of rms near 1. Experts that nobody chose are NaN, and so is what lies between matrices. */
function makeCase(shape: Shape): Case {
  const { name, lead, indices, lhs, m = 1, experts, rows, cols, starts, weight = "act", outDtype, mean = 0 } = shape;
  const count = product(indices);
  const rhs = shape.choose
    ? Float64Array.from({ length: count }, (_, i) => (shape.choose as (i: number) => number)(i))
    : random.integers(count, experts);
  const size = rows * cols;
  const matrices = new Float64Array(starts?.span ?? experts * size).fill(Number.NaN);
  for (const expert of new Set(rhs)) {
    const begin = starts ? starts.at(expert) : expert * size;
    if (begin === ELSEWHERE) continue;
    random.normals(size, 1 / Math.sqrt(cols)).forEach((value, i) => {
      matrices[begin + i] = value;
    });
  }
  const index = shape.signed ? "i32" : "u32";
  const matricesOfX = product(lead);
  const inputs: Record<string, CaseInput> = {
    x: { dtype: "act", shape: [...lead, m, cols], data: random.normals(matricesOfX * m * cols, 1, mean) },
    weight: {
      dtype: weight,
      shape: starts ? [starts.span] : [experts, rows, cols],
      data: matrices,
    },
    rhsIndices: { dtype: index, shape: indices, data: rhs },
  };
  if (lhs) inputs.lhsIndices = { dtype: index, shape: lhs, data: random.integers(product(lhs), matricesOfX) };
  if (starts)
    inputs.starts = {
      dtype: "u32",
      shape: [experts],
      data: Float64Array.from({ length: experts }, (_, e) => starts.at(e)),
    };
  const stack = lhs ?? lead;
  const rank = Math.max(stack.length, indices.length);
  const outLead = Array.from({ length: rank }, (_, i) => Math.max(stack.at(i - rank) ?? 1, indices.at(i - rank) ?? 1));
  const outShape = [...outLead, m, rows];
  if (inputs.starts && Array.from(inputs.starts.data).includes(ELSEWHERE))
    inputs.out = { dtype: outDtype ?? "act", shape: outShape, data: random.normals(product(outShape), 1) };
  if (shape.ordered) {
    const chosen = gatheredPairs({ ...numbers(inputs), starts: undefined as never }, 1).pairs.map(
      ({ begin }) => begin / cols,
    );
    const { order, offsets } = pairOrder(chosen, experts);
    inputs.order = { dtype: "i32", shape: [order.length], data: order };
    inputs.offsets = { dtype: "i32", shape: [experts + 1], data: offsets };
  }
  const options = { ...(starts ? { rows } : {}), ...(outDtype ? { outDtype } : {}) };
  const text = `x [${[...lead, m, cols]}] rhs [${indices}] ${lhs ? `lhs [${lhs}]` : ""} E ${experts} rows ${rows}`;
  return {
    name: `${name ?? ""} ${text} weight ${weight} ${shape.ordered ? "ordered" : ""} ${index} ${JSON.stringify(options)}`,
    inputs,
    options,
    ask: { out: { dtype: outDtype ?? "act", shape: outShape } },
    ...(inputs.out && { inPlace: { out: "out" } }),
    ...(shape.dtypes ? { dtypes: shape.dtypes } : {}),
  };
}

const numbers = (inputs: Record<string, CaseInput>) =>
  Object.fromEntries(
    Object.entries(inputs).map(([name, { shape, data }]) => [name, { shape, data: Float64Array.from(data) }]),
  ) as unknown as GatherInputs;

type Inputs = GatherInputs & { order?: Reference64; offsets?: Reference64 };
interface Call {
  inputs: Inputs;
  pairs: readonly GatheredPair[];
  rows: number;
  cols: number;
  m: number;
  experts: number;
  options: { outDtype?: string };
  act: string;
}

/** A reference, or a wrong one, of the pairs of a call. */
const reference =
  (formula: (call: Call) => Float64Array): ReferenceFunction =>
  (given, options: { rows?: number; outDtype?: string }, act) => {
    const inputs = given as unknown as Inputs;
    const { x, weight, starts } = inputs;
    const [m, cols] = x.shape.slice(-2) as [number, number];
    const rows = options.rows ?? (weight.shape[1] as number);
    const experts = starts ? starts.data.length : (weight.shape[0] as number);
    const { lead, pairs } = gatheredPairs(inputs, rows);
    return {
      out: { shape: [...lead, m, rows], data: formula({ inputs, pairs, rows, cols, m, experts, options, act }) },
    };
  };

const right = ({ inputs, pairs, rows }: Call) => gatherMatmulReference(inputs, pairs, rows);
/** Other pairs than the right ones. */
const pairsAs = (change: (pair: GatheredPair, call: Call) => Partial<GatheredPair>) =>
  reference((call) => right({ ...call, pairs: call.pairs.map((pair) => ({ ...pair, ...change(pair, call) })) }));
/** The right output with some of it changed. */
const outputAs = (change: (out: Float64Array, call: Call) => void) =>
  reference((call) => {
    const out = right(call);
    change(out, call);
    return out;
  });
const inputsAs = (change: (call: Call) => Partial<Inputs>) =>
  reference((call) => right({ ...call, inputs: { ...call.inputs, ...change(call) } }));
const chosenOf = ({ pairs, rows, cols }: Call) => pairs.map(({ begin }) => begin / (rows * cols));
/** Places in `order` whose rows a wrong grouped product leaves out: `kept(i, n)` of the i-th of n rows of an expert. */
const orderedRows = (kept: (i: number, n: number) => boolean) =>
  outputAs((out, call) => {
    const { order, offsets } = call.inputs;
    if (!order || !offsets) return;
    for (let e = 0; e < call.experts; e++) {
      const [begin, end] = [offsets.data[e] as number, offsets.data[e + 1] as number];
      for (let i = begin; i < end; i++) {
        const row = (order.data[i] as number) * call.rows;
        if (!kept(i - begin, end - begin)) out.fill(0, row, row + call.rows);
      }
    }
  });
const columnsOfX = (kept: (l: number, cols: number) => boolean) =>
  inputsAs(({ inputs: { x }, cols }) => ({
    x: { ...x, data: x.data.map((value, i) => (kept(i % cols, cols) ? value : 0)) },
  }));

const TOKENS = { lead: [5, 1], indices: [5, 4] } as const;
const DTYPES = ["f32", "f16", "bf16"] as const;
/** Experts of a token differ, as a router's do. */
const distinct = (k: number, experts: number) => (i: number) => (Math.floor(i / k) * 7 + (i % k) * 3 + 1) % experts;

export const suite: Suite = {
  op: gatherMatmul,
  errorClass: "R",
  reference: reference(right),
  cases: [
    // One token and several: up and down projection.
    makeCase({ lead: [1, 1], indices: [1, 8], experts: 16, rows: 40, cols: 64, choose: distinct(8, 16) }),
    makeCase({ lead: [1, 8], indices: [1, 8], experts: 16, rows: 64, cols: 40, choose: distinct(8, 16) }),
    makeCase({ lead: [1, 1], indices: [1, 8], experts: 128, rows: 33, cols: 520, dtypes: ["bf16"] }),
    ...[1, 2, 3, 7, 15, 17, 31, 33, 63, 64, 65, 130].map((cols) => makeCase({ ...TOKENS, experts: 6, rows: 19, cols })),
    ...[1, 2, 3, 5, 8, 9, 63, 64, 65].map((rows) => makeCase({ ...TOKENS, experts: 6, rows, cols: 40 })),
    makeCase({ ...TOKENS, experts: 6, rows: 257, cols: 40, signed: true }),
    // Indices and leading dimensions that broadcast.
    makeCase({ lead: [7], indices: [7], experts: 3, rows: 10, cols: 32 }),
    makeCase({ lead: [1], indices: [6], experts: 3, rows: 10, cols: 32 }),
    makeCase({ lead: [6], indices: [1], experts: 3, rows: 10, cols: 32 }),
    makeCase({ lead: [2, 1, 3], indices: [4, 1], experts: 5, rows: 10, cols: 32 }),
    makeCase({ lead: [5], lhs: [4, 3], indices: [4, 3], experts: 6, rows: 12, cols: 48, signed: true }),
    makeCase({ lead: [2, 3], lhs: [4, 1], indices: [3], experts: 6, rows: 12, cols: 48 }),
    makeCase({ lead: [5], lhs: [4, 3], indices: [4, 3], experts: 6, rows: 12, cols: 48, ordered: true }),
    // Rows to a matrix of x: all that the kernel for few rows takes, tails of tiles and panels, more than one block.
    ...[2, 3, 4, 5, 6, 7, 8, 9, 13, 33, 64, 65].map((m) =>
      makeCase({ lead: [3, 1], indices: [3, 2], m, experts: 4, rows: 37, cols: 50 }),
    ),
    makeCase({ lead: [1], indices: [2], m: 510, experts: 3, rows: 3, cols: 10 }),
    makeCase({ lead: [2], lhs: [3], indices: [3], m: 20, experts: 3, rows: 21, cols: 30 }),
    makeCase({ lead: [2], indices: [2], m: 8, experts: 2, rows: 5, cols: 40000, dtypes: ["bf16"] }),
    // In order: few and many rows to an expert, experts without rows, slots that are full and that are not.
    makeCase({ lead: [1, 1], indices: [1, 8], experts: 16, rows: 40, cols: 64, ordered: true }),
    makeCase({ lead: [9, 1], indices: [9, 3], experts: 5, rows: 70, cols: 96, ordered: true, signed: true }),
    makeCase({ lead: [9, 3], indices: [9, 3], experts: 40, rows: 33, cols: 65, ordered: true }),
    makeCase({ lead: [64, 1], indices: [64, 2], experts: 3, rows: 35, cols: 31, ordered: true }),
    makeCase({ lead: [70, 1], indices: [70, 1], experts: 1, rows: 66, cols: 130, ordered: true }),
    makeCase({ lead: [33, 1], indices: [33, 2], experts: 128, rows: 9, cols: 16, ordered: true }),
    ...[64, 65, 128].map((T) =>
      makeCase({
        name: "all to one expert",
        ...{ lead: [T, 1], indices: [T, 1], experts: 9, rows: 8, cols: 24, ordered: true, choose: () => 5 },
      }),
    ),
    makeCase({
      name: "1, 2, … 12 rows to an expert",
      ...{ lead: [78], indices: [78], experts: 14, rows: 20, cols: 40, ordered: true },
      choose: (i) => Math.ceil(Math.sqrt(2 * i + 2.25) - 0.5),
    }),
    makeCase({
      name: "more than a block of rows",
      ...{
        lead: [1100],
        indices: [1100],
        experts: 3,
        rows: 3,
        cols: 10,
        ordered: true,
        choose: (i) => (i % 50 ? 2 : 0),
      },
    }),
    makeCase({ lead: [2], indices: [1, 2], experts: 2, rows: 5, cols: 40000, ordered: true, dtypes: ["bf16"] }),
    // Matrices anywhere in a weight: with gaps and at odd elements, gate and up rows in turn, several at one place.
    ...[false, true].flatMap((ordered) => [
      makeCase({
        name: "backwards with gaps",
        ...{ lead: [9, 1], indices: [9, 3], experts: 5, rows: 7, cols: 20, ordered },
        starts: { at: (e) => 3 + (4 - e) * 157, span: 3 + 4 * 157 + 140 },
      }),
      makeCase({
        name: "the second half of each expert's rows",
        ...{ lead: [9, 1], indices: [9, 3], experts: 5, rows: 7, cols: 20, ordered },
        starts: { at: (e) => (2 * e + 1) * 140, span: 1400 },
      }),
      makeCase({
        name: "matrices in one place",
        ...{ lead: [9, 1], indices: [9, 3], experts: 6, rows: 7, cols: 20, ordered },
        starts: { at: (e) => (e % 2) * 140, span: 280 },
      }),
    ]),
    // Matrices in several weights: the output has the products of the others already.
    ...[1, 9, 70].flatMap((tokens) =>
      [false, true].map((ordered) =>
        makeCase({
          name: "some matrices elsewhere",
          ...{ lead: [tokens, 1], indices: [tokens, 3], experts: 7, rows: 70, cols: 20, ordered },
          choose: distinct(3, 7),
          starts: { at: (e) => (e % 3 === 1 ? ELSEWHERE : 5 + e * 1400), span: 5 + 7 * 1400 },
        }),
      ),
    ),
    makeCase({
      name: "all matrices but one elsewhere, many rows of x",
      ...{ lead: [2], indices: [3, 2], m: 20, experts: 4, rows: 9, cols: 12 },
      starts: { at: (e) => (e === 2 ? 7 : ELSEWHERE), span: 130 },
    }),
    makeCase({
      name: "all matrices elsewhere, some rows of x, a weight that is large enough to hold more",
      ...{ lead: [2], indices: [3, 2], m: 3, experts: 4, rows: 9, cols: 12, outDtype: "f32" },
      starts: { at: () => ELSEWHERE, span: 1300 },
    }),
    makeCase({
      name: "starts, many rows of x",
      ...{ lead: [2], indices: [3, 2], m: 20, experts: 4, rows: 9, cols: 12 },
      starts: { at: (e) => 111 * (e + 1), span: 600 },
    }),
    // Weights and outputs of every dtype, in both kernels.
    ...DTYPES.flatMap((weight) =>
      DTYPES.flatMap((outDtype) => [
        makeCase({ ...TOKENS, experts: 6, rows: 21, cols: 83, weight, outDtype }),
        makeCase({ lead: [40, 1], indices: [40, 2], experts: 3, rows: 21, cols: 83, weight, outDtype, ordered: true }),
      ]),
    ),
    ...[false, true].map((ordered) =>
      makeCase({
        lead: [24, 1],
        indices: [24, 2],
        experts: 3,
        rows: 40,
        cols: 2048,
        mean: 4,
        ordered,
        outDtype: "f32",
      }),
    ),
  ],
  mutants: {
    "the first expert for all": pairsAs((_, { inputs }) => ({ begin: inputs.starts?.data[0] ?? 0 })),
    "the next expert": pairsAs(({ begin }, { inputs, rows, cols, experts }) =>
      inputs.starts ? {} : { begin: (begin + rows * cols) % (experts * rows * cols) },
    ),
    "the expert of the pair before": pairsAs(({ pair }, { pairs }) => ({
      begin: (pairs[(pair || pairs.length) - 1] as GatheredPair).begin,
    })),
    "one expert for all slots of a token": pairsAs(({ pair }, { inputs, pairs }) => {
      const slots = inputs.rhsIndices.shape.at(-1) as number;
      return { begin: (pairs[pair - (pair % slots)] as GatheredPair).begin };
    }),
    "an index that broadcasts is read along the pairs": pairsAs(({ pair }, { inputs, rows, cols }) =>
      inputs.starts || pair >= inputs.rhsIndices.data.length
        ? {}
        : { begin: (inputs.rhsIndices.data[pair] as number) * rows * cols },
    ),
    "lhsIndices ignored": pairsAs(({ pair }, { inputs: { lhsIndices, x } }) =>
      lhsIndices ? { left: pair % product(x.shape.slice(0, -2)) } : {},
    ),
    "a row of x for each pair, though tokens share it": pairsAs(({ pair }, { inputs: { x } }) => ({
      left: pair % product(x.shape.slice(0, -2)),
    })),
    "rows of x in the order of the experts": pairsAs(({ pair }, { inputs: { order }, pairs }) =>
      order ? { left: (pairs[order.data[pair] as number] as GatheredPair).left } : {},
    ),
    "results in the order of the experts": outputAs((out, { inputs: { order }, rows }) => {
      const natural = out.slice();
      order?.data.forEach((pair, place) => {
        out.set(natural.subarray(pair * rows, (pair + 1) * rows), place * rows);
      });
    }),
    "experts with rows take each other's places": pairsAs(({ pair }, call) => {
      const used = [...new Set(chosenOf(call))].sort((a, b) => a - b);
      return call.inputs.order && !call.inputs.starts
        ? { begin: used.indexOf(chosenOf(call)[pair] as number) * call.rows * call.cols }
        : {};
    }),
    "the last row of an expert left out": orderedRows((i, n) => i + 1 < n),
    "one row to an expert": orderedRows((i) => i === 0),
    "rows beyond a multiple of 6 left out": orderedRows((i, n) => n <= 6 || i < n - (n % 6)),
    "rows beyond the first 8 of an expert left out": orderedRows((i) => i < 8),
    "rows beyond the first 64 of an expert left out": orderedRows((i) => i < 64),
    "rows beyond the first 504 of an expert left out": orderedRows((i) => i < 504),
    "starts ignored": pairsAs((_, { inputs, rows, cols }) =>
      inputs.starts ? { begin: (_.begin % 3) * rows * cols } : {},
    ),
    "starts in bytes": pairsAs(({ begin }, { inputs }) => (inputs.starts ? { begin: Math.floor(begin / 2) } : {})),
    "starts rounded to whole rows": pairsAs(({ begin }, { inputs, cols }) =>
      inputs.starts ? { begin: begin - (begin % cols) } : {},
    ),
    "products of matrices elsewhere are 0": outputAs((out, { pairs, m, rows }) => {
      for (const { pair, begin } of pairs) if (begin === ELSEWHERE) out.fill(0, pair * m * rows, (pair + 1) * m * rows);
    }),
    "matrices elsewhere are the weight's first": pairsAs(({ begin }) => (begin === ELSEWHERE ? { begin: 0 } : {})),
    "matrices elsewhere are the weight's last": pairsAs(({ begin }, { inputs: { weight }, rows, cols }) =>
      begin === ELSEWHERE ? { begin: weight.data.length - rows * cols } : {},
    ),
    "rows of pairs beside those elsewhere stay, too": outputAs((out, { inputs, pairs, m, rows }) => {
      for (const { pair } of pairs)
        if (pairs[pair + 1]?.begin === ELSEWHERE)
          for (let i = pair * m * rows; i < (pair + 1) * m * rows; i++) out[i] = inputs.out?.data[i] as number;
    }),
    "the output's former contents are added": outputAs((out, { inputs, pairs, m, rows }) => {
      for (const { pair, begin } of pairs)
        if (begin !== ELSEWHERE && inputs.out)
          for (let i = pair * m * rows; i < (pair + 1) * m * rows; i++)
            (out[i] as number) += inputs.out.data[i] as number;
    }),
    "the matrix not transposed": inputsAs(({ inputs: { weight, starts }, rows, cols }) => ({
      weight: {
        ...weight,
        data: starts
          ? weight.data
          : weight.data.map((_, i) => {
              const at = i % (rows * cols);
              return weight.data[i - at + (at % rows) * cols + Math.floor(at / rows)] as number;
            }),
      },
    })),
    "experts that nobody chose leak": outputAs((out, { inputs: { weight } }) => {
      const all = weight.data.reduce((a, b) => a + b, 0);
      for (let i = 0; i < out.length; i++) (out[i] as number) += 0 * all;
    }),
    "the first row of a matrix of x for all": outputAs((out, { m, rows }) => {
      for (let i = 0; i < out.length; i++) out[i] = out[i - (Math.floor(i / rows) % m) * rows] as number;
    }),
    "the last row of a matrix of x left out": outputAs((out, { m, rows }) => {
      for (let i = 0; i < out.length; i++) if (m > 1 && Math.floor(i / rows) % m === m - 1) out[i] = 0;
    }),
    "rows of x beyond the first 504 left out": outputAs((out, { m, rows }) => {
      for (let i = 0; i < out.length; i++) if (Math.floor(i / rows) % m >= 504) out[i] = 0;
    }),
    "the last column unwritten": outputAs((out, { rows }) => {
      for (let i = rows - 1; i < out.length; i += rows) out[i] = Number.NaN;
    }),
    "columns beyond a multiple of 64 unwritten": outputAs((out, { rows }) => {
      for (let i = 0; i < out.length; i++) if (i % rows >= 64 && i % rows >= rows - (rows % 64)) out[i] = Number.NaN;
    }),
    "the last contracted element skipped": columnsOfX((l, cols) => l + 1 < cols),
    "a tail of 4 skipped": columnsOfX((l, cols) => l < cols - (cols % 4)),
    "a tail of 32 skipped": columnsOfX((l, cols) => cols < 32 || l < cols - (cols % 32)),
    "pieces beyond the first 128 skipped": columnsOfX((l) => l < 128),
    "sums in bf16": reference(({ inputs: { x, weight }, pairs, rows, m, cols }) => {
      const out = new Float64Array(pairs.length * m * rows);
      for (const { pair, left, begin } of pairs)
        for (let i = 0; i < m; i++)
          for (let j = 0; j < rows; j++) {
            let sum = 0;
            for (let l = 0; l < cols; l++) {
              const factor = x.data[(left * m + i) * cols + l] as number;
              sum = roundTo("bf16", sum + factor * (weight.data[begin + j * cols + l] as number));
            }
            out[(pair * m + i) * rows + j] = sum;
          }
      return out;
    }),
    "the weight rounded to bf16": inputsAs(({ inputs: { weight } }) => ({
      weight: { ...weight, data: weight.data.map((value) => roundTo("bf16", value)) },
    })),
    "an f32 output through the dtype of x": reference((call) => {
      const out = right(call);
      return call.options.outDtype === "f32" && call.act !== "f32"
        ? out.map((value) => roundTo(call.act as "bf16", value))
        : out;
    }),
    "the output left unwritten": outputAs((out) => out.fill(Number.NaN)),
  },
};
