import { type FloatDtype, roundTo } from "@mlxts/core";
import type { Reference64, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { distinct, moreAndMore, product, TOKENS } from "@mlxts/test-kit/gathered_suite";
import { gatherMatmulSwiglu } from "../src/index.ts";
import { gatheredReference, makeCase, suite as plain, type Shape } from "./gather_matmul.suite.ts";

function swigluCase(shape: Shape) {
  const { indices, m = 1, rows } = shape;
  // The error of a few elements says little in short floats.
  const isSmall = product(indices) * m * rows < 256;
  return makeCase({ ...(isSmall && !shape.outDtype ? { dtypes: ["f32"] } : {}), ...shape }, ["gate", "up"]);
}

const silu = (z: number) => z / (1 + Math.exp(-z));
type Unit = (gate: number, up: number) => number;
type Products = (gate: Float64Array, up: Float64Array, rows: number, act: string) => [Float64Array, Float64Array];

/** The gated unit of two gathered products, each as `gathered` has it. */
const gated =
  (
    gathered: ReferenceFunction = gatheredReference,
    unit: Unit = (gate, up) => silu(gate) * up,
    change: Products = (gate, up) => [gate, up],
  ): ReferenceFunction =>
  (inputs, options: { outDtype?: FloatDtype }, act) => {
    const of = (name: "gate" | "up"): Reference64 => {
      const starts = inputs[`${name}Starts`];
      const own = { ...inputs, weight: inputs[name] as Reference64, ...(starts ? { starts } : {}) };
      const { out } = gathered(own, options as never, act) as { out: Reference64 };
      return { ...out, data: out.data.map((value) => roundTo(options.outDtype ?? act, value)) };
    };
    const [gates, ups] = [of("gate"), of("up")];
    const [gate, up] = change(gates.data, ups.data, gates.shape.at(-1) as number, act);
    return { out: { shape: gates.shape, data: gate.map((value, i) => unit(value, up[i] as number)) } };
  };

/** Those of matrices that lie elsewhere, which this op does not define. */
const OF_ELSEWHERE = /elsewhere|former/;
const DTYPES = ["f32", "f16", "bf16"] as const;

export const suite: Suite = {
  op: gatherMatmulSwiglu,
  errorClass: "R",
  reference: gated(),
  cases: [
    // One token, as each step of decoding has it.
    swigluCase({ lead: [1, 1], indices: [1, 8], experts: 16, rows: 40, cols: 64, choose: distinct(8, 16) }),
    swigluCase({ lead: [1, 8], indices: [1, 8], experts: 16, rows: 64, cols: 40, choose: distinct(8, 16) }),
    swigluCase({ lead: [1, 1], indices: [1, 8], experts: 128, rows: 33, cols: 520 }),
    ...[1, 2, 3, 7, 15, 17, 31, 33, 65, 130].map((cols) => swigluCase({ ...TOKENS, experts: 6, rows: 19, cols })),
    ...[1, 2, 3, 5, 8, 9, 63, 64, 65].map((rows) => swigluCase({ ...TOKENS, experts: 6, rows, cols: 40 })),
    swigluCase({ ...TOKENS, experts: 6, rows: 257, cols: 40, signed: true }),
    // More columns than a CPU's thread keeps.
    swigluCase({ lead: [1, 1], indices: [1, 2], experts: 3, rows: 2100, cols: 40, choose: distinct(2, 3) }),
    // Indices and leading dimensions that broadcast.
    swigluCase({ lead: [7], indices: [7], experts: 3, rows: 40, cols: 32 }),
    swigluCase({ lead: [1], indices: [6], experts: 3, rows: 50, cols: 32 }),
    swigluCase({ lead: [6], indices: [1], experts: 3, rows: 50, cols: 32 }),
    swigluCase({ lead: [2, 1, 3], indices: [4, 1], experts: 5, rows: 20, cols: 32 }),
    swigluCase({ lead: [5], lhs: [4, 3], indices: [4, 3], experts: 6, rows: 22, cols: 48, signed: true }),
    swigluCase({ lead: [2, 3], lhs: [4, 1], indices: [3], experts: 6, rows: 22, cols: 48 }),
    // Rows to a matrix of x.
    ...[2, 3, 4, 5, 6, 7, 8, 9, 13, 33].map((m) =>
      swigluCase({ lead: [3, 1], indices: [3, 2], m, experts: 4, rows: 37, cols: 50 }),
    ),
    swigluCase({ lead: [1], indices: [2], m: 510, experts: 3, rows: 3, cols: 10 }),
    // In order.
    swigluCase({ lead: [1, 1], indices: [1, 8], experts: 16, rows: 40, cols: 64, ordered: true }),
    swigluCase({ lead: [9, 1], indices: [9, 3], experts: 5, rows: 70, cols: 96, ordered: true, signed: true }),
    swigluCase({ lead: [5], lhs: [4, 3], indices: [4, 3], experts: 6, rows: 22, cols: 48, ordered: true }),
    swigluCase({ lead: [70, 1], indices: [70, 1], experts: 1, rows: 66, cols: 130, ordered: true }),
    swigluCase({
      name: "1, 2, … 12 rows to an expert",
      ...{ lead: [78], indices: [78], experts: 14, rows: 20, cols: 40, ordered: true },
      choose: moreAndMore,
    }),
    swigluCase({
      name: "more than a block of rows",
      ...{ lead: [1100], indices: [1100], experts: 3, rows: 3, cols: 10, ordered: true },
      choose: (i) => (i % 50 ? 2 : 0),
    }),
    // Stacks that begin anywhere, each in an order of its own.
    ...[1, 3, 20].map((m) =>
      swigluCase({
        ...{ lead: [4, 1], indices: [4, 3], m, experts: 5, rows: 30, cols: 41 },
        starts: { at: (expert) => ((3 * expert) % 5) * 1300 + 7, span: 5 * 1300 + 30 },
      }),
    ),
    swigluCase({
      ...{ lead: [9, 1], indices: [9, 3], experts: 5, rows: 30, cols: 41, ordered: true },
      starts: { at: (expert) => ((3 * expert) % 5) * 1300 + 7, span: 5 * 1300 + 30 },
    }),
    // Weights and outputs of every dtype.
    ...DTYPES.flatMap((weight) =>
      DTYPES.map((outDtype) => swigluCase({ ...TOKENS, experts: 6, rows: 21, cols: 83, weight, outDtype })),
    ),
    swigluCase({
      ...{ lead: [24, 1], indices: [24, 2], experts: 3, rows: 40, cols: 2048, outDtype: "f32" },
      dtypes: ["f32", "bf16"],
    }),
  ],
  mutants: {
    ...Object.fromEntries(
      Object.entries(plain.mutants ?? {})
        .filter(([name]) => !OF_ELSEWHERE.test(name))
        .map(([name, wrong]) => [name, gated(wrong)]),
    ),
    "gate and up exchanged": gated(undefined, (gate, up) => gate * silu(up)),
    "no gate": gated(undefined, (_, up) => up),
    "no up": gated(undefined, (gate) => silu(gate)),
    "sigmoid for silu": gated(undefined, (gate, up) => up / (1 + Math.exp(-gate))),
    "gate of both": gated(undefined, (gate) => silu(gate) * gate),
    "up of the next column": gated(undefined, undefined, (gate, up, n) => [
      gate,
      up.map((_, i) => up[i % n === n - 1 ? i : i + 1] as number),
    ]),
    "up of the next pair": gated(undefined, undefined, (gate, up, n) => [
      gate,
      up.map((_, i) => up[(i + n) % up.length] as number),
    ]),
    "columns beyond the first 1024 left out": gated(undefined, undefined, (gate, up, n) => [
      gate.map((value, i) => (i % n < 1024 ? value : 0)),
      up,
    ]),
    "products in fewer bits": gated(undefined, undefined, (gate, up, _, act) => {
      const short = (v: number) => roundTo("bf16", v) * (act === "bf16" ? 1 + 2 ** -6 : 1);
      return [gate.map(short), up.map(short)];
    }),
  },
};
