import { type FloatDtype, roundTo } from "@mlxts/core";
import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { matmulSwiglu } from "../src/index.ts";
import { matmulReference } from "../src/reference_matmul.ts";

const random = new Random(17);

interface Shape {
  lead?: readonly number[];
  rows: number;
  cols: number;
  weight?: CaseInput["dtype"];
  outDtype?: "f32" | "f16" | "bf16";
}

/** Products of rms below 1: no output is far above the others. */
function makeCase({ lead = [1], rows, cols, weight = "act", outDtype }: Shape): Case {
  const m = lead.reduce((a, b) => a * b, 1);
  const matrix = (): CaseInput => ({
    dtype: weight,
    shape: [rows, cols],
    data: random.normals(rows * cols, 0.7 / Math.sqrt(cols)),
  });
  // The error of a few elements says little in short floats.
  const isSmall = m * rows < 256;
  return {
    ...(isSmall ? { dtypes: ["f32"] as const } : {}),
    name: `[${lead}] ${cols} to ${rows} weight ${weight}${outDtype ? ` in ${outDtype}` : ""}`,
    inputs: {
      x: { dtype: "act", shape: [...lead, cols], data: random.normals(m * cols) },
      gate: matrix(),
      up: matrix(),
    },
    options: outDtype ? { outDtype } : {},
    ask: { out: { dtype: outDtype ?? "act", shape: [...lead, rows] } },
  };
}

interface Products {
  gate: Float64Array;
  up: Float64Array;
  n: number;
}

const silu = (z: number) => z / (1 + Math.exp(-z));

const reference =
  (
    unit: (gate: number, up: number) => number = (gate, up) => silu(gate) * up,
    change: (products: Products, act: string) => Products = (products) => products,
  ): ReferenceFunction =>
  (inputs, { outDtype }: { outDtype?: FloatDtype }, act) => {
    const { x, gate, up } = inputs as Record<"x" | "gate" | "up", Reference64>;
    const [n, k] = gate.shape as [number, number];
    const sizes = { m: x.data.length / k, n, k, transpose: true };
    const round = (value: number) => roundTo(outDtype ?? act, value);
    const product = (weight: Reference64) => matmulReference(x.data, weight.data, undefined, sizes).map(round);
    const changed = change({ gate: product(gate), up: product(up), n }, act);
    return {
      out: {
        shape: [...x.shape.slice(0, -1), n],
        data: changed.gate.map((value, i) => unit(value, changed.up[i] as number)),
      },
    };
  };

const EDGES = [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65];
export const suite: Suite = {
  op: matmulSwiglu,
  errorClass: "R",
  reference: reference(),
  cases: [
    ...EDGES.map((cols) => makeCase({ lead: [2], rows: 130, cols })),
    ...EDGES.map((rows) => makeCase({ lead: [Math.max(1, Math.ceil(256 / rows))], rows, cols: 40 })),
    ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 20].map((m) => makeCase({ lead: [m], rows: 261, cols: 300 })),
    makeCase({ lead: [2, 3], rows: 70, cols: 96 }),
    makeCase({ lead: [1, 1], rows: 512, cols: 1024 }),
    // Rows and columns around the split of the few-row kernel on GPUs.
    ...[1023, 1024].map((rows) => makeCase({ lead: [1], rows, cols: 520 })),
    ...[511, 512, 515].map((cols) => makeCase({ lead: [2], rows: 130, cols })),
    ...[3, 20].flatMap((m) =>
      (["f32", "f16", "bf16"] as const).flatMap((weight) =>
        (["f32", "f16", "bf16"] as const).map((outDtype) =>
          makeCase({ lead: [m], rows: 101, cols: 83, weight, outDtype }),
        ),
      ),
    ),
  ],
  mutants: {
    "gate and up exchanged": reference((gate, up) => gate * silu(up)),
    "no gate": reference((_, up) => up),
    "no up": reference((gate) => silu(gate)),
    "sigmoid for silu": reference((gate, up) => up / (1 + Math.exp(-gate))),
    "gelu for silu": reference(
      (gate, up) => gate * up * 0.5 * (1 + Math.tanh(0.79788456 * (gate + 0.044715 * gate ** 3))),
    ),
    "gate of both": reference((gate) => silu(gate) * gate),
    "up of the next column": reference(undefined, ({ gate, up, n }) => ({
      gate,
      up: up.map((_, i) => up[i % n === n - 1 ? i : i + 1] as number),
      n,
    })),
    "products in fewer bits": reference(undefined, ({ gate, up, n }, act) => {
      const short = (value: number) => roundTo("bf16", value) * (act === "bf16" ? 1 + 2 ** -6 : 1);
      return { gate: gate.map(short), up: up.map(short), n };
    }),
    "last column unwritten": reference(undefined, ({ gate, up, n }) => ({
      gate: gate.map((value, i) => (i % n === n - 1 ? Number.NaN : value)),
      up,
      n,
    })),
    "row 0 of x for all": reference(undefined, ({ gate, up, n }) => ({
      gate: gate.map((_, i) => gate[i % n] as number),
      up: up.map((_, i) => up[i % n] as number),
      n,
    })),
    "output left unwritten": reference(() => Number.NaN),
  },
};
