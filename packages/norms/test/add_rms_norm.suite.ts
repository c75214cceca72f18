import type { ReferenceFunction, Suite } from "@mlxts/core/testing";
import { addRmsNorm } from "../src/index.ts";
import { rmsNormReference } from "../src/reference.ts";
import { addRmsNormReference } from "../src/reference_fused.ts";
import { data, nextRow, rowCases, type Setting, tensorMaker } from "./row_cases.ts";
import { type Norm, normMutants } from "./wrong_norms.ts";

type Options = { eps?: number; weightOffset?: number };
const { rowsOf, weightOf } = tensorMaker();
type Pair = [a: Float64Array, b: Float64Array];

/** `change` gives what stands in the place of a and b where the sum is normalized, `summed` where it is stored. */
const reference =
  (
    norm: Norm,
    change: (a: Float64Array, b: Float64Array, dim: number) => Pair = (a, b) => [a, b],
    summed: typeof change = (a, b) => [a, b],
  ): ReferenceFunction =>
  (inputs, { eps = 1e-6, weightOffset = 0 }: Options, dtype) => {
    const [a, b, weight] = [data(inputs, "a"), data(inputs, "b"), data(inputs, "weight")];
    const run = (pair: Pair) =>
      addRmsNormReference(...pair, weight, eps, weightOffset, (x, w, e, offset) => norm(x, w, e, offset, dtype));
    const shape = inputs.a?.shape as number[];
    return {
      sum: { shape, data: run(summed(a, b, weight.length)).sum },
      out: { shape, data: run(change(a, b, weight.length)).out },
    };
  };
const changed = (...changes: [Parameters<typeof reference>[1], Parameters<typeof reference>[2]?]) =>
  reference(rmsNormReference, ...changes);
const zeros = (x: Float64Array) => x.map(() => 0);

// Both summands small where the rows are: their sum is what eps meets.
const tensors = (setting: Setting) => ({
  a: rowsOf(setting, setting.rms),
  b: rowsOf(setting, setting.rms),
  weight: weightOf(setting),
});
const plain: Setting = { rows: 5, dim: 67, rms: 1, weightDtype: "act", options: {} };

export const suite: Suite = {
  op: addRmsNorm,
  errorClass: { sum: "S", out: "S2" },
  reference: reference(rmsNormReference),
  cases: [
    ...rowCases((setting) => ({ inputs: tensors(setting) })),
    ...["a", "b"].map((input) => ({ name: `in place of ${input}`, inputs: tensors(plain), inPlace: { sum: input } })),
  ],
  mutants: {
    ...normMutants(reference),
    "first summand alone": changed((a, b) => [a, zeros(b)]),
    "second summand alone": changed((a, b) => [zeros(a), b]),
    "sum not stored": changed(undefined, (a, b) => [a, zeros(b)]),
    "b of the next row": changed((a, b, dim) => [a, nextRow(b, dim)]),
    subtracted: changed((a, b) => [a, b.map((v) => -v)]),
  },
};
