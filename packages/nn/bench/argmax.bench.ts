import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { argmax } from "../src/index.ts";

const random = new Random(7);

const argmaxCase = (rows: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}`,
  bytes: rows * dim * DTYPES[dtype].bytesPerElement,
  flops: rows * dim,
  setup(device) {
    const logits = device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const ids = device.tensor("u32", [rows]);
    return { encode: (encoder) => void argmax(encoder, { logits, ids }) };
  },
});

export default defineBench({
  op: "argmax",
  cases: [argmaxCase(1, 151936, "f32"), argmaxCase(1, 248320, "f32"), argmaxCase(1, 248320, "bf16")],
});
