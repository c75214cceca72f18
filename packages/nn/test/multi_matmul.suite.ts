import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { multiMatmul } from "../src/index.ts";
import { matmulReference } from "../src/reference_matmul.ts";

const random = new Random(19);
const NAMES = ["a", "b", "c", "d"] as const;
const outOf = (name: string) => `out${name.toUpperCase()}`;

interface Shape {
  lead?: readonly number[];
  /** Of each matrix. */
  rows: readonly number[];
  cols: number;
  weight?: CaseInput["dtype"];
  outDtype?: "f32" | "f16" | "bf16";
}

/** Products of rms near 1. */
function makeCase({ lead = [1], rows, cols, weight = "act", outDtype }: Shape): Case {
  const m = lead.reduce((a, b) => a * b, 1);
  const matrices = rows.map((count, i): [string, CaseInput] => [
    NAMES[i] as string,
    { dtype: weight, shape: [count, cols], data: random.normals(count * cols, 1 / Math.sqrt(cols)) },
  ]);
  // The error of a few elements says little in short floats.
  const isSmall = m * Math.min(...rows) < 256;
  return {
    ...(isSmall && !outDtype ? { dtypes: ["f32"] as const } : {}),
    name: `[${lead}] ${cols} to ${rows} weight ${weight}${outDtype ? ` in ${outDtype}` : ""}`,
    inputs: {
      x: { dtype: "act", shape: [...lead, cols], data: random.normals(m * cols) },
      ...Object.fromEntries(matrices),
    },
    options: outDtype ? { outDtype } : {},
    ask: Object.fromEntries(
      rows.map((count, i) => [outOf(NAMES[i] as string), { dtype: outDtype ?? "act", shape: [...lead, count] }]),
    ),
  };
}

type Weights = Record<string, Reference64>;

const reference =
  (
    change: (out: Float64Array, n: number, name: string) => Float64Array = (out) => out,
    weights: (given: Weights) => Weights = (given) => given,
  ): ReferenceFunction =>
  ({ x, ...given }, _options) => {
    const { data, shape } = x as Reference64;
    const used = weights(given as Weights);
    const product = (name: string) => {
      const {
        shape: [n = 0, k = 0],
        data: weight,
      } = used[name] as Reference64;
      const out = matmulReference(data, weight, undefined, { m: data.length / k, n, k, transpose: true });
      return { shape: [...shape.slice(0, -1), n], data: change(out, n, name) };
    };
    return Object.fromEntries(NAMES.filter((name) => given[name]).map((name) => [outOf(name), product(name)]));
  };

/** The matrix `name` has the numbers of another one, as far as these go. */
const takenFrom = (name: string, other: string) => (given: Weights) => {
  const [to, from] = [given[name], given[other]];
  if (!to || !from) return given;
  return { ...given, [name]: { ...to, data: to.data.map((_, i) => from.data[i % from.data.length] as number) } };
};
const last = (n: number) => (i: number) => i % n === n - 1;

const EDGES = [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65];
export const suite: Suite = {
  op: multiMatmul,
  errorClass: "R",
  reference: reference(),
  cases: [
    ...EDGES.map((cols) => makeCase({ lead: [2], rows: [130, 33, 65], cols })),
    ...EDGES.map((rows) => makeCase({ lead: [2], rows: [rows, 150], cols: 40 })),
    ...EDGES.map((rows) => makeCase({ lead: [3], rows: [100, rows, 1, 70], cols: 40 })),
    ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 20].map((m) => makeCase({ lead: [m], rows: [261, 290, 264, 301], cols: 300 })),
    makeCase({ lead: [2, 3], rows: [70, 80], cols: 96 }),
    makeCase({ lead: [1, 1], rows: [512, 260, 256], cols: 1024 }),
    // Rows and columns around the split of the few-row kernel on GPUs: each matrix has its own.
    ...[511, 512, 515].map((cols) => makeCase({ lead: [1], rows: [1023, 1024, 30, 1030], cols })),
    ...[3, 20].flatMap((m) =>
      (["f32", "f16", "bf16"] as const).flatMap((weight) =>
        (["f32", "f16", "bf16"] as const).map((outDtype) =>
          makeCase({ lead: [m], rows: [101, 90, 87], cols: 83, weight, outDtype }),
        ),
      ),
    ),
  ],
  mutants: {
    "second matrix is the first": reference(undefined, takenFrom("b", "a")),
    "third matrix is the second": reference(undefined, takenFrom("c", "b")),
    "fourth matrix is the third": reference(undefined, takenFrom("d", "c")),
    "last column of each unwritten": reference((out, n) => out.map((v, i) => (last(n)(i) ? Number.NaN : v))),
    "last matrix unwritten": reference((out, _, name) => (name === "d" || name === "c" ? out.fill(Number.NaN) : out)),
    "columns shifted by one": reference((out, n) => out.map((_, i) => out[last(n)(i) ? i : i + 1] as number)),
    "row 0 of x for all": reference((out, n) => out.map((_, i) => out[i % n] as number)),
    "output left unwritten": reference((out) => out.fill(Number.NaN)),
  },
};
