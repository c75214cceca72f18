// What suites of gathered products share: the indices of their cases, and wrong implementations.
import type { Case, CaseInput, Random, Reference64, ReferenceFunction } from "@mlxts/core/testing";
import { type GatheredPair, gatheredPairs, pairOrder } from "./gathered_pairs.ts";

/** What a case multiplies. */
export interface GatheredShape {
  name?: string;
  /** Of x, without its last two; of `rhsIndices`; and of `lhsIndices`, where there are some. */
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
  signed?: boolean;
  outDtype?: "f32" | "f16" | "bf16";
  mean?: number;
  dtypes?: Case["dtypes"];
}

/** Five tokens with four experts each. */
export const TOKENS = { lead: [5, 1], indices: [5, 4] } as const;
/** Experts of a token differ, as a router's do. */
export const distinct = (k: number, experts: number) => (i: number) =>
  (Math.floor(i / k) * 7 + (i % k) * 3 + 1) % experts;
/** A first run of one row to an expert, then one of two, and so on. */
export const moreAndMore = (i: number) => Math.ceil(Math.sqrt(2 * i + 2.25) - 0.5);

export const product = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** The indices of a case, the dimensions of its pairs, and the experts that somebody chose. */
export function chooseExperts(
  random: Random,
  { lead: stack, indices, lhs, experts, choose, signed, ordered }: GatheredShape,
): { inputs: Record<string, CaseInput>; lead: number[]; chosen: ReadonlySet<number> } {
  const dtype = signed ? "i32" : "u32";
  const count = product(indices);
  const data = choose ? Float64Array.from({ length: count }, (_, i) => choose(i)) : random.integers(count, experts);
  const rhsIndices: CaseInput = { dtype, shape: indices, data };
  const lhsIndices: CaseInput | undefined = lhs && {
    dtype,
    shape: lhs,
    data: random.integers(product(lhs), product(stack)),
  };
  const { lead, pairs } = gatheredPairs(stack, rhsIndices, lhsIndices);
  const inputs: Record<string, CaseInput> = { rhsIndices, ...(lhsIndices && { lhsIndices }) };
  if (ordered) {
    const { order, offsets } = pairOrder(
      pairs.map(({ matrix }) => matrix),
      experts,
    );
    inputs.order = { dtype: "i32", shape: [order.length], data: order };
    inputs.offsets = { dtype: "i32", shape: [experts + 1], data: offsets };
  }
  return { inputs, lead, chosen: new Set(data) };
}

/** What the names of cases say of a shape. */
export const gatheredName = ({ name = "", lead, indices, lhs, m = 1, experts, rows, cols, ...rest }: GatheredShape) =>
  [
    name,
    `x [${[...lead, m, cols]}] rhs [${indices}]${lhs ? ` lhs [${lhs}]` : ""} of ${experts}, ${rows} rows`,
    rest.signed ? "i32" : "u32",
    rest.ordered && "ordered",
    rest.outDtype,
  ]
    .filter(Boolean)
    .join(" ");

/** A call in plain numbers. */
export interface GatheredCall {
  inputs: Record<"x" | "rhsIndices", Reference64> & {
    lhsIndices?: Reference64;
    order?: Reference64;
    offsets?: Reference64;
  };
  pairs: readonly GatheredPair[];
  m: number;
  rows: number;
  experts: number;
}

