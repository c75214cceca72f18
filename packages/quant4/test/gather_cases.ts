// Cases of gathered products with quantized matrices, and their reference.
import { type Case, type CaseInput, Random, type Reference64, type ReferenceFunction } from "@mlxts/core/testing";
import { pairOrder } from "@mlxts/test-kit/pair_order";
import { type GatheredPair, gatheredPairs } from "../src/reference_gather.ts";
import { randomQuantized, setting } from "./groups.ts";
import { type Options, type Product, right } from "./product_cases.ts";

type Floats = "f32" | "f16" | "bf16";
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
  bits?: 4 | 8;
  groupSize?: 32 | 64 | 128;
  /** The expert of each index; default: at random. */
  choose?: (i: number) => number;
  ordered?: boolean;
  signed?: boolean;
  scales?: Floats;
  outDtype?: Floats;
  mean?: number;
  dtypes?: readonly Floats[];
  tiny?: number;
}

const count = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
let seed = 0;

/** A case whose experts that nobody chose have NaN scales and biases. */
export function makeCase(shape: Shape): Case {
  const { name = "", lead, indices, lhs, m = 1, experts, rows, cols, bits = 4, groupSize = 32, mean = 0 } = shape;
  const random = new Random(++seed * 104729);
  const made = randomQuantized(experts, rows, cols, { bits, groupSize }, seed);
  const rhs = shape.choose
    ? Float64Array.from({ length: count(indices) }, (_, i) => (shape.choose as (i: number) => number)(i))
    : random.integers(count(indices), experts);
  const chosen = new Set(rhs);
  const groups = (rows * cols) / groupSize;
  const poisoned = (data: Float64Array) => data.map((v, i) => (chosen.has(Math.floor(i / groups)) ? v : Number.NaN));
  const unit = (shape.tiny ?? 1) / Math.sqrt(cols * (1 + mean * mean));
  const index = shape.signed ? "i32" : "u32";
  const scales = shape.scales ?? "act";
  const inputs: Record<string, CaseInput> = {
    x: { dtype: "act", shape: [...lead, m, cols], data: random.normals(count(lead) * m * cols, unit, mean * unit) },
    weight: { dtype: "u32", shape: [experts, rows, (cols * bits) / 32], data: made.weight },
    scales: { dtype: scales, shape: [experts, rows, cols / groupSize], data: poisoned(made.scales) },
    biases: { dtype: scales, shape: [experts, rows, cols / groupSize], data: poisoned(made.biases) },
    rhsIndices: { dtype: index, shape: indices, data: rhs },
  };
  const lhsData = lhs && random.integers(count(lhs), count(lead));
  if (lhs && lhsData) inputs.lhsIndices = { dtype: index, shape: lhs, data: lhsData };
  const gathered = gatheredPairs(lead, { shape: indices, data: rhs }, lhs && lhsData && { shape: lhs, data: lhsData });
  if (shape.ordered) {
    const { order, offsets } = pairOrder(
      gathered.pairs.map(({ matrix }) => matrix),
      experts,
    );
    inputs.order = { dtype: "i32", shape: [order.length], data: order };
    inputs.offsets = { dtype: "i32", shape: [experts + 1], data: offsets };
  }
  const text = `x [${[...lead, m, cols]}] rhs [${indices}]${lhs ? ` lhs [${lhs}]` : ""} of ${experts}, ${rows} rows`;
  const { dtypes, outDtype, ordered } = shape;
  return {
    name: [name, text, setting(bits, groupSize), index, ordered && "ordered", shape.scales, outDtype, shape.tiny]
      .filter(Boolean)
      .join(" "),
    inputs,
    options: { bits, groupSize, mode: "affine", ...(outDtype && { outDtype }) },
    ask: { out: { dtype: outDtype ?? "act", shape: [...gathered.lead, m, rows] } },
    ...(dtypes && { dtypes }),
  };
}

/** What a call multiplies, for references and mutants. */
export interface Call {
  inputs: Record<"x" | "weight" | "scales" | "biases" | "rhsIndices", Reference64> & {
    lhsIndices?: Reference64;
    order?: Reference64;
    offsets?: Reference64;
  };
  pairs: readonly GatheredPair[];
  m: number;
  rows: number;
  cols: number;
  experts: number;
  options: Options;
  dtype: Floats;
}

/** The products of all pairs, one after the other. */
export function multiply({ inputs, pairs, m, rows, cols, options, dtype }: Call, product: Product = right) {
  const { x, weight, scales, biases } = inputs;
  const out = new Float64Array(pairs.length * m * rows);
  const part = (t: Reference64, size: number, at: number) => t.data.subarray(at * size, (at + 1) * size);
  for (const { pair, left, matrix } of pairs) {
    const matrices = {
      x: part(x, m * cols, left),
      words: part(weight, (rows * cols * options.bits) / 32, matrix),
      scales: part(scales, (rows * cols) / options.groupSize, matrix),
      biases: part(biases, (rows * cols) / options.groupSize, matrix),
    };
    out.set(product({ ...matrices, rows, cols, options, dtype }), pair * m * rows);
  }
  return out;
}

/** A reference, or a wrong one, of a call. */
export const reference =
  (formula: (call: Call) => Float64Array = multiply): ReferenceFunction =>
  (given, options, dtype) => {
    const inputs = given as unknown as Call["inputs"];
    const { x, weight, scales, rhsIndices, lhsIndices } = inputs;
    const [m, cols] = x.shape.slice(-2) as [number, number];
    const [experts, rows] = weight.shape as [number, number];
    const { lead, pairs } = gatheredPairs(x.shape.slice(0, -2), rhsIndices, lhsIndices);
    const groupSize = cols / (scales.shape.at(-1) as number);
    const all = { ...(options as unknown as Options), groupSize };
    return {
      out: {
        shape: [...lead, m, rows],
        data: formula({ inputs, pairs, m, rows, cols, experts, options: all, dtype }),
      },
    };
  };
