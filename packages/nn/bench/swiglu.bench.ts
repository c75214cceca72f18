import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { swiglu } from "../src/index.ts";

const random = new Random(4);

const swigluCase = (rows: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}`,
  bytes: 3 * rows * dim * DTYPES[dtype].bytesPerElement,
  flops: 5 * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const [gate, up, out] = [make(), make(), make()];
    return { encode: (encoder) => void swiglu(encoder, { gate, up, out }) };
  },
});

export default defineBench({
  op: "swiglu",
  cases: [
    swigluCase(1, 12288, "f32"),
    swigluCase(1, 12288, "bf16"),
    swigluCase(512, 12288, "f32"),
    swigluCase(512, 12288, "bf16"),
  ],
});
