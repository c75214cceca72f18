// What ops of gathered products share: a pair is a matrix of x and the matrix of a stack that an index has chosen for it.
// native/gathered_rows.h is the kernels' side.
import { type BatchAxis, broadcastAxes, broadcastShape } from "./broadcast.ts";
import { wrongKind } from "./errors.ts";
import { isOpContext } from "./op.ts";
import type { OpContext, TensorSpec } from "./op_types.ts";
import { checkCount, namesOf } from "./options.ts";
import type { Tensor } from "./tensor.ts";

/** The sides of a batch that gathered_rows.h counts. */
const AXES = 3;
/** Matrices of a stack whose pairs can be ordered, as many as `moeOrder` counts. */
const MOST_ORDERED = 65536;
const MOST = 0x7fffffff;

/** What `starts`, which says where in a weight each matrix begins, has for a matrix that the weight does not hold. */
export const ELSEWHERE = 0xffffffff;

/** Params of kernels of gathered products. */
export const GATHERED_PARAMS = {
  pairs: "u32",
  /** Rows of a matrix of x. */
  m: "u32",
  /** Of the stack, and of x. */
  matrices: "u32",
  lefts: "u32",
  rhsCount: "u32",
  lhsCount: "u32",
  signedIndices: "u32",
  /** The two inner axes of the pairs; how far x or lhsIndices, and rhsIndices, are apart along all three. */
  size0: "u32",
  size1: "u32",
  left0: "u32",
  left1: "u32",
  left2: "u32",
  right0: "u32",
  right1: "u32",
  right2: "u32",
} as const;

type Words = readonly number[];
type Params = Readonly<Record<keyof typeof GATHERED_PARAMS, number>>;

const outOfRange = (name: string, matrices: number, [index, position]: Words, signed: number) =>
  `\`${name}\` must be from 0 to ${matrices - 1}, got ${signed ? (index as number) | 0 : index} at position ${position}`;

/** Faults of kernels of gathered products. */
export const GATHERED_FAULTS = {
  rhsIndices: (words: Words, { matrices, signedIndices }: Params) =>
    outOfRange("rhsIndices", matrices, words, signedIndices),
  lhsIndices: (words: Words, { lefts, signedIndices }: Params) => outOfRange("lhsIndices", lefts, words, signedIndices),
};
/** The same of kernels that take `order` and `offsets`. */
export const ORDERED_FAULTS = {
  ...GATHERED_FAULTS,
  offsets: ([offset, position]: Words, { pairs }: Params) =>
    `\`offsets\` must ascend from 0 to ${pairs}, got ${(offset as number) | 0} at position ${position}`,
  order: ([pair, position]: Words) =>
    `\`order\` must have the pairs of each matrix of \`rhsIndices\` in ascending order, got ${
      (pair as number) | 0
    } at position ${position}`,
};

type Seen = Pick<OpContext, "tensors" | "fail">;

/** Gathered products of a call of an op. */
export interface Gathered {
  /** Products, and rows of x in each. */
  readonly pairs: number;
  readonly m: number;
  /** The pairs' dimensions. */
  readonly lead: readonly number[];
  readonly params: Params;
}

/**
 * Gathered products of x [.., M, inner] and a stack of so many matrices; to be asked before tensors are checked.
 *
 * `rhsIndices` broadcasts with `lhsIndices`, or without it with the leading dimensions of x.
 */
