import { roundTo } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { moeCombine } from "../src/index.ts";
import { combineReference, orderReference } from "../src/reference.ts";

const random = new Random(13);

export interface CombineSetting {
  N: number;
  topK: number;
  D: number;
  experts?: number;
  shared?: boolean;
  gate?: boolean;
  residual?: boolean;
  inPlace?: boolean;
}

export const combineCase = ({ N, topK, D, experts, shared, gate, residual, inPlace }: CombineSetting): Case => {
  const act = (shape: number[]) => ({
    dtype: "act" as const,
    shape,
    data: random.normals(shape.reduce((a, b) => a * b, 1)),
  });
  const has = { order: experts !== undefined, shared, gate, residual, "in place": inPlace };
  return {
    name: `[${N}, ${topK}, ${D}] ${Object.entries(has).flatMap(([name, is]) => (is ? [name] : []))}`,
    inputs: {
      y: act([N, topK, D]),
      weights: { dtype: "f32", shape: [N, topK], data: random.uniforms(N * topK, 0, 1) },
      ...(experts === undefined
        ? {}
        : {
            order: {
              dtype: "i32" as const,
              shape: [N * topK],
              data: orderReference(Float64Array.from(random.integers(N * topK, experts)), experts).order,
            },
          }),
      ...(shared ? { shared: act([N, D]) } : {}),
      ...(gate ? { sharedGate: act([N, 1]) } : {}),
      ...(residual ? { residual: act([N, D]) } : {}),
    },
    ...(inPlace ? { inPlace: { out: "residual" } } : {}),
  };
};

const combined =
  (
    change: (inputs: Record<string, Float64Array | undefined>, topK: number, dim: number) => Float64Array,
  ): ReferenceFunction =>
  (inputs) => {
    const [N = 0, topK = 0, dim = 0] = (inputs.y as Reference64).shape;
    const data = Object.fromEntries(Object.entries(inputs).map(([name, tensor]) => [name, tensor.data]));
    return { out: { shape: [N, dim], data: change(data, topK, dim) } };
  };
const sigmoid = (x: number) => 1 / (1 + Math.exp(-x));

const suite: Suite = {
  op: moeCombine,
  errorClass: "R",
  reference: combined(combineReference),
  cases: [
    ...[1, 3, 15, 16, 17, 33, 64, 100, 257, 1030].map((D, i) =>
      combineCase({
        N: [7, 1, 2][i % 3] as number,
        topK: [1, 2, 6, 8, 10][i % 5] as number,
        D,
        shared: i % 2 === 0,
        residual: i % 3 === 0,
      }),
    ),
    combineCase({ N: 7, topK: 8, D: 64, experts: 16 }),
    combineCase({ N: 257, topK: 6, D: 20, experts: 60, shared: true, gate: true }),
    combineCase({ N: 64, topK: 2, D: 35, experts: 8, shared: true, gate: true, residual: true }),
    combineCase({ N: 5, topK: 10, D: 130, shared: true, gate: true, residual: true, inPlace: true }),
    combineCase({ N: 2, topK: 3, D: 40, experts: 2, residual: true, inPlace: true }),
  ],
  mutants: {
    "the next slot's weight": combined((inputs, topK, dim) => {
      const weights = inputs.weights as Float64Array;
      const turned = weights.map((_, i) => weights[i - (i % topK) + ((i + 1) % topK)] as number);
      return combineReference({ ...inputs, weights: turned }, topK, dim);
    }),
    "shared gate forgotten": combined((inputs, topK, dim) =>
      combineReference({ ...inputs, sharedGate: undefined }, topK, dim),
    ),
    "shared gate without its sigmoid": combined((inputs, topK, dim) => {
      const { shared, sharedGate } = inputs;
      const gated = sharedGate ? shared?.map((x, i) => x * (sharedGate[Math.floor(i / dim)] as number)) : shared;
      return combineReference({ ...inputs, shared: gated, sharedGate: undefined }, topK, dim);
    }),
    "shared gate on the routed part": combined((inputs, topK, dim) => {
      const { sharedGate } = inputs;
      const weights = (inputs.weights as Float64Array).map((w, i) =>
        sharedGate ? w * sigmoid(sharedGate[Math.floor(i / topK)] as number) : w,
      );
      return combineReference({ ...inputs, weights, sharedGate: undefined }, topK, dim);
    }),
    "shared expert forgotten": combined((inputs, topK, dim) =>
      combineReference({ ...inputs, shared: undefined }, topK, dim),
    ),
    "residual forgotten": combined((inputs, topK, dim) =>
      combineReference({ ...inputs, residual: undefined }, topK, dim),
    ),
    "order ignored": combined((inputs, topK, dim) => combineReference({ ...inputs, order: undefined }, topK, dim)),
    "rows by order, not by its inverse": combined((inputs, topK, dim) => {
      const { order } = inputs;
      const inverse = order?.slice();
      order?.forEach((pair, row) => {
        (inverse as Float64Array)[pair] = row;
      });
      return combineReference({ ...inputs, order: inverse }, topK, dim);
    }),
    "last slot left out": combined((inputs, topK, dim) => {
      const weights = (inputs.weights as Float64Array).map((w, i) => (i % topK === topK - 1 ? 0 : w));
      return combineReference({ ...inputs, weights }, topK, dim);
    }),
    "sums in the dtype of y": (inputs, options, dtype) => {
      const slots = (inputs.y as Reference64).shape[1] as number;
      const step = (slot: number) =>
        combined(({ y, weights, order }, topK, dim) =>
          combineReference({ y, order, weights: weights?.map((w, i) => (i % topK === slot ? w : 0)) }, topK, dim),
        )(inputs, options, dtype);
      const rest = combined((all, topK, dim) =>
        combineReference({ ...all, weights: all.weights?.map(() => 0) }, topK, dim),
      )(inputs, options, dtype);
      const steps = [...Array.from({ length: slots }, (_, slot) => step(slot)), rest];
      const add = (sum: Float64Array, { out }: Record<string, Reference64>) =>
        sum.map((v, i) => roundTo(dtype, v + ((out as Reference64).data[i] as number)));
      const { shape, data } = rest.out as Reference64;
      return { out: { shape, data: steps.reduce(add, new Float64Array(data.length)) } };
    },
    "columns behind whole vectors not written": combined((inputs, topK, dim) =>
      combineReference(inputs, topK, dim).map((v, i) => (i % dim < dim - (dim % 4) ? v : Number.NaN)),
    ),
    "a weight of the token before": combined((inputs, topK, dim) => {
      const weights = inputs.weights as Float64Array;
      const before = weights.map((w, i) => weights[i - topK] ?? w);
      return combineReference({ ...inputs, weights: before }, topK, dim);
    }),
  },
};

export const suites: readonly Suite[] = [suite];
