// The products with `approximate: "int8-activations"`: the suites again, beside products of x as it is rounded.
import { decodeNumbers, encodeNumbers, FLOATS, type FloatDtype } from "@mlxts/core";
import { type Case, compare, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { testSuite } from "@mlxts/test-kit/suite";
import { afterAll, describe, expect, it } from "vitest";
import { quantizedMatmul } from "../src/index.ts";
import { decodeExactly, productReference, roundToBytes } from "../src/reference.ts";
import { suite as gathered } from "./gather_quantized_matmul.suite.ts";
import { suite as gatheredSwiglu } from "./gather_quantized_matmul_swiglu.suite.ts";
import { randomQuantized } from "./groups.ts";
import { suite as multi } from "./multi_quantized_matmul.suite.ts";
import { type Product, reference, right } from "./product_cases.ts";
import { suite as plain } from "./quantized_matmul.suite.ts";
import { suite as swiglu } from "./quantized_matmul_swiglu.suite.ts";

/** What is multiplied instead of x, in groups. */
type Rounding = (x: Float64Array, groupSize: number) => Float64Array;

const groupSizeOf = (options: Record<string, unknown>) =>
  (options.groupSize ?? options["gate.groupSize"] ?? options["a.groupSize"]) as number;

const rounded =
  (product: ReferenceFunction, round: Rounding = roundToBytes): ReferenceFunction =>
  (inputs, options, dtype) => {
    const x = inputs.x as Reference64;
    return product({ ...inputs, x: { ...x, data: round(x.data, groupSizeOf(options)) } }, options, dtype);
  };

/** Where dtypes are not what a case is about, two do: others differ in how x is widened. */
const approximate = (testCase: Case): Case => ({
  ...testCase,
  options: { ...testCase.options, approximate: "int8-activations" },
  dtypes: testCase.dtypes ?? ["f32", "bf16"],
});
/** Products that meet before they are rounded to short floats: one that is rounded the other way shows in a product of two. */
const inF32 = (testCase: Case): Case =>
  testCase.options?.outDtype
    ? testCase
    : {
        ...testCase,
        options: { ...testCase.options, outDtype: "f32" },
        ask: Object.fromEntries(Object.entries(testCase.ask ?? {}).map(([k, out]) => [k, { ...out, dtype: "f32" }])),
      };

/** Bars are those of exact products: all but the rounding is exact. */
const approximated = ({ op, cases, errorClass, reference }: Suite, change = (testCase: Case) => testCase): Suite => ({
  op,
  errorClass,
  reference: rounded(reference),
  cases: cases.filter(({ options }) => options?.transpose !== false).map((each) => approximate(change(each))),
});

const groupsOf = (x: Float64Array, groupSize: number) =>
  Array.from({ length: x.length / groupSize }, (_, g) => x.subarray(g * groupSize, (g + 1) * groupSize));
const unitOf = (x: Float64Array) => Math.max(...x.map(Math.abs)) / 127 || 1;
/** Each number as what `change` makes of it in units, and of its group's number. */
const inUnits =
  (change: (q: number, g: number) => number, unit: (group: Float64Array) => number = unitOf): Rounding =>
  (x, groupSize) => {
    const out = x.slice();
    for (const [g, group] of groupsOf(out, groupSize).entries()) {
      const of = unit(group);
      for (const [i, value] of group.entries()) group[i] = change(value / of, g) * of;
    }
    return out;
  };
const otherUnits =
  (taken: (g: number, groups: number) => number): Rounding =>
  (x, groupSize) => {
    const units = groupsOf(x, groupSize).map(unitOf);
    return inUnits((q, g) => (Math.round(q) / (units[g] as number)) * (units[taken(g, units.length)] as number))(
      x,
      groupSize,
    );
  };

const withProduct = (product: Product) => rounded(reference(product));
const withRounding = (round: Rounding) => rounded(reference(), round);

const mutants: Record<string, ReferenceFunction> = {
  "x not rounded": withRounding((x) => x),
  "a power of two as unit": withRounding(inUnits(Math.round, (x) => 2 ** Math.ceil(Math.log2(unitOf(x))))),
  "one unit for all": withRounding((x) => inUnits(Math.round)(x, x.length)),
  "the unit of the group before": withRounding(otherUnits((g) => Math.max(0, g - 1))),
  "the unit of the next group": withRounding(otherUnits((g, groups) => Math.min(groups - 1, g + 1))),
  "half a group to a unit": withRounding((x, groupSize) => roundToBytes(x, groupSize / 2)),
  "128 units, saturated": withRounding(inUnits((q) => Math.min(127, Math.round((q * 128) / 127)) * (127 / 128))),
  "-127 wraps around": withRounding(inUnits((q) => (Math.round(q) <= -127 ? 127 : Math.round(q)))),
  "rounded down": withRounding(inUnits(Math.floor)),
  "rounded to zero": withRounding(inUnits(Math.trunc)),
  "codes not centered again": withProduct((m) => {
    const center = 2 ** (m.options.bits - 1);
    return right({ ...m, biases: m.biases.map((bias, g) => bias + center * (m.scales[g] as number)) });
  }),
};
/** The biases meet Σx as it was. */
mutants["sums of x not rounded"] = (inputs, options, dtype) => {
  const part = (of: (m: Parameters<Product>[0]) => Parameters<Product>[0]) => reference((m) => right(of(m)));
  const codes = rounded(part((m) => ({ ...m, biases: m.biases.map(() => 0) })))(inputs, options, dtype).out;
  const { bias: _, ...others } = inputs;
  const sums = part((m) => ({ ...m, scales: m.scales.map(() => 0) }))(others, options, dtype).out;
  const { shape, data } = codes as Reference64;
  return { out: { shape, data: data.map((value, i) => value + ((sums as Reference64).data[i] as number)) } };
};

describe.skipIf(process.env.MLXTS_DEVICE === "metal")("int8 activations", () => {
  testSuite({ ...approximated(plain), mutants });
  for (const suite of [multi, gathered]) testSuite(approximated(suite));
  for (const suite of [swiglu, gatheredSwiglu]) testSuite(approximated(suite, inF32));
});

/**
 * What rounding costs beside exact products, rms(error) / rms(result), for normally distributed x: an element errs by an rms of
 * unit / √12, and the unit is the largest of a group / 127, of 32, 64 and 128 elements 2.38, 2.64 and 2.85 times their rms
 * (the root of its mean square). The theory gives 5.4e-3, 6.0e-3 and 6.5e-3; a fifth above.
 */
const BARS = { 32: 6.5e-3, 64: 7.2e-3, 128: 7.8e-3 } as const;

const [ROWS, COLS] = [300, 2048];

function makeProduct(groupSize: keyof typeof BARS, bits: 4 | 8, m: number, dtype: FloatDtype) {
  const made = randomQuantized(1, ROWS, COLS, { bits, groupSize }, 77 + m);
  const scales = made.scales.map(Math.fround);
  const biases = made.biases.map(Math.fround);
  const w = decodeExactly(made.weight, scales, biases, { bits, groupSize });
  const x = decodeNumbers(dtype, encodeNumbers(dtype, new Random(m).normals(m * COLS, 1 / Math.sqrt(COLS))));
  const halfUnits = groupsOf(x, groupSize).flatMap((group) => Array(groupSize).fill(unitOf(group) / 2));
  return {
    ...{ x, weight: made.weight, scales, biases },
    exact: productReference(x, w, ROWS, COLS, true),
    /** No element errs by more than half a unit. */
    limits: productReference(Float64Array.from(halfUnits), w.map(Math.abs), ROWS, COLS, true),
  };
}
const products = new Map<string, ReturnType<typeof makeProduct>>();
/** A product and what it gives in f64, made once for all devices. */
function productOf(...given: Parameters<typeof makeProduct>) {
  const key = given.join();
  const product = products.get(key) ?? makeProduct(...given);
  products.set(key, product);
  return product;
}

describe.skipIf(process.env.MLXTS_DEVICE === "metal").each(DEVICES)("what int8 activations cost, on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());

  it.each([32, 64, 128] as const)("groups of %d", async (groupSize) => {
    for (const bits of [4, 8] as const)
      for (const m of [1, 5, 20])
        for (const dtype of FLOATS) {
          const { x, weight, scales, biases, exact, limits } = productOf(groupSize, bits, m, dtype);
          const q = {
            weight: device.tensor("u32", [ROWS, (COLS * bits) / 32], weight),
            scales: device.tensor("f32", [ROWS, COLS / groupSize], scales),
            biases: device.tensor("f32", [ROWS, COLS / groupSize], biases),
            ...({ bits, groupSize, mode: "affine" } as const),
          };
          const encoder = device.encoder();
          const options = { outDtype: "f32", approximate: "int8-activations" } as const;
          const out = quantizedMatmul(encoder, { x: device.tensor(dtype, [m, COLS], x), q }, options);
          await encoder.commit();
          const y = await out.readNumbers();
          const name = `${bits} bits, M ${m}, ${dtype}`;
          expect(compare(y, exact).ratio, name).toBeLessThan(BARS[groupSize]);
          expect(
            y.every((v, i) => Math.abs(v - (exact[i] as number)) <= (limits[i] as number)),
            name,
          ).toBe(true);
        }
  });
});
