import { FLOATS } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { quantizedEmbedding } from "../src/index.ts";
import { dequantizeReference } from "../src/reference.ts";
import { randomQuantized, setting } from "./groups.ts";

interface Options {
  bits: number;
  groupSize: number;
}

/** Rows `row(id, rows)` of the decoded matrix. */
const reference =
  (row: (id: number, rows: number) => number = (id) => id): ReferenceFunction =>
  (inputs, given) => {
    const options = given as unknown as Options;
    const { ids, weight, scales, biases } = inputs as Record<"ids" | "weight" | "scales" | "biases", Reference64>;
    const rows = weight.shape[0] as number;
    const w = dequantizeReference(weight.data, scales.data, biases.data, options);
    const cols = w.length / rows;
    const data = new Float64Array(ids.data.length * cols);
    ids.data.forEach((id, t) => {
      const from = row(id, rows);
      data.set(w.subarray(from * cols, (from + 1) * cols), t * cols);
    });
    return { out: { shape: [...ids.shape, cols], data } };
  };

let seed = 0;
function makeCase(
  shape: readonly number[],
  rows: number,
  cols: number,
  bits: number,
  groupSize: number,
  ids: "u32" | "i32" = "u32",
  outDtype?: "f32" | "f16" | "bf16",
): Case {
  const made = randomQuantized(1, rows, cols, { bits, groupSize }, ++seed);
  const count = shape.reduce((a, b) => a * b, 1);
  return {
    name: `[${shape}] ${ids} of [${rows}, ${cols}] ${setting(bits, groupSize)} ${outDtype ?? ""}`,
    inputs: {
      ids: { dtype: ids, shape, data: new Random(seed).integers(count, rows).fill(rows - 1, count - 1) },
      weight: { dtype: "u32", shape: [rows, (cols * bits) / 32], data: made.weight },
      scales: { dtype: "act", shape: [rows, cols / groupSize], data: made.scales },
      biases: { dtype: "act", shape: [rows, cols / groupSize], data: made.biases },
    },
    options: { bits, groupSize, mode: "affine", ...(outDtype && { outDtype }) },
    ask: { out: { dtype: outDtype ?? "act", shape: [...shape, cols] } },
  };
}

export const suite: Suite = {
  op: quantizedEmbedding,
  errorClass: "exact",
  reference: reference(),
  cases: [
    ...[2, 4, 8].flatMap((bits) => [32, 64, 128].map((groupSize) => makeCase([9], 31, 256, bits, groupSize))),
    makeCase([1], 1, 32, 4, 32),
    makeCase([2, 3, 5], 257, 96, 4, 32, "i32"),
    ...[2, 4, 8].flatMap((bits) => FLOATS.map((dtype) => makeCase([7], 8, 128, bits, 64, "u32", dtype))),
  ],
  mutants: {
    "the next row": reference((id, rows) => Math.min(id + 1, rows - 1)),
    "ids from 1": reference((id) => Math.max(id - 1, 0)),
    "the first row for all": reference(() => 0),
    "the last row out of reach": reference((id, rows) => Math.min(id, Math.max(rows - 2, 0))),
  },
};
