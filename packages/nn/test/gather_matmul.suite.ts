import { ELSEWHERE, roundTo } from "@mlxts/core";
import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { gatheredPairs } from "@mlxts/test-kit/gathered_pairs";
import {
  chooseExperts,
  distinct,
  type GatheredCall,
  type GatheredShape,
  gatheredChanges,
  gatheredMutants,
  gatheredName,
  moreAndMore,
  product,
  TOKENS,
} from "@mlxts/test-kit/gathered_suite";
import { gatherMatmul } from "../src/index.ts";
import { gatherMatmulReference } from "../src/reference_gather.ts";

const random = new Random(21);

export interface Shape extends GatheredShape {
  /** Where each expert begins, in a weight of so many elements. Where one is elsewhere, the output keeps what it had. */
  starts?: { at: (expert: number) => number; span: number };
  weight?: CaseInput["dtype"];
}

/**
 * Products of rms near 1, of an op whose weights have these names. Experts that nobody chose are NaN, and so is what lies
 * between matrices.
 */
export function makeCase(shape: Shape, weights: readonly string[] = ["weight"]): Case {
  const { m = 1, experts, rows, cols, starts, weight = "act", outDtype, mean = 0 } = shape;
  const { inputs: indices, lead, chosen } = chooseExperts(random, shape);
  const size = rows * cols;
  // Products that meet others are near 1.5, so that no output is far above the rest.
  const isGated = weights.length > 1;
  const matrix = () => random.normals(size, (isGated ? 0.3 : 1) / Math.sqrt(cols), isGated ? 1.5 / cols : 0);
  // A second weight has its matrices in the other order.
  const beginOf = (expert: number, second: boolean) =>
    starts?.at(second ? experts - 1 - expert : expert) ?? expert * size;
  function randomStack(second: boolean): CaseInput {
    const data = new Float64Array(starts?.span ?? experts * size).fill(Number.NaN);
    for (const expert of chosen) {
      const begin = beginOf(expert, second);
      if (begin !== ELSEWHERE) data.set(matrix(), begin);
    }
    return { dtype: weight, shape: starts ? [starts.span] : [experts, rows, cols], data };
  }
  const stacks = Object.fromEntries(weights.map((name, i) => [name, randomStack(i > 0)]));
  const inputs: Record<string, CaseInput> = {
    x: {
      dtype: "act",
      shape: [...shape.lead, m, cols],
      data: random.normals(product(shape.lead) * m * cols, 1, isGated ? 1 : mean),
    },
    ...stacks,
    ...indices,
  };
  const out = { dtype: outDtype ?? "act", shape: [...lead, m, rows] } as const;
  if (starts) {
    for (const [i, name] of weights.entries()) {
      const data = Array.from({ length: experts }, (_, e) => beginOf(e, i > 0));
      inputs[weights.length > 1 ? `${name}Starts` : "starts"] = { dtype: "u32", shape: [experts], data };
    }
    if (Array.from({ length: experts }, (_, e) => starts.at(e)).includes(ELSEWHERE))
      inputs.out = { ...out, data: random.normals(product(out.shape)) };
  }
  return {
    name: `${gatheredName(shape)} weight ${weight}${starts ? " starts" : ""}`,
    inputs,
    options: { ...(starts ? { rows } : {}), ...(outDtype ? { outDtype } : {}) },
    ask: { out },
    ...(inputs.out && { inPlace: { out: "out" } }),
    ...(shape.dtypes ? { dtypes: shape.dtypes } : {}),
  };
}

interface Call extends GatheredCall {
  inputs: GatheredCall["inputs"] & { weight: Reference64; starts?: Reference64; out?: Reference64 };
  cols: number;
  options: { outDtype?: string };
  act: string;
}

/** A reference, or a wrong one, of the pairs of a call. */
const reference =
  (formula: (call: Call) => Float64Array): ReferenceFunction =>
  (given, options: { rows?: number; outDtype?: string }, act) => {
    const inputs = given as unknown as Call["inputs"];
    const { x, weight, starts, rhsIndices, lhsIndices } = inputs;
    const [m, cols] = x.shape.slice(-2) as [number, number];
    const rows = options.rows ?? (weight.shape[1] as number);
    const experts = starts ? starts.data.length : (weight.shape[0] as number);
    const { lead, pairs } = gatheredPairs(x.shape.slice(0, -2), rhsIndices, lhsIndices);
    return {
      out: { shape: [...lead, m, rows], data: formula({ inputs, pairs, rows, cols, m, experts, options, act }) },
    };
  };

