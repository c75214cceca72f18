import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { ropeYarn, rotaryTable, yarnRotary } from "../src/index.ts";
import { ropeYarnReference } from "../src/reference.ts";

const random = new Random(22);

export type Pairing = "interleaved" | "half";
interface Shape {
  N?: number;
  L?: number;
  H?: number;
  /** Columns that are not rotated: before those that are, and behind. */
  before?: number;
  behind?: number;
  pairs: number;
  rows?: number;
  /** Default: a position for each token. */
  starts?: readonly number[];
  pairing?: Pairing;
  inPlace?: boolean;
}

export const tableOf = (pairs: number, rows: number) => ({
  dtype: "f32" as const,
  shape: [rows, 2, pairs],
  data: rotaryTable(
    yarnRotary({
      ropeDim: 2 * pairs,
      headDim: 2 * pairs,
      base: 1e4,
      factor: 40,
      originalLength: 4096,
      mscale: 0.7,
      mscaleAllDim: 1,
    }),
    rows,
  ),
});

function makeCase({ N = 1, L = 1, H = 1, before = 0, behind = 0, pairs, rows = 50, ...more }: Shape): Case {
  const { starts, pairing, inPlace } = more;
  const dim = before + 2 * pairs + behind;
  const positions = starts ?? Array.from({ length: N * L }, (_, i) => (7 * i + 1) % rows);
  return {
    name: `[${[N, L, H, dim]}] ${pairs} pairs from ${before} ${JSON.stringify(more)}`,
    inputs: {
      x: { dtype: "act", shape: [N, L, H, dim], data: random.normals(N * L * H * dim) },
      positions: { dtype: "i32", shape: starts ? [N] : [N, L], data: positions },
      table: tableOf(pairs, rows),
    },
    options: { ...(before > 0 ? { first: before } : {}), ...(pairing ? { pairing } : {}) },
    ...(inPlace ? { inPlace: { out: "x" } } : {}),
  };
}

interface Rotation {
  x: Float64Array;
  /** Of each row of x. */
  positions: Float64Array;
  table: Float64Array;
  dim: number;
  first: number;
  pairs: number;
  pairing: Pairing;
}
export const rotate = ({ x, positions, table, dim, first, pairs, pairing }: Rotation) => {
  const at = (row: number, part: number, i: number) =>
    table[((positions[row] as number) * 2 + part) * pairs + i] as number;
  return ropeYarnReference(
    x,
    dim,
    first,
    pairs,
    pairing,
    (row, i) => at(row, 0, i),
    (row, i) => at(row, 1, i),
  );
};

type Options = { first?: number; pairing?: Pairing };
/** `place`: the position of token (n, i) of L tokens, from what is given. */
export const reference =
  (
    formula: (rotation: Rotation) => Float64Array,
    place = (given: Float64Array, perToken: boolean, n: number, i: number, L: number) =>
      perToken ? (given[n * L + i] as number) : (given[n] as number) + i,
  ): ReferenceFunction =>
  (inputs, { first = 0, pairing = "interleaved" }: Options) => {
    const { x, positions, table } = inputs as Record<"x" | "positions" | "table", Reference64>;
    const [N, L, H, dim] = x.shape as [number, number, number, number];
    const [rows, , pairs] = table.shape as [number, number, number];
    const perToken = positions.shape.length === 2;
    const ofRows = Float64Array.from({ length: N * L * H }, (_, row) => {
      const token = Math.floor(row / H);
      return Math.max(0, Math.min(rows - 1, place(positions.data, perToken, Math.floor(token / L), token % L, L)));
    });
    const data = formula({ x: x.data, positions: ofRows, table: table.data, dim, first, pairs, pairing });
    return { out: { shape: [N, L, H, 2 * pairs], data } };
  };
const changed = (change: (rotation: Rotation) => Partial<Rotation>) =>
  reference((rotation) => rotate({ ...rotation, ...change(rotation) }));
const table = (change: (value: number, isSine: boolean) => number) =>
  changed(({ table: all, pairs }) => ({ table: all.map((v, i) => change(v, Math.floor(i / pairs) % 2 === 1)) }));

const PAIRINGS = ["interleaved", "half"] as const;

