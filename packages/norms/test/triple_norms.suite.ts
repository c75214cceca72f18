// The ops with three weights.
import { roundTo } from "@mlxts/core";
import type { Reference64, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { fusedPostAttnTripleNorm, rmsNormTriple } from "../src/index.ts";
import { rmsNormReference } from "../src/reference.ts";
import { fusedPostAttnTripleNormReference, rmsNormTripleReference } from "../src/reference_fused.ts";
import { data, nextRow, rowCases, type Setting, scaledBy, tensorMaker } from "./row_cases.ts";
import { type Norm, normMutants, roundedNorm } from "./wrong_norms.ts";

type Options = { eps?: number; weightOffset?: number; rounding?: string };
type Inputs = Record<string, Reference64>;
const { awayFromZero, rowsOf, weightOf } = tensorMaker();
const WEIGHTS = ["weightA", "weightB", "weightC"];
const OUTS = ["outA", "outB", "outC"];

const weights = (setting: Setting) => Object.fromEntries(WEIGHTS.map((name) => [name, weightOf(setting)]));
/** Weights of both dtypes side by side. */
const mixed = (setting: Setting) => ({
  ...weights(setting),
  weightB: weightOf({ ...setting, weightDtype: setting.weightDtype === "f32" ? "act" : "f32" }),
});
const plain: Setting = { rows: 5, dim: 67, rms: 1, weightDtype: "act", options: {} };

const outputs = (shape: readonly number[], outs: readonly Float64Array[]) =>
  Object.fromEntries(OUTS.map((name, i) => [name, { shape, data: outs[i] as Float64Array }]));

const triple =
  (norm: Norm, names: readonly string[] = WEIGHTS): ReferenceFunction =>
  (inputs, { eps = 1e-6, weightOffset = 0 }: Options, dtype) =>
    outputs(
      inputs.x?.shape as number[],
      rmsNormTripleReference(
        data(inputs, "x"),
        names.map((name) => data(inputs, name)),
        eps,
        weightOffset,
        (x, w, e, offset) => norm(x, w, e, offset, dtype),
      ),
    );

const tripleSuite: Suite = {
  op: rmsNormTriple,
  errorClass: "S2",
  reference: triple(rmsNormReference),
  cases: [
    ...rowCases((setting) => ({ inputs: { x: rowsOf(setting, setting.rms), ...weights(setting) } })),
    ...(["act", "f32"] as const).map((weightDtype) => ({
      name: `weights of both dtypes, ${weightDtype} first`,
      inputs: { x: rowsOf(plain), ...mixed({ ...plain, weightDtype }) },
    })),
  ],
  mutants: {
    ...normMutants((norm) => triple(norm)),
    "first weight for all": triple(rmsNormReference, ["weightA", "weightA", "weightA"]),
    "second and third weight exchanged": triple(rmsNormReference, ["weightA", "weightC", "weightB"]),
    "first and second weight exchanged": triple(rmsNormReference, ["weightB", "weightA", "weightC"]),
  },
};

type Change = (inputs: Inputs, dim: number) => Partial<Record<string, Float64Array>>;
/** `second`, if given, is what res is normalized by, and gets the norm of attn. */
const postAttn =
  (
    norm: Norm,
    change: Change = () => ({}),
    second?: (res: Float64Array, weight: Float64Array, attn: Float64Array) => Float64Array,
  ): ReferenceFunction =>
  (inputs, { eps = 1e-6, weightOffset = 0, rounding }: Options, dtype) => {
    const changed = change(inputs, inputs.weightA?.shape[0] as number);
    const of = (name: string) => changed[name] ?? data(inputs, name);
    const own = roundedNorm(norm, rounding, dtype);
    const { res, outs } = fusedPostAttnTripleNormReference(
      of("hidden"),
      of("attn"),
      of("weightPost"),
      WEIGHTS.map(of),
      eps,
      weightOffset,
      own,
      (value) => roundTo(dtype, value),
    );
    const wrong = (w: string) =>
      second?.(
        res,
        of(w).map((v) => v + weightOffset),
        of("attn"),
      );
    const shape = inputs.hidden?.shape as number[];
    return {
      res: { shape, data: res },
      ...outputs(
        shape,
        WEIGHTS.map((w, i) => wrong(w) ?? (outs[i] as Float64Array)),
      ),
    };
  };
const changed = (change: Change) => postAttn(rmsNormReference, change);

const postTensors = (setting: Setting) => ({
  hidden: awayFromZero(setting),
  attn: rowsOf(setting, setting.rms),
  weightPost: weightOf(setting),
  ...weights(setting),
});
const ask = ({ rows, dim }: Setting) => ({ res: { dtype: "act" as const, shape: [rows, dim] } });

const postAttnSuite: Suite = {
  op: fusedPostAttnTripleNorm,
  errorClass: "S2",
  reference: postAttn(rmsNormReference),
  cases: [
    ...rowCases((setting) => ({ inputs: postTensors(setting), ask: ask(setting) })),
    ...[5, 67, 513, 1030].map((dim) => ({
      name: `[9,${dim}] res not asked for`,
      inputs: postTensors({ ...plain, rows: 9, dim }),
    })),
    {
      name: "weights of both dtypes",
      inputs: { ...postTensors(plain), ...mixed(plain) },
      ask: ask(plain),
    },
    ...[67, 1030].map((dim) => ({
      name: `[5,${dim}] in place of hidden`,
      inputs: postTensors({ ...plain, dim }),
      inPlace: { res: "hidden" },
      ask: ask({ ...plain, dim }),
    })),
  ],
  mutants: {
    ...normMutants((norm) => postAttn(norm)),
    "second norm divided by the first sum": postAttn(rmsNormReference, undefined, (res, w, attn) =>
      scaledBy(res, w, attn),
    ),
    "res not normalized": postAttn(rmsNormReference, undefined, (res, w) =>
      res.map((v, i) => v * (w[i % w.length] as number)),
    ),
    "hidden ignored": changed((inputs) => ({ hidden: data(inputs, "hidden").map(() => 0) })),
    "hidden and attn exchanged": changed((inputs) => ({ hidden: data(inputs, "attn"), attn: data(inputs, "hidden") })),
    "hidden of the next row": changed((inputs, dim) => ({ hidden: nextRow(data(inputs, "hidden"), dim) })),
    "post weight for the first": changed((inputs) => ({ weightA: data(inputs, "weightPost") })),
    "weights exchanged": changed((inputs) => ({ weightB: data(inputs, "weightC"), weightC: data(inputs, "weightB") })),
  },
};

export const suites: readonly Suite[] = [tripleSuite, postAttnSuite];
