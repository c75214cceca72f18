// Cases of gathered products with quantized matrices, and their reference.
import { type Case, type CaseInput, Random, type Reference64, type ReferenceFunction } from "@mlxts/core/testing";
import { gatheredPairs } from "@mlxts/test-kit/gathered_pairs";
import {
  chooseExperts,
  type GatheredCall,
  type GatheredShape,
  gatheredName,
  product as sizeOf,
} from "@mlxts/test-kit/gathered_suite";
import { randomQuantized, setting } from "./groups.ts";
import { type Options, type Product, right } from "./product_cases.ts";

type Floats = "f32" | "f16" | "bf16";
export interface Shape extends GatheredShape {
  bits?: 4 | 8;
  groupSize?: 32 | 64 | 128;
  scales?: Floats;
  tiny?: number;
  /** Codes, scales and biases begin at an odd byte. */
  anyByte?: boolean;
}

/** A stack whose matrices that nobody chose have NaN scales and biases. */
function randomStack(
  shape: Shape,
  chosen: ReadonlySet<number>,
  own: number,
): Record<"weight" | "scales" | "biases", CaseInput> {
  const { experts, rows, cols, bits = 4, groupSize = 32, scales = "act" } = shape;
  const made = randomQuantized(experts, rows, cols, { bits, groupSize }, own);
  const groups = (rows * cols) / groupSize;
  const poisoned = (data: Float64Array) => data.map((v, i) => (chosen.has(Math.floor(i / groups)) ? v : Number.NaN));
  const ofGroups = [experts, rows, cols / groupSize];
  return {
    weight: { dtype: "u32", shape: [experts, rows, (cols * bits) / 32], data: made.weight },
    scales: { dtype: scales, shape: ofGroups, data: poisoned(made.scales) },
    biases: { dtype: scales, shape: ofGroups, data: poisoned(made.biases) },
  };
}

const named = (prefix: string, parts: object) =>
  Object.fromEntries(Object.entries(parts).map(([part, value]) => [`${prefix}${part}`, value]));

/**
 * Makes cases of an op whose stacks have these names before those of their parts. Their seeds follow `seed`, whatever other
 * cases the process has made.
 */
export function caseMaker(stacks: readonly string[] = [""], seed = 0): (shape: Shape) => Case {
  let last = seed;
  return (shape) => makeCase(shape, stacks, ++last);
}

function makeCase(shape: Shape, stacks: readonly string[], seed: number): Case {
  const { m = 1, rows, cols, bits = 4, groupSize = 32, mean = 0, tiny = 1 } = shape;
  const random = new Random(seed * 104729);
  const { inputs, lead, chosen } = chooseExperts(random, shape);
  const unit = tiny / Math.sqrt(cols * (1 + mean * mean));
  const { dtypes, outDtype, anyByte } = shape;
  const ofEach = (parts: (i: number) => object) =>
    Object.assign({}, ...stacks.map((stack, i) => named(stack, parts(i))));
  return {
    name: [gatheredName(shape), setting(bits, groupSize), shape.scales, shape.tiny, anyByte && "at odd bytes"]
      .filter(Boolean)
      .join(" "),
    inputs: {
      x: {
        dtype: "act",
        shape: [...shape.lead, m, cols],
        data: random.normals(sizeOf(shape.lead) * m * cols, unit, mean * unit),
      },
      ...ofEach((i) => randomStack(shape, chosen, seed + 100_003 * i)),
      ...inputs,
    },
    options: { ...ofEach(() => ({ bits, groupSize, mode: "affine" })), ...(outDtype && { outDtype }) },
    ask: { out: { dtype: outDtype ?? "act", shape: [...lead, m, rows] } },
    ...(dtypes && { dtypes }),
    ...(anyByte && { anyByte: stacks.flatMap((stack) => ["weight", "scales", "biases"].map((part) => stack + part)) }),
  };
}

/** What a call multiplies, for references and mutants. */
export interface Call extends GatheredCall {
  inputs: GatheredCall["inputs"] & Record<"weight" | "scales" | "biases", Reference64>;
  cols: number;
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
