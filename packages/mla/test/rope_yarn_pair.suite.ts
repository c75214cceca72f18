import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { ropeYarnPair } from "../src/index.ts";
import { reference as ofOne, type Pairing, rotate, tableOf } from "./rope_yarn.suite.ts";

const random = new Random(23);

interface Side {
  heads: number;
  /** Columns that are not rotated: before those that are, and behind. */
  before?: number;
  behind?: number;
}

interface Shape {
  N?: number;
  L?: number;
  q: Side;
  k: Side;
  pairs: number;
  /** Default: a position for each token. */
  starts?: readonly number[];
  pairing?: Pairing;
  inPlace?: Record<string, string>;
}

const ROWS = 50;

function makeCase({ N = 1, L = 1, q, k, pairs, starts, pairing, inPlace }: Shape): Case {
  const side = ({ heads, before = 0, behind = 0 }: Side) => {
    const shape = [N, L, heads, before + 2 * pairs + behind];
    return { dtype: "act" as const, shape, data: random.normals(shape.reduce((a, b) => a * b, 1)) };
  };
  const positions = starts ?? Array.from({ length: N * L }, (_, i) => (7 * i + 1) % ROWS);
  return {
    name: `${N}×${L} ${pairs} pairs ${JSON.stringify({ q, k, starts, pairing, inPlace })}`,
    inputs: {
      q: side(q),
      k: side(k),
      positions: { dtype: "i32", shape: starts ? [N] : [N, L], data: positions },
      table: tableOf(pairs, ROWS),
    },
    options: {
      ...(q.before ? { firstQ: q.before } : {}),
      ...(k.before ? { firstK: k.before } : {}),
      ...(pairing ? { pairing } : {}),
    },
    ...(inPlace ? { inPlace } : {}),
  };
}

type Options = { firstQ?: number; firstK?: number; pairing?: Pairing };
type Outputs = Record<"outQ" | "outK", Reference64>;
type Inputs = Record<"q" | "k" | "positions" | "table", Reference64>;

/** Both rotations by the reference of one; `change` gives the inputs and options that are used instead. */
const reference =
  (change: (inputs: Inputs, options: Options) => [Inputs, Options] = (...given) => [...given]): ReferenceFunction =>
  (given, options: Options, dtype) => {
    const [{ q, k, positions, table }, { firstQ, firstK, pairing }] = change(given as Inputs, options);
    const one = (x: Reference64, first = 0) =>
      ofOne(rotate)({ x, positions, table }, { first, ...(pairing ? { pairing } : {}) } as never, dtype)
        .out as Reference64;
    return { outQ: one(q, firstQ), outK: one(k, firstK) };
  };

const heads = ({ shape, data }: Reference64): Reference64 => {
  const [, , count = 1, dim = 1] = shape;
  return { shape, data: data.map((_, i) => data[i - (Math.floor(i / dim) % count) * dim] as number) };
};

export const suite: Suite = {
  op: ropeYarnPair,
  errorClass: "S",
  reference: reference(),
  cases: (["interleaved", "half"] as const).flatMap((pairing) => [
    ...[1, 2, 3, 5, 8, 15, 16, 17, 31, 33].map((pairs) =>
      makeCase({ L: 3, q: { heads: 5, before: 3 }, k: { heads: 2, before: 9, behind: 1 }, pairs, pairing }),
    ),
    makeCase({ N: 2, L: 5, q: { heads: 8, before: 128 }, k: { heads: 1, before: 512 }, pairs: 32, pairing }),
    makeCase({ N: 3, L: 4, q: { heads: 3 }, k: { heads: 3, before: 16 }, pairs: 8, starts: [0, 46, 11], pairing }),
    makeCase({ L: 2, q: { heads: 130, before: 1 }, k: { heads: 131 }, pairs: 9, pairing }),
    makeCase({ L: 2, q: { heads: 1 }, k: { heads: 40 }, pairs: 20, pairing }),
    makeCase({ L: 3, q: { heads: 3 }, k: { heads: 2 }, pairs: 17, pairing, inPlace: { outQ: "q", outK: "k" } }),
  ]),
  mutants: {
    "first column of q for k": reference((inputs, options) => [inputs, { ...options, firstK: options.firstQ ?? 0 }]),
    "first columns of k rotated": reference((inputs, options) => [inputs, { ...options, firstK: 0 }]),
    "first columns of q rotated": reference((inputs, options) => [inputs, { ...options, firstQ: 0 }]),
    "k by the other pairing": (given, options: Options, dtype) => {
      const pairing = options.pairing === "half" ? "interleaved" : "half";
      const { outQ } = reference()(given, options as never, dtype) as Outputs;
      const { outK } = reference()(given, { ...options, pairing } as never, dtype) as Outputs;
      return { outQ, outK };
    },
    "one head of k for all": reference((inputs, options) => [{ ...inputs, k: heads(inputs.k) }, options]),
    "one head of q for all": reference((inputs, options) => [{ ...inputs, q: heads(inputs.q) }, options]),
    "k left unwritten": (given, options, dtype) => {
      const { outQ, outK } = reference()(given, options, dtype) as Outputs;
      return { outQ, outK: { ...outK, data: outK.data.map(() => Number.NaN) } };
    },
  },
};
