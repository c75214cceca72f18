import { FLOATS, type FloatDtype, roundTo } from "@mlxts/core";
import type { Reference64, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { distinct, moreAndMore, product, TOKENS } from "@mlxts/test-kit/gathered_suite";
import { gatherQuantizedMatmulSwiglu } from "../src/index.ts";
import { caseMaker, reference, type Shape } from "./gather_cases.ts";
import { suite as plain } from "./gather_quantized_matmul.suite.ts";

const STACKS = ["gate.", "up."];
// Other numbers than in the first cases of the products alone, however many these become.
const makeCase = caseMaker(STACKS, 140);

function swigluCase(shape: Shape) {
  const { indices, m = 1, rows } = shape;
  // The error of a few elements says little in short floats.
  const isSmall = product(indices) * m * rows < 256;
  return makeCase({ ...(isSmall && !shape.outDtype ? { dtypes: ["f32"] } : {}), ...shape });
}

const silu = (z: number) => z / (1 + Math.exp(-z));
type Unit = (gate: number, up: number) => number;
type Products = (gate: Float64Array, up: Float64Array, rows: number, dtype: FloatDtype) => [Float64Array, Float64Array];

/** The gated unit of two gathered products, each as `gathered` has it. */
const gated =
  (
    gathered: ReferenceFunction = reference(),
    unit: Unit = (gate, up) => silu(gate) * up,
    change: Products = (gate, up) => [gate, up],
  ): ReferenceFunction =>
  (inputs, options: Record<string, unknown>, act) => {
    const { outDtype = act } = options as { outDtype?: FloatDtype };
    const of = (stack: string): Reference64 => {
      const part = <T>(all: Record<string, T>, names: readonly string[]) =>
        Object.fromEntries(names.map((name) => [name, all[stack + name] as T]));
      const own = { ...inputs, ...part(inputs, ["weight", "scales", "biases"]) };
      const { out } = gathered(own, { ...options, ...part(options, ["bits", "groupSize", "mode"]) } as never, act);
      return { ...(out as Reference64), data: (out as Reference64).data.map((value) => roundTo(outDtype, value)) };
    };
    const [gates, ups] = STACKS.map(of) as [Reference64, Reference64];
    const [gate, up] = change(gates.data, ups.data, gates.shape.at(-1) as number, act);
    return { out: { shape: gates.shape, data: gate.map((value, i) => unit(value, up[i] as number)) } };
  };

export const suite: Suite = {
  op: gatherQuantizedMatmulSwiglu,
  errorClass: "R",
  reference: gated(),
  cases: [
    // One token, as each step of decoding has it.
    swigluCase({ lead: [1, 1], indices: [1, 8], experts: 16, rows: 40, cols: 64, choose: distinct(8, 16) }),
    swigluCase({ lead: [1, 8], indices: [1, 8], experts: 16, rows: 65, cols: 96, choose: distinct(8, 16) }),
    swigluCase({ lead: [1, 1], indices: [1, 8], experts: 128, rows: 33, cols: 512, groupSize: 64 }),
    swigluCase({ lead: [1], indices: [1], experts: 1, rows: 257, cols: 64, groupSize: 64 }),
    ...[1, 3, 8, 15, 16, 17, 31, 257].map((rows) => swigluCase({ ...TOKENS, experts: 8, rows, cols: 256 })),
    ...[32, 96, 160, 1408].map((cols) => swigluCase({ ...TOKENS, experts: 8, rows: 31, cols, signed: true })),
    // From here on of several groups to a row: then no row has much larger products than others.
    // Indices and leading dimensions that broadcast.
    swigluCase({ lead: [37], indices: [37], experts: 3, rows: 10, cols: 256 }),
    swigluCase({ lead: [1], indices: [36], experts: 3, rows: 10, cols: 256 }),
    swigluCase({ lead: [36], indices: [1], experts: 3, rows: 10, cols: 256 }),
    swigluCase({ lead: [2, 1, 3], indices: [4, 1], experts: 5, rows: 20, cols: 256 }),
    swigluCase({ lead: [5], lhs: [4, 3], indices: [4, 3], experts: 6, rows: 32, cols: 256, signed: true }),
    swigluCase({ lead: [2, 3], lhs: [4, 1], indices: [3], experts: 6, rows: 32, cols: 256 }),
    // Rows to a matrix of x; in bf16 single products of so many are far above the others, which one rounding then decides.
    ...[2, 3, 4, 5, 6, 7, 8, 9, 20].map((m) =>
      swigluCase({ lead: [3, 1], indices: [3, 2], m, experts: 4, rows: 67, cols: 256, dtypes: ["f32", "f16"] }),
    ),
    ...[2, 5, 8].map((m) =>
      swigluCase({
        ...{ lead: [3, 1], indices: [3, 2], m, experts: 4, rows: 67, cols: 256 },
        ...{ dtypes: ["bf16"], outDtype: "f32" },
      }),
    ),
    swigluCase({
      name: "more than a block of them",
      ...{ lead: [2], indices: [3, 1], m: 530, experts: 3, rows: 9, cols: 64, dtypes: ["f32"] },
    }),
    // In order: few and many rows to an expert, experts without rows. The second is too large for bf16, too.
    swigluCase({ lead: [1, 1], indices: [1, 8], experts: 16, rows: 40, cols: 256, ordered: true }),
    swigluCase({
      ...{ lead: [40, 1], indices: [40, 2], experts: 5, rows: 70, cols: 384, ordered: true },
      dtypes: ["f32", "f16"],
    }),
    swigluCase({ lead: [5], lhs: [4, 3], indices: [4, 3], experts: 6, rows: 32, cols: 256, ordered: true }),
    swigluCase({
      name: "1, 2, … 13 rows to an expert",
      ...{ lead: [91], indices: [91], experts: 15, rows: 20, cols: 256, ordered: true },
      choose: moreAndMore,
    }),
    swigluCase({
      name: "more than a block of rows",
      ...{ lead: [1100], indices: [1100], experts: 3, rows: 3, cols: 256, ordered: true },
      choose: (i) => (i % 50 ? 2 : 0),
    }),
    // Every dtype of x, scales and output.
    ...([4, 8] as const).flatMap((bits) =>
      FLOATS.flatMap((scales) =>
        FLOATS.map((outDtype) => swigluCase({ ...TOKENS, experts: 8, rows: 34, cols: 128, bits, scales, outDtype })),
      ),
    ),
    ...([4, 8] as const).flatMap((bits) =>
      ([32, 64, 128] as const).flatMap((groupSize) => [
        swigluCase({ ...TOKENS, experts: 8, rows: 35, cols: 384, bits, groupSize }),
        // Weights that a file does not align.
        swigluCase({ ...TOKENS, experts: 8, rows: 35, cols: 384, bits, groupSize, anyByte: true }),
      ]),
    ),
    swigluCase({ lead: [3, 1], indices: [3, 2], m: 9, experts: 4, rows: 67, cols: 96, anyByte: true }),
    swigluCase({ lead: [24, 1], indices: [24, 2], experts: 3, rows: 40, cols: 1024, mean: 4, outDtype: "f32" }),
    swigluCase({ lead: [2, 1], indices: [2, 2], experts: 3, rows: 70, cols: 7168, groupSize: 64 }),
    swigluCase({ lead: [20, 1], indices: [20, 2], experts: 5, rows: 70, cols: 256, groupSize: 64, ordered: true }),
    // One row of bf16 x for each pair on NVIDIA's GPUs, in every dtype of scales and output.
    ...FLOATS.flatMap((scales) =>
      FLOATS.map((outDtype) => ({
        ...swigluCase({ ...TOKENS, experts: 8, rows: 34, cols: 256, groupSize: 64, scales, outDtype }),
        dtypes: ["bf16"] as const,
        aligned: true,
      })),
    ),
  ],
  mutants: {
    ...Object.fromEntries(Object.entries(plain.mutants ?? {}).map(([name, wrong]) => [name, gated(wrong)])),
    "gate and up exchanged": gated(undefined, (gate, up) => gate * silu(up)),
    "no gate": gated(undefined, (_, up) => up),
    "no up": gated(undefined, (gate) => silu(gate)),
    "sigmoid for silu": gated(undefined, (gate, up) => up / (1 + Math.exp(-gate))),
    "gate of both": gated(undefined, (gate) => silu(gate) * gate),
    "up of the next row of W": gated(undefined, undefined, (gate, up, n) => [
      gate,
      up.map((_, i) => up[i % n === n - 1 ? i : i + 1] as number),
    ]),
    "up of the next pair": gated(undefined, undefined, (gate, up, n) => [
      gate,
      up.map((_, i) => up[(i + n) % up.length] as number),
    ]),
    "products in fewer bits": gated(undefined, undefined, (gate, up, _, dtype) => {
      const short = (v: number) => roundTo("bf16", v) * (dtype === "bf16" ? 1 + 2 ** -6 : 1);
      return [gate.map(short), up.map(short)];
    }),
  },
};
