import type { Case, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { rmsNormNoScale, rmsNormNoScaleDual, rmsNormNoScaleDualPermuted } from "../src/index.ts";
import { rmsNormReference } from "../src/reference.ts";
import { byHeadReference, rmsNormNoScaleReference } from "../src/reference_fused.ts";
import { data, scaleCases, tensorMaker } from "./row_cases.ts";
import { type Norm, scaleMutants } from "./wrong_norms.ts";

type Options = { eps?: number };

const { numbers, rowsOf } = tensorMaker();

/** The norm of the rows of x; `by16` orders what is stored in 16 bits. */
const reference =
  (
    norm: Norm,
    names: readonly string[],
    by16: (x: Float64Array, shape: readonly number[]) => Float64Array = (x) => x,
  ) =>
  (inputs: Parameters<ReferenceFunction>[0], { eps = 1e-6 }: Options, dtype: Parameters<Norm>[4]) => {
    const shape = inputs.x?.shape as number[];
    const dim = shape[shape.length - 1] as number;
    const own = rmsNormNoScaleReference(data(inputs, "x"), dim, eps, (x, w, e, offset) => norm(x, w, e, offset, dtype));
    const permuted = by16 === byHead ? [shape[1] as number, shape[0] as number, dim] : shape;
    return Object.fromEntries(
      names.map((name) =>
        name === "out16" ? [name, { shape: permuted, data: by16(own, shape) }] : [name, { shape, data: own }],
      ),
    );
  };
const byHead = (x: Float64Array, [tokens, heads, dim]: readonly number[]) =>
  byHeadReference(x, tokens as number, heads as number, dim as number);

const single: Suite = {
  op: rmsNormNoScale,
  errorClass: "S",
  reference: reference(rmsNormReference, ["out"]),
  cases: [
    ...scaleCases((setting) => ({ inputs: { x: rowsOf(setting, setting.rms) } })),
    { name: "in place", inputs: { x: rowsOf({ rows: 5, dim: 67 }) }, inPlace: { out: "x" } },
    {
      name: "zero rows",
      inputs: { x: { dtype: "act", shape: [4, 67], data: new Float64Array(4 * 67) } },
    },
    {
      name: "numbers up to 1e15",
      inputs: { x: { dtype: "act", shape: [8, 130], data: numbers(8 * 130, 5e14) } },
      dtypes: ["f32", "bf16"],
    },
  ],
  mutants: scaleMutants((norm) => reference(norm, ["out"])),
};

const BOTH = ["out", "out16"];
/** x in f32, and each dtype of 16 bits. */
const in16 = (testCase: Case, shape = testCase.inputs.x?.shape as number[]): Case[] =>
  (["bf16", "f16"] as const).map((dtype) => ({
    ...testCase,
    name: `${testCase.name} ${dtype}`,
    ask: { out16: { dtype, shape } },
  }));

const dual: Suite = {
  op: rmsNormNoScaleDual,
  errorClass: "S",
  dtypes: ["f32"],
  reference: reference(rmsNormReference, BOTH),
  cases: scaleCases((setting) => ({ inputs: { x: rowsOf(setting, setting.rms) } })).flatMap((each) => in16(each)),
  mutants: {
    // x is f32 here.
    ...Object.fromEntries(
      Object.entries(scaleMutants((norm) => reference(norm, BOTH))).filter(([name]) => !name.includes("f16")),
    ),
    "16 bits of the row before": reference(rmsNormReference, BOTH, (x, shape) => {
      const dim = shape[1] as number;
      return x.map((_, i) => x[(i + dim) % x.length] as number);
    }),
    "second output not normalized": (inputs, options: Options, dtype) => ({
      ...reference(rmsNormReference, ["out"])(inputs, options, dtype),
      out16: { shape: inputs.x?.shape as number[], data: data(inputs, "x") },
    }),
  },
};

const permutedCase = (tokens: number, heads: number, dim: number) =>
  in16(
    {
      name: `[${tokens}, ${heads}, ${dim}]`,
      inputs: { x: { dtype: "act", shape: [tokens, heads, dim], data: numbers(tokens * heads * dim) } },
    },
    [heads, tokens, dim],
  );

const permuted: Suite = {
  op: rmsNormNoScaleDualPermuted,
  errorClass: "S",
  dtypes: ["f32"],
  reference: reference(rmsNormReference, BOTH, byHead),
  cases: [
    [1, 7, 64],
    [7, 1, 64],
    [3, 5, 33],
    [5, 3, 128],
    [2, 9, 512],
    [9, 2, 513],
    [4, 3, 1025],
    [64, 4, 5],
    [33, 8, 100],
  ].flatMap(([tokens, heads, dim]) => permutedCase(tokens as number, heads as number, dim as number)),
  mutants: {
    "not permuted": reference(rmsNormReference, BOTH, (x) => x),
    "permuted the other way": reference(rmsNormReference, BOTH, (x, [tokens, heads, dim]) =>
      byHeadReference(x, heads as number, tokens as number, dim as number),
    ),
    "first head for all": reference(rmsNormReference, BOTH, (x, [tokens, heads, dim]) => {
      const d = dim as number;
      return byHead(x, [tokens as number, heads as number, d]).map(
        (_, i, all) => all[i % ((tokens as number) * d)] as number,
      );
    }),
    "output left unwritten": reference(rmsNormReference, BOTH, (x) => x.map(() => Number.NaN)),
  },
};

export const suites: readonly Suite[] = [single, dual, permuted];
