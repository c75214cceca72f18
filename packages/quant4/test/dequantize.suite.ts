import { FLOATS } from "@mlxts/core";
import type { Case, Reference64, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { dequantize } from "../src/index.ts";
import { dequantizeReference, packCodes, unpackCodes } from "../src/reference.ts";
import { randomQuantized, setting } from "./groups.ts";

type Options = { bits: number; groupSize: number };
type Layout = Options & { cols: number };
type Inputs = Record<string, Reference64>;

const reference =
  (
    change: (
      words: Float64Array,
      scales: Float64Array,
      biases: Float64Array,
      options: Layout,
    ) => Float64Array = dequantizeReference,
  ): ReferenceFunction =>
  ({ weight, scales, biases }: Inputs, given) => {
    const options = given as unknown as Options;
    const { shape, data } = weight as Reference64;
    const cols = ((shape[shape.length - 1] as number) * 32) / options.bits;
    return {
      out: {
        shape: [...shape.slice(0, -1), cols],
        data: change(data, (scales as Reference64).data, (biases as Reference64).data, { ...options, cols }),
      },
    };
  };

let seed = 0;
function makeCase(shape: readonly number[], bits: number, groupSize: number, outDtype?: "f32" | "f16" | "bf16"): Case {
  const rows = shape.slice(0, -1);
  const cols = shape[shape.length - 1] as number;
  const made = randomQuantized(
    1,
    rows.reduce((a, b) => a * b, 1),
    cols,
    { bits, groupSize },
    ++seed,
  );
  return {
    name: `[${shape}] ${setting(bits, groupSize)}${outDtype ? ` to ${outDtype}` : ""}`,
    inputs: {
      weight: { dtype: "u32", shape: [...rows, (cols * bits) / 32], data: made.weight },
      scales: { dtype: "act", shape: [...rows, cols / groupSize], data: made.scales },
      biases: { dtype: "act", shape: [...rows, cols / groupSize], data: made.biases },
    },
    options: { bits, groupSize, mode: "affine", ...(outDtype && { outDtype }) },
    ask: { out: { dtype: outDtype ?? "act", shape } },
  };
}

const codesMutant = (change: (codes: Float64Array, options: Options) => Float64Array) =>
  reference((words, scales, biases, options) =>
    dequantizeReference(
      packCodes(change(unpackCodes(words, options.bits), options), options.bits),
      scales,
      biases,
      options,
    ),
  );

/** Scale and bias of the group that `groupOf` names for each element. */
const groupMutant = (groupOf: (row: number, col: number, layout: Layout) => number) =>
  reference((words, scales, biases, layout) =>
    unpackCodes(words, layout.bits).map((q, i) => {
      const g = groupOf(Math.floor(i / layout.cols), i % layout.cols, layout) % scales.length;
      return Math.fround(Math.fround(q * (scales[g] as number)) + (biases[g] as number));
    }),
  );

export const suite: Suite = {
  op: dequantize,
  errorClass: "exact",
  reference: reference(),
  cases: [
    ...[2, 4, 8].flatMap((bits) => [32, 64, 128].map((groupSize) => makeCase([7, 384], bits, groupSize))),
    ...[2, 4, 8].flatMap((bits) => FLOATS.map((dtype) => makeCase([3, 128], bits, 64, dtype))),
    makeCase([1, 32], 4, 32),
    makeCase([2, 3, 5, 64], 4, 32),
  ],
  mutants: {
    "high nibble first": codesMutant((codes) => codes.map((_, i) => codes[i ^ 1] as number)),
    "signed codes": reference((words, scales, biases, options) =>
      dequantizeReference(words, scales, biases, options).map((v, i) => {
        const q = unpackCodes(
          words.subarray(Math.floor((i * options.bits) / 32), Math.floor((i * options.bits) / 32) + 1),
          options.bits,
        );
        const half = 2 ** (options.bits - 1);
        const code = q[i % (32 / options.bits)] as number;
        return code >= half ? v - 2 * half * (scales[Math.floor(i / options.groupSize)] as number) : v;
      }),
    ),
    "positive scales": reference((words, scales, biases, options) =>
      dequantizeReference(words, scales.map(Math.abs), biases, options),
    ),
    "scales of the next group": reference((words, scales, biases, options) =>
      dequantizeReference(
        words,
        scales.map((_, i) => scales[Math.min(i + 1, scales.length - 1)] as number),
        biases,
        options,
      ),
    ),
    "8 bits read as 4": reference((words, scales, biases, options) => {
      if (options.bits !== 8) return dequantizeReference(words, scales, biases, options);
      const nibbles = unpackCodes(words, 4);
      return dequantizeReference(
        packCodes(
          unpackCodes(words, 8).map((_, i) => nibbles[i] as number),
          8,
        ),
        scales,
        biases,
        options,
      );
    }),
    "no bias": reference((words, scales, biases, options) =>
      dequantizeReference(
        words,
        scales,
        biases.map(() => 0),
        options,
      ),
    ),
    "computed in the dtype of the scales": (inputs, given, dtype) => {
      const options = given as unknown as Options;
      const right = reference()(inputs, given, dtype);
      if (dtype === "f32") return right;
      const { weight, scales, biases } = inputs as Record<"weight" | "scales" | "biases", Reference64>;
      const unit = dtype === "bf16" ? 2 ** -8 : 2 ** -11;
      const coarse = (v: number) => {
        const step = 2 ** Math.floor(Math.log2(Math.abs(v) || 1)) * 2 * unit;
        return Math.round(v / step) * step;
      };
      const data = unpackCodes(weight.data, options.bits).map((q, i) => {
        const g = Math.floor(i / options.groupSize);
        return coarse(q * (scales.data[g] as number)) + (biases.data[g] as number);
      });
      return { out: { shape: (right.out as Reference64).shape, data } };
    },
    "groups along rows": groupMutant((row, col, { cols, groupSize }) => Math.floor(row / groupSize) * cols + col),
    "scale rows strided by cols": groupMutant(
      (row, col, { cols, groupSize }) => row * cols + Math.floor(col / groupSize),
    ),
    "bias once for each row": reference((words, scales, biases, layout) => {
      const scaled = dequantizeReference(
        words,
        scales,
        biases.map(() => 0),
        layout,
      );
      return scaled.map((v, i) => (i % layout.cols === 0 ? v + (biases[i / layout.groupSize] as number) : v));
    }),
    "rows % 4 skipped": reference((words, scales, biases, layout) => {
      const out = dequantizeReference(words, scales, biases, layout);
      const rows = out.length / layout.cols;
      return out.fill(Number.NaN, (rows - (rows % 4)) * layout.cols);
    }),
    "last group skipped": reference((words, scales, biases, options) => {
      const out = dequantizeReference(words, scales, biases, options);
      return out.fill(Number.NaN, out.length - options.groupSize);
    }),
  },
};