/** Ways to make wrong implementations of `right`; `reference` gives each the form that suites take. */
export function gatheredChanges<C extends GatheredCall>(
  reference: (formula: (call: C) => Float64Array) => ReferenceFunction,
  right: (call: C) => Float64Array,
) {
  /** Other pairs than the right ones. */
  const pairsAs = (change: (pair: GatheredPair, call: C) => Partial<GatheredPair>) =>
    reference((call) => right({ ...call, pairs: call.pairs.map((pair) => ({ ...pair, ...change(pair, call) })) }));
  /** The right output with some of it changed. */
  const outputAs = (change: (out: Float64Array, call: C) => void) =>
    reference((call) => {
      const out = right(call);
      change(out, call);
      return out;
    });
  /** Rows of the output are left out where `kept(i, m)` is false of the i-th of m rows of a matrix of x. */
  const rowsOfX = (kept: (i: number, m: number) => boolean) =>
    outputAs((out, { m, rows }) => {
      for (let i = 0; i < out.length; i++) if (!kept(Math.floor(i / rows) % m, m)) out[i] = 0;
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
  /** Numbers of experts that nobody chose, which cases set to NaN, get into the output. */
  const leak = (numbersOf: (call: C) => Float64Array) =>
    outputAs((out, call) => {
      const all = numbersOf(call).reduce((a, b) => a + b, 0);
      for (let i = 0; i < out.length; i++) (out[i] as number) += 0 * all;
    });
  return { pairsAs, outputAs, rowsOfX, orderedRows, leak };
}

/** Wrong implementations that every suite of gathered products rejects. */
export function gatheredMutants<C extends GatheredCall>({
  pairsAs,
  outputAs,
  rowsOfX,
  orderedRows,
}: Omit<ReturnType<typeof gatheredChanges<C>>, "leak">): Record<string, ReferenceFunction> {
  const stackOf = ({ inputs: { x } }: C) => product(x.shape.slice(0, -2));
  const at = (pairs: readonly GatheredPair[], pair: number) => pairs[pair] as GatheredPair;
  return {
    "the first expert for all": pairsAs(() => ({ matrix: 0 })),
    "the next expert": pairsAs(({ matrix }, { experts }) => ({ matrix: (matrix + 1) % experts })),
    "the expert of the pair before": pairsAs(({ pair }, { pairs }) => ({
      matrix: at(pairs, (pair || pairs.length) - 1).matrix,
    })),
    "the expert of the next pair": pairsAs(({ pair }, { pairs }) => ({
      matrix: at(pairs, (pair + 1) % pairs.length).matrix,
    })),
    "one expert for all slots of a token": pairsAs(({ pair }, { inputs, pairs }) => {
      const slots = inputs.rhsIndices.shape.at(-1) as number;
      return { matrix: at(pairs, pair - (pair % slots)).matrix };
    }),
    "an index that broadcasts is read along the pairs": pairsAs(({ pair }, { inputs: { rhsIndices } }) =>
      pair >= rhsIndices.data.length ? {} : { matrix: rhsIndices.data[pair] as number },
    ),
    "lhsIndices ignored": pairsAs(({ pair }, call) => (call.inputs.lhsIndices ? { left: pair % stackOf(call) } : {})),
    "a row of x for each pair, though tokens share it": pairsAs(({ pair }, call) => ({ left: pair % stackOf(call) })),
    "rows of x in the order of the experts": pairsAs(({ pair }, { inputs: { order }, pairs }) =>
      order ? { left: at(pairs, order.data[pair] as number).left } : {},
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
    "offsets of the next expert": pairsAs(({ pair }, { inputs: { order, offsets }, experts }) => {
      if (!offsets || !order) return {};
      const place = order.data.indexOf(pair);
      const shifted = offsets.data.findIndex((_, e) => place < (offsets.data[Math.min(e + 2, experts)] as number));
      return { matrix: Math.min(Math.max(shifted, 0), experts - 1) };
    }),
    "the last row of an expert left out": orderedRows((i, n) => i + 1 < n),
    "one row to an expert": orderedRows((i) => i === 0),
    "rows beyond a multiple of 6 left out": orderedRows((i, n) => n <= 6 || i < n - (n % 6)),
    "rows beyond the first 8 of an expert left out": orderedRows((i) => i < 8),
    "rows beyond the first 64 of an expert left out": orderedRows((i) => i < 64),
    "the first row of a matrix of x for all": outputAs((out, { m, rows }) => {
      for (let i = 0; i < out.length; i++) out[i] = out[i - (Math.floor(i / rows) % m) * rows] as number;
    }),
    "the last row of a matrix of x left out": rowsOfX((i, m) => m === 1 || i < m - 1),
    "rows of x beyond the first 8 left out": rowsOfX((i) => i < 8),
    "the output left unwritten": outputAs((out) => out.fill(Number.NaN)),
  };
}
