import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { sigmoidGate } from "../src/index.ts";

const random = new Random(4);

const sigmoidGateCase = (rows: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}`,
  bytes: 3 * rows * dim * DTYPES[dtype].bytesPerElement,
  flops: 4 * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const [x, gate, out] = [make(), make(), make()];
    return { encode: (encoder) => void sigmoidGate(encoder, { x, gate, out }) };
  },
});

export default defineBench({
  op: "sigmoidGate",
  cases: [
    sigmoidGateCase(1, 4096, "f32"),
    sigmoidGateCase(1, 4096, "bf16"),
    sigmoidGateCase(512, 4096, "f32"),
    sigmoidGateCase(512, 4096, "bf16"),
  ],
});
