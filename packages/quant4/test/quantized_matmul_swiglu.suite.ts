import { FLOATS, type FloatDtype, roundTo } from "@mlxts/core";
import type { Reference64, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { quantizedMatmulSwiglu } from "../src/index.ts";
import { caseMaker, jointProduct, type Shape } from "./joint_cases.ts";
import type { Product } from "./product_cases.ts";
import { wrongProducts } from "./product_mutants.ts";

const makeCase = caseMaker(373);
/** Few more outputs than an error says something of: products of products are now and then much larger than others. */
const rowsFor = (m: number) => Math.ceil(270 / m) + 1;
const swigluCase = ({
  lead = [1],
  rows = rowsFor(lead.reduce((a, b) => a * b, 1)),
  ...shape
}: Omit<Shape, "rows"> & { rows?: number }) =>
  makeCase(["gate", "up"], ["out"], { ...shape, lead, rows: [rows, rows] });

const silu = (z: number) => z / (1 + Math.exp(-z));

interface Changes {
  unit?: (gate: number, up: number) => number;
  products?: (gate: Float64Array, up: Float64Array, rows: number, dtype: FloatDtype) => [Float64Array, Float64Array];
  multiply?: Product;
}

const reference =
  ({ unit = (gate, up) => silu(gate) * up, products = (a, b) => [a, b], multiply }: Changes = {}): ReferenceFunction =>
  (inputs, options: Record<string, unknown>, act) => {
    const { outDtype = act } = options as { outDtype?: FloatDtype };
    const round = (value: number) => roundTo(outDtype, value);
    const [rows = 0] = (inputs["gate.weight"] as Reference64).shape;
    const product = (name: string) => jointProduct(inputs, name, options, act, multiply).map(round);
    const [gate, up] = products(product("gate"), product("up"), rows, act);
    return {
      out: {
        shape: [...(inputs.x as Reference64).shape.slice(0, -1), rows],
        data: gate.map((value, i) => unit(value, up[i] as number)),
      },
    };
  };

const EDGES = [1, 2, 3, 7, 8, 9, 15, 16, 17, 31, 33, 65];

export const suite: Suite = {
  op: quantizedMatmulSwiglu,
  errorClass: "R",
  reference: reference(),
  cases: [
    ...EDGES.map((rows) => swigluCase({ lead: [Math.max(1, Math.ceil(256 / rows))], rows, cols: 256 })),
    ...EDGES.map((rows) => swigluCase({ lead: [2], rows, cols: 256 })),
    ...[1, 2, 3, 4, 5, 6, 7, 8, 9, 20].map((m) => swigluCase({ lead: [m], cols: 320, groupSize: 64 })),
    ...([4, 8] as const).flatMap((bits) =>
      ([32, 64, 128] as const).flatMap((groupSize) =>
        [1, 4, 12].map((m) => swigluCase({ lead: [m], cols: 8 * groupSize, bits, groupSize })),
      ),
    ),
    swigluCase({ lead: [], cols: 160 }),
    swigluCase({ lead: [2, 3], cols: 288 }),
    swigluCase({ lead: [1, 1], cols: 1024, groupSize: 64 }),
    // More than a block of the gated unit.
    { ...swigluCase({ lead: [20], rows: 300, cols: 32 }), dtypes: ["f32"] },
    ...[3, 20].flatMap((m) =>
      FLOATS.flatMap((scales) =>
        FLOATS.flatMap((outDtype) =>
          ([4, 8] as const).map((bits) => swigluCase({ lead: [m], cols: 256, bits, scales, outDtype })),
        ),
      ),
    ),
    // One row of bf16 x on NVIDIA's GPUs.
    ...FLOATS.flatMap((scales) =>
      FLOATS.map((outDtype) => ({
        ...swigluCase({ cols: 512, groupSize: 64, scales, outDtype }),
        dtypes: ["bf16"] as const,
        aligned: true,
      })),
    ),
  ],
  mutants: {
    ...Object.fromEntries(Object.entries(wrongProducts).map(([name, multiply]) => [name, reference({ multiply })])),
    "gate and up exchanged": reference({ unit: (gate, up) => gate * silu(up) }),
    "no gate": reference({ unit: (_, up) => up }),
    "no up": reference({ unit: (gate) => silu(gate) }),
    "sigmoid for silu": reference({ unit: (gate, up) => up / (1 + Math.exp(-gate)) }),
    "gate of both": reference({ unit: (gate) => silu(gate) * gate }),
    "up of the next row of W": reference({
      products: (gate, up, n) => [gate, up.map((_, i) => up[i % n === n - 1 ? i : i + 1] as number)],
    }),
    "products in fewer bits": reference({
      products: (gate, up, _, dtype) => {
        const short = (v: number) => roundTo("bf16", v) * (dtype === "bf16" ? 1 + 2 ** -6 : 1);
        return [gate.map(short), up.map(short)];
      },
    }),
    "row 0 of x for all": reference({
      products: (gate, up, n) => [gate.map((_, i) => gate[i % n] as number), up.map((_, i) => up[i % n] as number)],
    }),
    "output left unwritten": reference({ unit: () => Number.NaN }),
  },
};