export const suite: Suite = {
  op: ropeYarn,
  errorClass: "S",
  reference: reference(rotate),
  cases: PAIRINGS.flatMap((pairing) => [
    ...[1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64].map((pairs) =>
      makeCase({ L: 3, H: Math.ceil(40 / pairs), before: 3, pairs, pairing }),
    ),
    makeCase({ N: 2, L: 5, H: 8, before: 128, pairs: 32, pairing }),
    makeCase({ N: 2, L: 5, H: 1, before: 512, pairs: 32, pairing }),
    makeCase({ N: 2, L: 3, H: 2, before: 5, behind: 7, pairs: 16, pairing }),
    makeCase({ N: 3, L: 4, H: 3, before: 16, pairs: 8, starts: [0, 46, 11], pairing }),
    makeCase({ N: 40, L: 1, H: 2, pairs: 16, starts: Array.from({ length: 40 }, (_, n) => n), pairing }),
    makeCase({ L: 50, H: 1, pairs: 4, starts: [0], pairing }),
    makeCase({ L: 2, H: 130, before: 1, pairs: 9, pairing }),
    makeCase({ L: 2, H: 2, pairs: 300, pairing }),
    makeCase({ N: 2, L: 3, H: 3, pairs: 17, pairing, inPlace: true }),
  ]),
  mutants: {
    "half for interleaved": changed(() => ({ pairing: "half" })),
    "interleaved for half": changed(() => ({ pairing: "interleaved" })),
    "first columns rotated": changed(() => ({ first: 0 })),
    "last columns rotated": changed(({ dim, pairs }) => ({ first: dim - 2 * pairs })),
    "sine's sign changed": table((v, isSine) => (isSine ? -v : v)),
    "cosines and sines swapped": changed(({ table: all, pairs }) => ({
      table: all.map((_, i) => all[Math.floor(i / pairs) % 2 === 1 ? i - pairs : i + pairs] as number),
    })),
    "amplitude forgotten": table((v) => v / 0.92),
    "table of cosines and sines in turn": changed(({ table: all, pairs }) => ({
      table: all.map((_, i) => {
        const row = i - (i % (2 * pairs));
        const at = i % (2 * pairs);
        return all[row + (at < pairs ? 2 * at : 2 * (at - pairs) + 1)] as number;
      }),
    })),
    "position off by one": changed(({ positions, table: all, pairs }) => ({
      positions: positions.map((p) => Math.min(p + 1, all.length / (2 * pairs) - 1)),
    })),
    "all tokens of a sequence at its first position": reference(rotate, (given, perToken, n, i, L) =>
      perToken ? (given[n * L + i] as number) : (given[n] as number),
    ),
    "positions of the first sequence": reference(rotate, (given, perToken, _, i) =>
      perToken ? (given[i] as number) : (given[0] as number) + i,
    ),
    "position of the head": changed(({ positions }) => ({ positions: positions.map((p, row) => (p + row) % 50) })),
    "last pair not rotated": reference((rotation) => {
      const { x, dim, first, pairs, pairing } = rotation;
      const at = pairing === "half" ? [pairs - 1, 2 * pairs - 1] : [2 * pairs - 2, 2 * pairs - 1];
      return rotate(rotation).map((v, i) =>
        at.includes(i % (2 * pairs)) ? (x[Math.floor(i / (2 * pairs)) * dim + first + (i % (2 * pairs))] as number) : v,
      );
    }),
    "sine of the rotated value": reference((rotation) => {
      const { pairs, pairing } = rotation;
      const out = rotate(rotation);
      // The second element of a pair computed from the first one's result, as a careless loop in place would.
      const again = Float64Array.from(rotation.x);
      const partOf = (i: number) => (pairing === "half" ? Math.floor((i % (2 * pairs)) / pairs) : i % 2);
      for (let i = 0; i < out.length; i++) {
        const row = Math.floor(i / (2 * pairs));
        if (partOf(i) === 0) again[row * rotation.dim + rotation.first + (i % (2 * pairs))] = out[i] as number;
      }
      const wrong = rotate({ ...rotation, x: again });
      return out.map((v, i) => (partOf(i) === 0 ? v : (wrong[i] as number)));
    }),
    "output left unwritten": reference((rotation) => rotate(rotation).fill(Number.NaN)),
  },
};
