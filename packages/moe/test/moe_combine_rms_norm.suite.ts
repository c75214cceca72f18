import { roundTo } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { moeCombineRmsNorm } from "../src/index.ts";
import { combineReference, normReference } from "../src/reference.ts";
import { type CombineSetting, combineCase } from "./moe_combine.suite.ts";

const random = new Random(29);

interface Options {
  eps?: number;
  weightOffset?: 0 | 1;
  rounding?: "once" | "before-weight";
}
interface Setting extends CombineSetting {
  options?: Options;
  weightDtype?: "act" | "f32";
}

function normCase({ options = {}, weightDtype = "act", ...setting }: Setting): Case {
  const { name, inputs, inPlace } = combineCase(setting);
  const { D } = setting;
  const about = options.weightOffset === 1 ? 0 : 1;
  return {
    name: `${name}, weight ${weightDtype} ${JSON.stringify(options)}`,
    inputs: {
      ...inputs,
      normWeight: { dtype: weightDtype, shape: [D], data: random.uniforms(D, about - 0.5, about + 0.5) },
    },
    options: { ...options },
    ...(inPlace ? { inPlace: { sum: "residual" } } : {}),
  };
}

type Given = Record<string, Float64Array | undefined>;
type Norm = typeof normReference;

/** `change`: what is added up, where it is normalized; `stored`: where it is stored. */
const reference =
  (
    norm: Norm = normReference,
    change: (inputs: Given, topK: number, dim: number) => Given = (inputs) => inputs,
    stored: typeof change = (inputs) => inputs,
  ): ReferenceFunction =>
  (inputs, options: Options, dtype) => {
    const [N = 0, topK = 0, dim = 0] = (inputs.y as Reference64).shape;
    const data = Object.fromEntries(Object.entries(inputs).map(([name, tensor]) => [name, tensor.data]));
    const round = (value: number) => (options.rounding === "before-weight" ? roundTo(dtype, value) : value);
    const sum = combineReference(change(data, topK, dim), topK, dim);
    return {
      sum: { shape: [N, dim], data: combineReference(stored(data, topK, dim), topK, dim) },
      out: { shape: [N, dim], data: norm(sum, data.normWeight as Float64Array, options, round) },
    };
  };
const without = (name: string) => (inputs: Given) => ({ ...inputs, [name]: undefined });
/** Both where the sum is stored and where it is normalized. */
const everywhere = (change: (inputs: Given, topK: number, dim: number) => Given) =>
  reference(normReference, change, change);

export const suite: Suite = {
  op: moeCombineRmsNorm,
  errorClass: { sum: "R", out: "S2" },
  reference: reference(),
  cases: [
    ...[1, 3, 15, 16, 17, 33, 64, 100, 257, 512, 513, 1030, 2055].map((D, i) =>
      normCase({
        N: [7, 1, 2][i % 3] as number,
        topK: [1, 2, 6, 8, 10][i % 5] as number,
        D,
        shared: i % 2 === 0,
        residual: i % 3 === 0,
        weightDtype: i % 4 < 2 ? "act" : "f32",
        options: { weightOffset: (i % 2) as 0 | 1 },
      }),
    ),
    normCase({ N: 19, topK: 8, D: 64, experts: 16 }),
    normCase({ N: 257, topK: 6, D: 20, experts: 60, shared: true, gate: true, weightDtype: "f32" }),
    normCase({ N: 9, topK: 2, D: 635, experts: 8, shared: true, gate: true, residual: true }),
    normCase({
      N: 5,
      topK: 10,
      D: 130,
      shared: true,
      gate: true,
      residual: true,
      inPlace: true,
      options: { eps: 0.5 },
    }),
    normCase({ N: 2, topK: 3, D: 1040, experts: 2, residual: true, inPlace: true, weightDtype: "f32" }),
    ...(["act", "f32"] as const).map((weightDtype) =>
      normCase({ N: 6, topK: 4, D: 77, residual: true, weightDtype, options: { rounding: "before-weight" } }),
    ),
  ],
  mutants: {
    "sum not stored": reference(normReference, undefined, (inputs) => ({
      ...inputs,
      weights: inputs.weights?.map(() => 0),
    })),
    "residual not in the norm": reference(normReference, without("residual")),
    "residual not in the sum": reference(normReference, undefined, without("residual")),
    "shared expert forgotten": everywhere(without("shared")),
    "shared gate forgotten": everywhere(without("sharedGate")),
    "order ignored": everywhere(without("order")),
    "the next slot's weight": everywhere((inputs, topK) => ({
      ...inputs,
      weights: inputs.weights?.map((_, i, all) => all[i - (i % topK) + ((i + 1) % topK)] as number),
    })),
    "last slot left out": everywhere((inputs, topK) => ({
      ...inputs,
      weights: inputs.weights?.map((w, i) => (i % topK === topK - 1 ? 0 : w)),
    })),
    "not normalized": reference((sum) => sum),
    "the norm of all rows together": reference((sum, weight, options, round) => {
      const inverse = 1 / Math.sqrt(sum.reduce((a, v) => a + v * v, 0) / sum.length + (options.eps ?? 1e-6));
      return sum.map(
        (v, i) =>
          (round ?? Number)(v * inverse) * ((weight[i % weight.length] as number) + (options.weightOffset ?? 0)),
      );
    }),
    "eps ignored": reference((sum, weight, options, round) =>
      normReference(sum, weight, { ...options, eps: 1e-6 }, round),
    ),
    "w for 1 + w": reference((sum, weight, options, round) =>
      normReference(sum, weight, { ...options, weightOffset: 0 }, round),
    ),
    "weight ignored": reference((sum, weight, options, round) =>
      normReference(
        sum,
        weight.map(() => 1),
        options,
        round,
      ),
    ),
    "sums of one simdgroup alone": reference((sum, weight, options, round) => {
      const dim = weight.length;
      const seen = sum.map((v, i) => (i % dim < 128 ? v : 0));
      const scale = normReference(seen, weight, options, round);
      return normReference(sum, weight, options, round).map((v, i) => {
        const first = i - (i % dim);
        return (
          (v * (scale[first] as number)) /
          (normReference(sum.subarray(first, first + dim), weight, options, round)[0] as number)
        );
      });
    }),
    "columns behind whole vectors not written": reference((sum, weight, options, round) =>
      normReference(sum, weight, options, round).map((v, i) => {
        const dim = weight.length;
        return i % dim < dim - (dim % 4) ? v : Number.NaN;
      }),
    ),
  },
};
