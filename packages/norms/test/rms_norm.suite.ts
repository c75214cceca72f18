import { Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { rmsNorm } from "../src/index.ts";
import { rmsNormReference } from "../src/reference.ts";
import { DIMS } from "./row_cases.ts";
import { type Norm, normMutants } from "./wrong_norms.ts";

const random = new Random(1);

function makeCase(
  rows: readonly number[],
  dim: number,
  options: Record<string, unknown> = {},
  rms = 1,
  weightDtype: "act" | "f32" = "act",
) {
  const count = rows.reduce((a, b) => a * b, 1);
  return {
    name: `[${[...rows, dim]}] rms ${rms} weight ${weightDtype} ${JSON.stringify(options)}`,
    inputs: {
      x: { dtype: "act" as const, shape: [...rows, dim], data: random.normals(count * dim, rms) },
      weight: { dtype: weightDtype, shape: [dim], data: random.normals(dim, 0.2, options.weightOffset === 1 ? 0 : 1) },
    },
    options,
    errorClass: options.rounding === "before-weight" ? ("S2" as const) : ("S" as const),
  };
}

type Options = { eps?: number; weightOffset?: number };
const reference =
  (norm: Norm): ReferenceFunction =>
  ({ x, weight }: Record<string, Reference64>, options: Options, dtype) => ({
    out: {
      shape: (x as Reference64).shape,
      data: norm(
        (x as Reference64).data,
        (weight as Reference64).data,
        options.eps ?? 1e-6,
        options.weightOffset ?? 0,
        dtype,
      ),
    },
  });

export const suite: Suite = {
  op: rmsNorm,
  errorClass: "S",
  reference: reference(rmsNormReference),
  cases: [
    // Few elements make a chance of rms(err): at least 256 of them.
    ...DIMS.map((dim) => makeCase([Math.max(3, Math.ceil(256 / dim))], dim)),
    ...[1, 2, 7, 64, 257].map((rows) => makeCase([rows], 260)),
    makeCase([2, 3, 5], 40),
    ...[1e-3, 1e3].flatMap((rms) => [1e-6, 1e-5, 0.1].map((eps) => makeCase([3], 128, { eps }, rms))),
    ...[1, 5, 64, 1025].flatMap((dim) => [
      makeCase([300], dim, { weightOffset: 1 }),
      makeCase([300], dim, { rounding: "before-weight" }),
      makeCase([300], dim, {}, 1, "f32"),
      makeCase([300], dim, { weightOffset: 1, rounding: "before-weight" }, 1, "f32"),
    ]),
    { ...makeCase([3], 67), inPlace: { out: "x" } },
  ],
  mutants: normMutants(reference),
};
