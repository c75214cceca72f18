import { roundTo } from "@mlxts/core";
import type { Case, Reference64, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { quantize } from "../src/index.ts";
import { packCodes, type QuantizedNumbers, quantizeReference, type Variant } from "../src/reference.ts";
import { setting, weightRows } from "./groups.ts";

type Options = { bits?: number; groupSize?: number; variant?: Variant };
type Settings = { bits: number; groupSize: number; variant: Variant };

const shaped = (
  w: Reference64,
  { codes, scales, biases }: QuantizedNumbers,
  { bits, groupSize }: Settings,
  pack = packCodes,
) => {
  const lead = w.shape.slice(0, -1);
  const cols = w.shape[w.shape.length - 1] as number;
  return {
    weight: { shape: [...lead, (cols * bits) / 32], data: pack(codes, bits) },
    scales: { shape: [...lead, cols / groupSize], data: scales },
    biases: { shape: [...lead, cols / groupSize], data: biases },
  };
};

const reference =
  (
    formula: (w: Reference64, settings: Settings, dtype: "f32" | "f16" | "bf16") => QuantizedNumbers = (w, settings) =>
      quantizeReference(w.data, settings),
    pack = packCodes,
  ): ReferenceFunction =>
  ({ w }: Record<string, Reference64>, { bits = 4, groupSize = 64, variant = "cpu" }: Options, dtype) => {
    const settings = { bits, groupSize, variant };
    return shaped(w as Reference64, formula(w as Reference64, settings, dtype), settings, pack);
  };

let seed = 0;
const makeCase = (shape: readonly number[], options: Options): Case => ({
  name: `[${shape}] ${setting(options.bits ?? 4, options.groupSize ?? 64)} ${options.variant ?? ""}`,
  inputs: {
    w: {
      dtype: "act",
      shape,
      data: weightRows(
        shape.slice(0, -1).reduce((a, b) => a * b, 1),
        shape[shape.length - 1] as number,
        ++seed,
      ),
    },
  },
  options,
});

/** A wrong rule for each group: its values → scale, bias and codes. */
const groupMutant = (
  rule: (group: Float64Array, settings: Settings, dtype: "f32" | "f16" | "bf16") => QuantizedNumbers,
) =>
  reference((w, settings, dtype) => {
    const { groupSize } = settings;
    const groups = w.data.length / groupSize;
    const out = {
      codes: new Float64Array(w.data.length),
      scales: new Float64Array(groups),
      biases: new Float64Array(groups),
    };
    for (let g = 0; g < groups; g++) {
      const made = rule(w.data.subarray(g * groupSize, (g + 1) * groupSize), settings, dtype);
      out.codes.set(made.codes, g * groupSize);
      out.scales.set(made.scales, g);
      out.biases.set(made.biases, g);
    }
    return out;
  });

export const suite: Suite = {
  op: quantize,
  errorClass: "exact",
  reference: reference(),
  cases: [
    ...([2, 4, 8] as const).flatMap((bits) =>
      ([32, 64, 128] as const).flatMap((groupSize) =>
        (["cpu", "gpu"] as const).map((variant) => makeCase([17, 384], { bits, groupSize, variant })),
      ),
    ),
    makeCase([1, 64], {}),
    makeCase([3, 32], { groupSize: 32 }),
    makeCase([2, 3, 5, 128], { groupSize: 32 }),
    makeCase([31, 1408], { bits: 4 }),
  ],
  mutants: {
    "gpu for cpu": reference((w, settings) => quantizeReference(w.data, { ...settings, variant: "gpu" })),
    "cpu for gpu": reference((w, settings) => quantizeReference(w.data, { ...settings, variant: "cpu" })),
    "ties away": groupMutant((group, settings) => {
      const made = quantizeReference(group, settings);
      const [s, b] = [made.scales[0] as number, made.biases[0] as number];
      const codes = group.map((v) => Math.floor(Math.fround(Math.fround(v - b) / s) + 0.5));
      return { ...made, codes: codes.map((q) => Math.min(Math.max(q, 0), 2 ** settings.bits - 1)) };
    }),
    "bias = min and a positive scale": groupMutant((group, { bits }) => {
      const [min, max] = [Math.min(...group), Math.max(...group)];
      const s = Math.max((max - min) / (2 ** bits - 1), 1e-7);
      return {
        codes: group.map((v) => Math.round((v - min) / s)),
        scales: Float64Array.of(s),
        biases: Float64Array.of(min),
      };
    }),
    "codes from the rounded scale and bias": groupMutant((group, settings, dtype) => {
      const made = quantizeReference(group, settings);
      const [s, b] = [roundTo(dtype, made.scales[0] as number), roundTo(dtype, made.biases[0] as number)];
      const codes = group.map((v) => Math.round(Math.fround(Math.fround(v - b) / s)));
      return { ...made, codes: codes.map((q) => Math.min(Math.max(q, 0), 2 ** settings.bits - 1)) };
    }),
    "no clamp": groupMutant((group, settings) => {
      const made = quantizeReference(group, settings);
      const [s, b] = [made.scales[0] as number, made.biases[0] as number];
      return { ...made, codes: group.map((v) => Math.round((v - b) / s)) };
    }),
    "high bits first": reference(undefined, (codes, bits) => {
      const perWord = 32 / bits;
      return packCodes(
        Float64Array.from(codes).map((_, i) => codes[i - (i % perWord) + perWord - 1 - (i % perWord)] as number),
        bits,
      );
    }),
    "the last group of a row skipped": groupMutant((group, settings) => {
      const made = quantizeReference(group, settings);
      return { ...made, codes: made.codes.fill(0) };
    }),
  },
};
