import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { split } from "../src/index.ts";
import { sliceReference } from "../src/reference.ts";

const random = new Random(17);
const LETTERS = ["A", "B", "C", "D"] as const;
type Range = readonly [begin: number, size: number];

/** `skipped`: the output that is not there, where the one behind it is. */
const splitCase = (
  shape: readonly number[],
  ranges: readonly (Range | undefined)[],
  dtype: "act" | "u8" | "i32" | "u16" = "act",
): Case => {
  const count = shape.reduce((a, b) => a * b, 1);
  const given = ranges.flatMap((range, i) => (range ? [{ letter: LETTERS[i] as string, range }] : []));
  return {
    name: `${dtype} [${shape}] columns ${given.map(({ letter, range }) => `${letter} ${range.join(" + ")}`)}`,
    inputs: { x: { dtype, shape, data: dtype === "act" ? random.normals(count) : random.integers(count, 200) } },
    options: Object.fromEntries(
      given.flatMap(({ letter, range: [begin, size] }) => [
        [`begin${letter}`, begin],
        [`size${letter}`, size],
      ]),
    ),
    ask: Object.fromEntries(
      given
        .filter(({ letter }) => letter > "B")
        .map(({ letter, range }) => [`out${letter}`, { dtype, shape: [...shape.slice(0, -1), range[1]] }]),
    ),
    ...(dtype === "act" ? {} : { dtypes: ["f32" as const] }),
  };
};

interface Cut {
  x: Float64Array;
  dim: number;
  begin: number;
  size: number;
  letter: string;
  /** Where the first range begins. */
  first: number;
}
const right = ({ x, dim, begin, size }: Cut) => sliceReference(x, dim, begin, size);

const reference =
  (f: (cut: Cut) => Float64Array): ReferenceFunction =>
  ({ x }, options: Record<string, number>) => {
    const { shape, data } = x as Reference64;
    const dim = shape[shape.length - 1] as number;
    const first = options.beginA as number;
    return Object.fromEntries(
      LETTERS.flatMap((letter) => {
        const { [`begin${letter}`]: begin, [`size${letter}`]: size } = options;
        if (begin === undefined || size === undefined) return [];
        const cut = f({ x: data, dim, begin, size, letter, first });
        return [[`out${letter}`, { shape: [...shape.slice(0, -1), size], data: cut }]];
      }),
    );
  };
const changed = (change: (cut: Cut) => Partial<Cut>) => reference((cut) => right({ ...cut, ...change(cut) }));
const within = (begin: number, { dim, size }: Cut) => Math.max(0, Math.min(begin, dim - size));
const unwritten = (isUnwritten: (i: number, cut: Cut, all: Float64Array) => boolean) =>
  reference((cut) => right(cut).map((v, i, all) => (isUnwritten(i, cut, all) ? Number.NaN : v)));

export const suite: Suite = {
  op: split,
  errorClass: "exact",
  reference: reference(right),
  cases: [
    splitCase(
      [2],
      [
        [0, 1],
        [1, 1],
      ],
    ),
    splitCase(
      [10],
      [
        [4, 6],
        [0, 4],
      ],
    ),
    splitCase(
      [3, 7],
      [
        [2, 4],
        [0, 7],
        [6, 1],
      ],
    ),
    splitCase(
      [2, 3, 5, 33],
      [
        [0, 16],
        [16, 17],
        [3, 1],
        [1, 32],
      ],
    ),
    splitCase(
      [4, 24],
      [
        [0, 8],
        [8, 8],
        [16, 4],
        [20, 4],
      ],
    ),
    splitCase([4, 24], [[0, 8], [8, 6], undefined, [14, 10]]),
    splitCase(
      [300, 129],
      [
        [1, 64],
        [65, 64],
        [0, 1],
      ],
    ),
    splitCase(
      [2, 9000],
      [
        [4095, 4500],
        [0, 4095],
      ],
    ),
    splitCase(
      [3, 5000],
      [
        [7, 2],
        [9, 4991],
        [0, 7],
      ],
    ),
    splitCase(
      [4, 33],
      [
        [3, 21],
        [24, 9],
      ],
      "u8",
    ),
    splitCase(
      [4, 36],
      [
        [4, 20],
        [24, 12],
        [0, 4],
      ],
      "u8",
    ),
    splitCase(
      [4, 33],
      [
        [0, 21],
        [21, 12],
      ],
      "i32",
    ),
    splitCase(
      [700, 65],
      [
        [40, 25],
        [0, 40],
        [13, 2],
        [9, 50],
      ],
      "u16",
    ),
  ],
  mutants: {
    "begins ignored": changed(() => ({ begin: 0 })),
    "the first range's begin for all": changed((cut) => ({ begin: within(cut.first, cut) })),
    "begin off by one": changed((cut) => ({ begin: within(cut.begin + (cut.letter === "B" ? -1 : 0), cut) })),
    "third range wrong": changed((cut) => ({ begin: within(cut.begin + (cut.letter === "C" ? 1 : 0), cut) })),
    "fourth range wrong": changed((cut) => ({ begin: within(cut.begin + (cut.letter === "D" ? 1 : 0), cut) })),
    "rows strided by the size of a range": reference(({ x, begin, size, dim }) =>
      x.slice(begin, begin + (x.length / dim) * size),
    ),
    "last column not written": unwritten((i, { size }) => i % size === size - 1),
    "last row not written": unwritten((i, { size, letter }, all) => letter === "B" && i >= all.length - size),
    "an output not written": unwritten((_, { letter }) => letter === "D"),
    "columns behind the first output's size not written": unwritten((i, { size }) => size > 256 && i % size >= 256),
  },
};
