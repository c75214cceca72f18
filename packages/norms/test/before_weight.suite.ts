// `rounding: "before-weight"` bit by bit. Data keeps clear of ties, where a few ulp of f32 could decide the rounding.
import { type FloatDtype, roundTo } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { gatedRmsNorm, rmsNorm } from "../src/index.ts";
import { beforeWeightReference, gatedBeforeWeightReference } from "../src/reference.ts";

type Round = (value: number) => number;
/** The numbers of a call: `round` at the norm, `roundProduct` at its product with the weight. */
interface Arguments {
  x: Float64Array;
  z: Float64Array | undefined;
  weight: Float64Array;
  eps: number;
  weightOffset: number;
  activation: "silu" | "sigmoid";
  order: "norm-then-gate" | "gate-then-norm";
  round: Round;
  roundProduct: Round;
}
type Formula = (a: Arguments) => Float64Array;
type Options = {
  eps?: number;
  weightOffset?: number;
  activation?: Arguments["activation"];
  order?: Arguments["order"];
};
type Gate = Required<Pick<Options, "activation" | "order">>;

const exactly: Round = (value) => value;
const right: Formula = ({ x, z, weight, eps, weightOffset, activation, order, round, roundProduct }) =>
  z
    ? gatedBeforeWeightReference(x, z, weight, eps, weightOffset, activation, order, round, roundProduct)
    : beforeWeightReference(x, weight, eps, weightOffset, round);

/** Whether rounding to `dtype` gives the same with errors of a few ulp of f32. */
function clear(dtype: FloatDtype, value: number): boolean {
  const margin = Math.abs(value) * 2 ** -20;
  return roundTo(dtype, value - margin) === roundTo(dtype, value + margin);
}

const random = new Random(11);
const rounded = (dtype: FloatDtype, data: Float64Array) => data.map((v) => roundTo(dtype, v));

function makeCase(dtype: FloatDtype, weightDtype: "act" | "f32", dim: number, weightOffset: 0 | 1, gate?: Gate): Case {
  const rows = Math.ceil(256 / dim);
  const weight = rounded(weightDtype === "act" ? dtype : "f32", random.normals(dim, 0.2, weightOffset === 1 ? 0 : 1));
  const x = new Float64Array(rows * dim);
  const z = new Float64Array(rows * dim);
  for (let row = 0; row < rows; ) {
    const xs = rounded(dtype, random.uniforms(dim, -1.7, 1.7));
    const zs = rounded(dtype, random.uniforms(dim, -2.5, 2.5));
    let far = true;
    const watched: Round = (v) => {
      far &&= clear(dtype, v);
      return roundTo(dtype, v);
    };
    const out = right({
      x: xs,
      z: gate && zs,
      weight,
      eps: 1e-6,
      weightOffset,
      activation: "silu",
      order: "norm-then-gate",
      ...gate,
      round: watched,
      roundProduct: weightDtype === "act" ? watched : exactly,
    });
    if (!far || !out.every((v) => clear(dtype, v))) continue;
    x.set(xs, row * dim);
    z.set(zs, row * dim);
    row++;
  }
  const tensor = (data: Float64Array) => ({ dtype: "act" as const, shape: [rows, dim], data });
  return {
    name: `before-weight [${rows},${dim}] weight ${weightDtype} + ${weightOffset} ${gate?.activation ?? ""} ${gate?.order ?? ""}`,
    inputs: {
      x: tensor(x),
      ...(gate && { z: tensor(z) }),
      weight: { dtype: weightDtype, shape: [dim], data: weight },
    },
    options: { rounding: "before-weight", weightOffset, ...gate },
    dtypes: [dtype],
  };
}

const reference =
  (formula: Formula): ReferenceFunction =>
  ({ x, z, weight }: Record<string, Reference64>, options: Options, dtype) => {
    const round: Round = (value) => roundTo(dtype, value);
    const numbers = (weight as Reference64).data;
    // Weights that the dtype cannot hold are f32 ones: their product stays f32.
    const own = numbers.every((v) => roundTo(dtype, v) === v);
    return {
      out: {
        shape: (x as Reference64).shape,
        data: formula({
          eps: 1e-6,
          weightOffset: 0,
          activation: "silu",
          order: "norm-then-gate",
          ...options,
          x: (x as Reference64).data,
          z: z?.data,
          weight: numbers,
          round,
          roundProduct: own ? round : exactly,
        }),
      },
    };
  };
const changed = (change: (a: Arguments) => Partial<Arguments>) => reference((a) => right({ ...a, ...change(a) }));

const settings = (gate?: Gate) =>
  (["bf16", "f16"] as const).flatMap((dtype) =>
    (["act", "f32"] as const).flatMap((weightDtype) =>
      [5, 17, 64, 100].flatMap((dim) =>
        ([0, 1] as const).map((weightOffset) => makeCase(dtype, weightDtype, dim, weightOffset, gate)),
      ),
    ),
  );

const rmsNormSuite: Suite = {
  op: rmsNorm,
  errorClass: "exact",
  reference: reference(right),
  cases: settings(),
  mutants: {
    "rounding ignored": changed(() => ({ round: exactly })),
    "rounded after the weight only": reference((a) => right({ ...a, round: exactly }).map(a.round)),
  },
};

/** Mutants that must fail in this very setting: in all others they are right. */
const only = (gate: Gate, formula: Formula) =>
  reference((a) => (a.activation === gate.activation && a.order === gate.order ? formula(a) : right(a)));

const GATES = (["silu", "sigmoid"] as const).flatMap((activation) =>
  (["norm-then-gate", "gate-then-norm"] as const).map((order) => ({ activation, order })),
);

const gatedRmsNormSuite: Suite = {
  op: gatedRmsNorm,
  errorClass: "exact",
  reference: reference(right),
  cases: GATES.flatMap(settings),
  mutants: Object.fromEntries(
    GATES.flatMap((gate) => {
      const mutants: [string, Formula][] = [
        ["rounding ignored", (a) => right({ ...a, round: exactly, roundProduct: exactly })],
        ["rounded after the weight only", (a) => right({ ...a, round: exactly, roundProduct: a.round })],
      ];
      if (gate.order === "norm-then-gate")
        mutants.push(
          ["product with the weight not rounded", (a) => right({ ...a, roundProduct: exactly })],
          ["product with an f32 weight rounded", (a) => right({ ...a, roundProduct: a.round })],
          ["gate first", (a) => right({ ...a, order: "gate-then-norm" })],
        );
      return mutants.map(([name, formula]) => [`${gate.activation} ${gate.order}: ${name}`, only(gate, formula)]);
    }),
  ),
};

export const suites: readonly Suite[] = [rmsNormSuite, gatedRmsNormSuite];
