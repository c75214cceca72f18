// The two ops at the end of a layer.
import { roundTo } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { fusedMoeWsumPostFfNorm2EndLayer, fusedPostFfNorm2EndLayer } from "../src/index.ts";
import { rmsNormReference } from "../src/reference.ts";
import { expertSumReference, fusedPostFfNorm2EndLayerReference } from "../src/reference_fused.ts";
import { data, nextRow, rowCases, type Setting, scaledBy, tensorMaker } from "./row_cases.ts";
import { type Norm, normMutants, roundedNorm } from "./wrong_norms.ts";

type Options = { eps?: number; weightOffset?: number; rounding?: string };
type Inputs = Record<string, Reference64>;
type Change = (inputs: Inputs, dim: number) => Partial<Record<string, Float64Array>>;
type Experts = (experts: Float64Array, routing: Float64Array, topK: number, dim: number) => Float64Array;

const { awayFromZero, numbers, rowsOf, weightOf } = tensorMaker();
const random = new Random(23);
const plain: Setting = { rows: 5, dim: 67, rms: 1, weightDtype: "act", options: {} };

/** `second` is what gives norm(m), and gets x. */
interface Wrong {
  change?: Change;
  experts?: Experts;
  second?: (m: Float64Array, weight: Float64Array, x: Float64Array) => Float64Array;
}

const reference =
  (norm: Norm, { change, experts = expertSumReference, second }: Wrong = {}): ReferenceFunction =>
  (inputs, { eps = 1e-6, weightOffset = 0, rounding }: Options, dtype) => {
    const dim = inputs.weight2?.shape[0] as number;
    const changed = change?.(inputs, dim) ?? {};
    const of = (name: string) => changed[name] ?? data(inputs, name);
    const round = (value: number) => roundTo(dtype, value);
    const x = inputs.experts
      ? experts(of("experts"), of("routing"), inputs.routing?.shape[1] as number, dim).map(round)
      : of("x");
    let norms = 0;
    const own = (rows: Float64Array, weight: Float64Array, e: number, offset: number) =>
      second && norms++ === 1
        ? second(
            rows,
            weight.map((v) => v + offset),
            x,
          )
        : roundedNorm(norm, rounding, dtype)(rows, weight, e, offset);
    const [attn, residual, weight2, weight3, scale] = ["attn", "residual", "weight2", "weight3", "scale"].map(of) as [
      Float64Array,
      Float64Array,
      Float64Array,
      Float64Array,
      Float64Array,
    ];
    const { m, hidden } = fusedPostFfNorm2EndLayerReference(
      attn,
      x,
      residual,
      weight2,
      weight3,
      scale,
      eps,
      weightOffset,
      own,
      round,
    );
    const shape = inputs.attn?.shape as number[];
    return { m: { shape, data: m }, hidden: { shape, data: hidden } };
  };
const changed = (change: Change) => reference(rmsNormReference, { change });

const scaleOf = (size: number) => ({ dtype: "f32" as const, shape: [size], data: random.uniforms(size, 0.5, 1.5) });

/** Tensors of both ops; every second length has a vector of scales. */
const common = (setting: Setting) => ({
  attn: awayFromZero(setting),
  residual: rowsOf(setting),
  weight2: weightOf(setting),
  weight3: weightOf(setting),
  scale: scaleOf(setting.dim % 2 === 0 ? 1 : setting.dim),
});
const plainTensors = (setting: Setting) => ({ ...common(setting), x: rowsOf(setting, setting.rms) });
const expertTensors = (setting: Setting, topK = setting.dim < 3 ? 1 : (setting.dim % 3) + 1) => {
  const { rows, dim, rms } = setting;
  return {
    ...common(setting),
    experts: { dtype: "act" as const, shape: [rows, topK, dim], data: numbers(rows * topK * dim, rms) },
    routing: { dtype: "f32" as const, shape: [rows, topK], data: random.uniforms(rows * topK, 0.2, 1) },
  };
};
const ask = ({ rows, dim }: Setting) => ({ m: { dtype: "act" as const, shape: [rows, dim] } });

const both = (setting: Setting, tensors: (setting: Setting) => Case["inputs"]): Case[] => {
  const more: Case[] = [];
  for (const dim of [8, 67, 514, 1030]) {
    const sized = { ...setting, dim };
    for (const size of [1, dim])
      more.push({
        name: `[${setting.rows},${dim}] ${size} scales, m not asked for`,
        inputs: { ...tensors(sized), scale: scaleOf(size) },
      });
    more.push({
      name: `[${setting.rows},${dim}] in place of the residual, weights of both dtypes`,
      inputs: { ...tensors(sized), weight3: weightOf({ ...sized, weightDtype: "f32" }) },
      inPlace: { hidden: "residual" },
      ask: ask(sized),
    });
  }
  return more;
};

