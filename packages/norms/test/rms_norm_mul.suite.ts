import type { ReferenceFunction, Suite } from "@mlxts/core/testing";
import { rmsNormMul } from "../src/index.ts";
import { rmsNormReference } from "../src/reference.ts";
import { rmsNormMulReference } from "../src/reference_fused.ts";
import { data, nextRow, rowCases, type Setting, tensorMaker } from "./row_cases.ts";
import { type Norm, normMutants } from "./wrong_norms.ts";

type Options = { eps?: number; weightOffset?: number };
type Formula = (
  x: Float64Array,
  weight: Float64Array,
  factor: Float64Array,
  norm: (x: Float64Array) => Float64Array,
) => Float64Array;

const { rowsOf, weightOf } = tensorMaker();

const reference =
  (norm: Norm, formula?: Formula): ReferenceFunction =>
  (inputs, { eps = 1e-6, weightOffset = 0 }: Options, dtype) => {
    const [x, weight, factor] = ["x", "weight", "factor"].map((name) => data(inputs, name)) as [
      Float64Array,
      Float64Array,
      Float64Array,
    ];
    const own: Norm = (a, w, e, offset) => norm(a, w, e, offset, dtype);
    return {
      out: {
        shape: inputs.x?.shape as number[],
        data: formula
          ? formula(x, weight, factor, (a) => own(a, weight, eps, weightOffset, dtype))
          : rmsNormMulReference(x, weight, factor, eps, weightOffset, (a, w, e, offset) => own(a, w, e, offset, dtype)),
      },
    };
  };
const wrong = (formula: Formula) => reference(rmsNormReference, formula);

const tensors = (setting: Setting) => ({
  x: rowsOf(setting, setting.rms),
  weight: weightOf(setting),
  factor: rowsOf(setting),
});
const plain: Setting = { rows: 5, dim: 67, rms: 1, weightDtype: "act", options: {} };

export const suite: Suite = {
  op: rmsNormMul,
  errorClass: "S2",
  reference: reference(rmsNormReference),
  cases: [
    ...rowCases((setting) => ({ inputs: tensors(setting) })),
    ...[5, 64, 1025].map((dim) => ({
      name: `[60,${dim}] intermediate not rounded`,
      inputs: tensors({ ...plain, rows: 60, dim }),
      options: { roundIntermediate: false },
      errorClass: "S" as const,
    })),
    ...["x", "factor"].map((input) => ({
      name: `in place of ${input}`,
      inputs: tensors(plain),
      inPlace: { out: input },
    })),
  ],
  mutants: {
    ...normMutants(reference),
    "factor ignored": wrong((x, _, __, norm) => norm(x)),
    "product normalized": wrong((x, _, factor, norm) => norm(x.map((v, i) => v * (factor[i] as number)))),
    "factor normalized": wrong((x, _, factor, norm) => norm(factor).map((v, i) => v * (x[i] as number))),
    "factor of the first row": wrong((x, w, factor, norm) =>
      norm(x).map((v, i) => v * (factor[i % w.length] as number)),
    ),
    "factor of the next row": wrong((x, w, factor, norm) => {
      const next = nextRow(factor, w.length);
      return norm(x).map((v, i) => v * (next[i] as number));
    }),
    "factor added": wrong((x, _, factor, norm) => norm(x).map((v, i) => v + (factor[i] as number))),
  },
};