/** The products of all pairs. */
export const gatheredReference = reference(({ inputs, pairs, rows }) => gatherMatmulReference(inputs, pairs, rows));
const right = ({ inputs, pairs, rows }: Call) => gatherMatmulReference(inputs, pairs, rows);
const changes = gatheredChanges<Call>(reference, right);
const { outputAs, rowsOfX, orderedRows, leak } = changes;
const inputsAs = (change: (call: Call) => Partial<Call["inputs"]>) =>
  reference((call) => right({ ...call, inputs: { ...call.inputs, ...change(call) } }));
const columnsOfX = (kept: (l: number, cols: number) => boolean) =>
  inputsAs(({ inputs: { x }, cols }) => ({
    x: { ...x, data: x.data.map((value, i) => (kept(i % cols, cols) ? value : 0)) },
  }));
/** Other places of matrices in a weight of one dimension. */
const startsAs = (change: (start: number, call: Call) => number) =>
  inputsAs((call) => {
    const { starts } = call.inputs;
    return starts ? { starts: { ...starts, data: starts.data.map((start) => change(start, call)) } } : {};
  });
/** The same of those that the weight holds. */
const heldStartsAs = (change: (start: number, call: Call) => number) =>
  startsAs((start, call) => (start === ELSEWHERE ? start : change(start, call)));
const isElsewhere = ({ inputs: { starts }, pairs }: Call, pair: number) =>
  starts?.data[pairs[pair]?.matrix as number] === ELSEWHERE;
/** The output where some pairs have, for each of their elements, something else: `change(element, what it was before)`. */
const pairsOfOutputAs = (
  chosen: (call: Call, pair: number) => boolean,
  change: (value: number, before: number) => number,
) =>
  outputAs((out, call) => {
    const { inputs, pairs, m, rows } = call;
    for (const { pair } of pairs)
      if (inputs.out && chosen(call, pair))
        for (let i = pair * m * rows; i < (pair + 1) * m * rows; i++)
          out[i] = change(out[i] as number, inputs.out.data[i] as number);
  });

const DTYPES = ["f32", "f16", "bf16"] as const;

export const suite: Suite = {
  op: gatherMatmul,
  errorClass: "R",
  reference: gatheredReference,
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
      choose: moreAndMore,
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
    ...gatheredMutants(changes),
    "rows beyond the first 504 of an expert left out": orderedRows((i) => i < 504),
    "starts ignored": heldStartsAs((start, { rows, cols }) => (start % 3) * rows * cols),
    "starts in bytes": heldStartsAs((start) => Math.floor(start / 2)),
    "starts rounded to whole rows": heldStartsAs((start, { cols }) => start - (start % cols)),
    "products of matrices elsewhere are 0": pairsOfOutputAs(isElsewhere, () => 0),
    "matrices elsewhere are the weight's first": startsAs((start) => (start === ELSEWHERE ? 0 : start)),
    "matrices elsewhere are the weight's last": startsAs((start, { inputs: { weight }, rows, cols }) =>
      start === ELSEWHERE ? weight.data.length - rows * cols : start,
    ),
    "rows of pairs beside those elsewhere stay, too": pairsOfOutputAs(
      (call, pair) => isElsewhere(call, pair + 1),
      (_, before) => before,
    ),
    "the output's former contents are added": pairsOfOutputAs(
      (call, pair) => !isElsewhere(call, pair),
      (value, before) => value + before,
    ),
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
    "experts that nobody chose leak": leak(({ inputs: { weight } }) => weight.data),
    "rows of x beyond the first 504 left out": rowsOfX((i) => i < 504),
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
    "sums in bf16": reference(({ inputs, pairs, rows }) =>
      gatherMatmulReference(inputs, pairs, rows, (sum) => roundTo("bf16", sum)),
    ),
    "the weight rounded to bf16": inputsAs(({ inputs: { weight } }) => ({
      weight: { ...weight, data: weight.data.map((value) => roundTo("bf16", value)) },
    })),
    "an f32 output through the dtype of x": reference((call) => {
      const out = right(call);
      return call.options.outDtype === "f32" && call.act !== "f32"
        ? out.map((value) => roundTo(call.act as "bf16", value))
        : out;
    }),
  },
};