const zeros = (inputs: Inputs, name: string) => data(inputs, name).map(() => 0);
const mutants: Record<string, ReferenceFunction> = {
  ...normMutants((norm) => reference(norm)),
  "attn ignored": changed((inputs) => ({ attn: zeros(inputs, "attn") })),
  "residual ignored": changed((inputs) => ({ residual: zeros(inputs, "residual") })),
  "attn and residual exchanged": changed((inputs) => ({
    attn: data(inputs, "residual"),
    residual: data(inputs, "attn"),
  })),
  "attn of the next row": changed((inputs, dim) => ({ attn: nextRow(data(inputs, "attn"), dim) })),
  "weights exchanged": changed((inputs) => ({ weight2: data(inputs, "weight3"), weight3: data(inputs, "weight2") })),
  "scale ignored": changed((inputs) => ({ scale: data(inputs, "scale").map(() => 1) })),
  "first scale for all columns": changed((inputs) => ({ scale: data(inputs, "scale").slice(0, 1) })),
  "m not normalized": reference(rmsNormReference, {
    second: (m, weight) => m.map((v, i) => v * (weight[i % weight.length] as number)),
  }),
  "second norm divided by the first sum": reference(rmsNormReference, { second: scaledBy }),
};

/** What is added in ascending order is 0 · v + w; in descending order f32 has lost w. */
const cancels: Case = {
  name: "terms that cancel in ascending order",
  inputs: {
    ...common({ ...plain, rows: 8 }),
    experts: {
      dtype: "act",
      shape: [8, 3, 67],
      data: numbers(8 * 3 * 67).map((v, i) => (i % (3 * 67) < 2 * 67 ? 1 + ((i % 67) % 4) : v)),
    },
    routing: {
      dtype: "f32",
      shape: [8, 3],
      data: Array.from({ length: 24 }, (_, i) => [2 ** 27, -(2 ** 27), 1][i % 3] as number),
    },
  },
};

const inF32 =
  (order: (topK: number) => number[]): Experts =>
  (experts, routing, topK, dim) => {
    const out = new Float64Array(experts.length / topK);
    return out.map((_, i) => {
      const row = Math.floor(i / dim);
      return order(topK).reduce((sum, k) => {
        const at = row * topK + k;
        return Math.fround(sum + (routing[at] as number) * (experts[at * dim + (i % dim)] as number));
      }, 0);
    });
  };
const counted = (topK: number) => Array.from({ length: topK }, (_, k) => k);

const plainSuite: Suite = {
  op: fusedPostFfNorm2EndLayer,
  errorClass: "S2",
  reference: reference(rmsNormReference),
  cases: [
    ...rowCases((setting) => ({ inputs: plainTensors(setting), ask: ask(setting) })),
    ...both(plain, plainTensors),
  ],
  mutants: {
    ...mutants,
    "x and attn exchanged": changed((inputs) => ({ x: data(inputs, "attn"), attn: data(inputs, "x") })),
  },
};

const expertSuite: Suite = {
  op: fusedMoeWsumPostFfNorm2EndLayer,
  errorClass: "S2",
  reference: reference(rmsNormReference),
  cases: [
    ...rowCases((setting) => ({ inputs: expertTensors(setting), ask: ask(setting) })),
    ...both(plain, expertTensors),
    ...[1, 2, 8, 10].map((topK) => ({
      name: `[7,66] of ${topK} experts`,
      inputs: expertTensors({ ...plain, rows: 7, dim: 66 }, topK),
    })),
    cancels,
  ],
  mutants: {
    ...mutants,
    "routing of the next row": changed((inputs) => ({
      routing: nextRow(data(inputs, "routing"), inputs.routing?.shape[1] as number),
    })),
    "routing ignored": changed((inputs) => ({ routing: data(inputs, "routing").map(() => 1) })),
    "first expert alone": reference(rmsNormReference, {
      experts: (experts, routing, topK, dim) =>
        expertSumReference(
          experts,
          routing.map((v, i) => (i % topK === 0 ? v : 0)),
          topK,
          dim,
        ),
    }),
    "last expert skipped": reference(rmsNormReference, {
      experts: (experts, routing, topK, dim) =>
        expertSumReference(
          experts,
          routing.map((v, i) => (i % topK < topK - 1 ? v : 0)),
          topK,
          dim,
        ),
    }),
    "experts in descending order": reference(rmsNormReference, { experts: inF32((topK) => counted(topK).reverse()) }),
    "experts by column of routing": reference(rmsNormReference, {
      experts: (experts, routing, topK, dim) => {
        const rows = routing.length / topK;
        return expertSumReference(
          experts,
          routing.map((_, i) => routing[(i % topK) * rows + Math.floor(i / topK)] as number),
          topK,
          dim,
        );
      },
    }),
  },
};

export const suites: readonly Suite[] = [plainSuite, expertSuite];
