import { FLOATS } from "@mlxts/core";
import type { Reference64, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { multiQuantizedMatmul } from "../src/index.ts";
import { caseMaker, jointProduct, type Shape } from "./joint_cases.ts";
import type { Product } from "./product_cases.ts";
import { wrongProducts } from "./product_mutants.ts";

const NAMES = ["a", "b", "c", "d"] as const;
const outOf = (name: string) => `out${name.toUpperCase()}`;
const makeCase = caseMaker(1);
const multiCase = (shape: Shape) => makeCase(NAMES, NAMES.slice(0, shape.rows.length).map(outOf), shape);

interface Changes {
  multiply?: Product;
  change?: (out: Float64Array, rows: number, name: string) => Float64Array;
  /** The matrix that is taken for that of a name. */
  taken?: (name: string) => string;
}

const reference =
  ({ multiply, change = (out) => out, taken = (name) => name }: Changes = {}): ReferenceFunction =>
  (inputs, options, act) => {
    const names = NAMES.filter((name) => inputs[`${name}.weight`]);
    const lead = (inputs.x as Reference64).shape.slice(0, -1);
    const outputs = names.map((name) => {
      const [rows = 0] = (inputs[`${name}.weight`] as Reference64).shape;
      const other = jointProduct(inputs, taken(name), options, act, multiply);
      const right = jointProduct(inputs, name, options, act, multiply);
      const data = right.map((_, i) => other[i % other.length] as number);
      return [outOf(name), { shape: [...lead, rows], data: change(data, rows, name) }] as const;
    });
    return Object.fromEntries(outputs);
  };

const EDGES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 65];
const isLast = (i: number, n: number) => i % n === n - 1;

export const suite: Suite = {
  op: multiQuantizedMatmul,
  errorClass: "R",
  reference: reference(),
  cases: [
    ...EDGES.map((rows) => multiCase({ lead: [2], rows: [rows, 150], cols: 64 })),
    ...EDGES.map((rows) => multiCase({ lead: [3], rows: [100, rows, 1, 70], cols: 96 })),
    ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 20].map((m) =>
      multiCase({ lead: [m], rows: [261, 290, 264, 301], cols: 192, groupSize: 64 }),
    ),
    ...([4, 8] as const).flatMap((bits) =>
      ([32, 64, 128] as const).flatMap((groupSize) =>
        [1, 4, 12].map((m) => multiCase({ lead: [m], rows: [257, 300, 256], cols: 384, bits, groupSize })),
      ),
    ),
    multiCase({ lead: [], rows: [300, 259], cols: 96 }),
    multiCase({ lead: [2, 3], rows: [70, 80], cols: 160 }),
    multiCase({ lead: [1, 1], rows: [512, 260, 256], cols: 1024, groupSize: 64 }),
    ...[3, 20].flatMap((m) =>
      FLOATS.flatMap((scales) =>
        FLOATS.flatMap((outDtype) =>
          ([4, 8] as const).map((bits) =>
            multiCase({ lead: [m], rows: [101, 90, 87], cols: 64, bits, scales, outDtype }),
          ),
        ),
      ),
    ),
    // One row of bf16 x on NVIDIA's GPUs.
    ...FLOATS.flatMap((scales) =>
      FLOATS.map((outDtype) => ({
        ...multiCase({ rows: [257, 300, 256], cols: 256, groupSize: 64, scales, outDtype }),
        dtypes: ["bf16"] as const,
        aligned: true,
      })),
    ),
  ],
  mutants: {
    ...Object.fromEntries(Object.entries(wrongProducts).map(([name, multiply]) => [name, reference({ multiply })])),
    "second matrix is the first": reference({ taken: (name) => (name === "b" ? "a" : name) }),
    "third matrix is the second": reference({ taken: (name) => (name === "c" ? "b" : name) }),
    "fourth matrix is the first": reference({ taken: (name) => (name === "d" ? "a" : name) }),
    "last row of each matrix skipped": reference({
      change: (out, n) => out.map((v, i) => (isLast(i, n) ? Number.NaN : v)),
    }),
    "last matrices unwritten": reference({
      change: (out, _, name) => (name === "c" || name === "d" ? out.fill(Number.NaN) : out),
    }),
    "columns shifted by one": reference({
      change: (out, n) => out.map((_, i) => out[isLast(i, n) ? i : i + 1] as number),
    }),
    "row 0 of x for all": reference({ change: (out, n) => out.map((_, i) => out[i % n] as number) }),
    "output left unwritten": reference({ change: (out) => out.fill(Number.NaN) }),
  },
};
