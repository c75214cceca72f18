import type { ReferenceFunction, Suite } from "@mlxts/core/testing";
import { rmsNormAdd } from "../src/index.ts";
import { rmsNormReference } from "../src/reference.ts";
import { rmsNormAddReference } from "../src/reference_fused.ts";
import { data, nextRow, rowCases, type Setting, tensorMaker } from "./row_cases.ts";
import { type Norm, normMutants } from "./wrong_norms.ts";

type Options = { eps?: number; weightOffset?: number };

const { rowsOf, weightOf } = tensorMaker();

/** `change` gives what stands in the place of x and residual. */
const reference =
  (
    norm: Norm,
    change: (x: Float64Array, residual: Float64Array, dim: number) => [Float64Array, Float64Array] = (x, residual) => [
      x,
      residual,
    ],
  ): ReferenceFunction =>
  (inputs, { eps = 1e-6, weightOffset = 0 }: Options, dtype) => {
    const weight = data(inputs, "weight");
    const [x, residual] = change(data(inputs, "x"), data(inputs, "residual"), weight.length);
    return {
      out: {
        shape: inputs.x?.shape as number[],
        data: rmsNormAddReference(x, weight, residual, eps, weightOffset, (a, w, e, offset) =>
          norm(a, w, e, offset, dtype),
        ),
      },
    };
  };
const changed = (change: Parameters<typeof reference>[1]) => reference(rmsNormReference, change);

const tensors = (setting: Setting) => ({
  x: rowsOf(setting, setting.rms),
  weight: weightOf(setting),
  residual: rowsOf(setting),
});
const plain: Setting = { rows: 5, dim: 67, rms: 1, weightDtype: "act", options: {} };

export const suite: Suite = {
  op: rmsNormAdd,
  errorClass: "S2",
  reference: reference(rmsNormReference),
  cases: [
    ...rowCases((setting) => ({ inputs: tensors(setting) })),
    ...["x", "residual"].map((input) => ({
      name: `in place of ${input}`,
      inputs: tensors(plain),
      inPlace: { out: input },
    })),
  ],
  mutants: {
    ...normMutants(reference),
    "residual ignored": changed((x, residual) => [x, residual.map(() => 0)]),
    "x and residual exchanged": changed((x, residual) => [residual, x]),
    "sum normalized": changed((x, residual) => [x.map((v, i) => v + (residual[i] as number)), residual.map(() => 0)]),
    "sum normalized and added": changed((x, residual) => [x.map((v, i) => v + (residual[i] as number)), residual]),
    "residual of the first row": changed((x, residual, dim) => [x, x.map((_, i) => residual[i % dim] as number)]),
    "residual of the next row": changed((x, residual, dim) => [x, nextRow(residual, dim)]),
    subtracted: changed((x, residual) => [x.map((v) => -v), residual]),
  },
};