export function gatheredProducts(context: Seen, matrices: number): Gathered {
  if (!isOpContext(context)) throw wrongKind("gatheredProducts", "context", "be what an op's functions get", context);
  checkCount("gatheredProducts", "matrices", matrices);
  const { tensors, fail } = context;
  const { x, rhsIndices, lhsIndices, order, offsets } = tensors as Record<string, Tensor>;
  const shape = (x as Tensor).shape;
  if (shape.length < 2) fail("x", "have at least 2 dimensions", shape);
  const m = shape[shape.length - 2] as number;
  const stack = shape.slice(0, -2);
  const left = lhsIndices ? lhsIndices.shape : stack;
  const right = (rhsIndices as Tensor).shape;
  const axes = broadcastAxes(left, right);
  if (!axes) {
    const other = lhsIndices ? `with \`lhsIndices\` [${left}]` : `with the leading dimensions of \`x\` [${left}]`;
    return fail("rhsIndices", `broadcast ${other.replaceAll(",", ", ")}`, right);
  }
  if (axes.length > AXES) fail("rhsIndices", `broadcast along at most ${AXES} dimensions`, right);
  const lead = broadcastShape(left, right);
  const pairs = lead.reduce((a, b) => a * b, 1);
  const lefts = stack.reduce((a, b) => a * b, 1);
  if (pairs * m > MOST) fail("rhsIndices", "choose for at most 2³¹ − 1 rows of `x`", pairs * m);
  if (lefts * m > MOST) fail("x", "have at most 2³¹ − 1 rows", lefts * m);
  if (!order !== !offsets)
    fail(order ? "offsets" : "order", `be given with \`${order ? "order" : "offsets"}\``, undefined);
  if (order && m !== 1) fail("x", "have one row to a matrix (M = 1) with `order`", shape);
  if (order && matrices > MOST_ORDERED) fail("order", `be given for at most ${MOST_ORDERED} matrices`, matrices);
  return { pairs, m, lead, params: paramsOf(axes, { pairs, m, matrices, lefts }, rhsIndices as Tensor, lhsIndices) };
}

function paramsOf(
  axes: readonly BatchAxis[],
  counts: Pick<Params, "pairs" | "m" | "matrices" | "lefts">,
  rhsIndices: Tensor,
  lhsIndices?: Tensor,
): Params {
  const one: BatchAxis = { size: 1, left: 0, right: 0 };
  const [a2, a1, a0] = [...Array<BatchAxis>(AXES - axes.length).fill(one), ...axes] as [
    BatchAxis,
    BatchAxis,
    BatchAxis,
  ];
  return {
    ...counts,
    rhsCount: rhsIndices.size,
    lhsCount: lhsIndices?.size ?? 0,
    signedIndices: rhsIndices.dtype === "i32" ? 1 : 0,
    size0: a0.size,
    size1: a1.size,
    left0: a0.left,
    left1: a1.left,
    left2: a2.left,
    right0: a0.right,
    right1: a1.right,
    right2: a2.right,
  };
}

/** What slots are counted of: pairs with m rows of x each, in the order of the matrices or not. */
export interface GatheredSizes {
  readonly pairs: number;
  readonly m: number;
  readonly matrices: number;
  readonly ordered: boolean;
}

/** Slots of up to `most` rows of x that one matrix multiplies: see `GatheredOrder::rows`. */
export function gatheredSlots(sizes: GatheredSizes, most: number): number {
  namesOf("gatheredSlots", "sizes", sizes);
  const { pairs, m, matrices, ordered } = sizes;
  for (const [argument, value] of Object.entries({ pairs, m, matrices, most }))
    checkCount("gatheredSlots", argument, value);
  if (typeof ordered !== "boolean") throw wrongKind("gatheredSlots", "ordered", "be a boolean", ordered);
  return ordered ? Math.floor(pairs / most) + matrices : pairs * Math.ceil(m / most);
}

/** The index inputs of ops of gathered products; `gathered` is what `gatheredProducts` says of the call. */
export function gatheredInputs(gathered: (c: OpContext) => Gathered) {
  if (typeof gathered !== "function") throw wrongKind("gatheredInputs", "gathered", "be a function", gathered);
  const own = (name: string, text: string) => ({
    text,
    of: ({ tensors }: OpContext) => (tensors[name] as Tensor).shape,
  });
  return {
    rhsIndices: {
      dtype: ["u32", "i32"],
      shape: own("rhsIndices", "..., k"),
      doc: "the matrix of the stack that each pair takes; broadcasts with `lhsIndices`, or with the leading dimensions of `x`",
    },
    lhsIndices: {
      dtype: ["=rhsIndices"],
      shape: own("lhsIndices", "..., k"),
      optional: true,
      doc: "the matrix of `x` that each pair takes, counted over its leading dimensions",
    },
    order: {
      dtype: ["i32"],
      shape: { text: "pairs", of: (c) => [gathered(c).pairs] },
      optional: true,
      doc: "from `moeOrder`: the pairs in the order of the matrices that they take; those of one matrix are then one product",
    },
    offsets: {
      dtype: ["i32"],
      shape: { text: "E + 1", of: (c) => [gathered(c).params.matrices + 1] },
      optional: true,
      doc: "from `moeOrder`: where the pairs of each matrix begin in `order`, and where the last ones end",
    },
  } as const satisfies Record<string, TensorSpec>;
}
