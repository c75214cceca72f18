import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { rmsNormMul } from "../src/index.ts";

const random = new Random(7);

const normCase = (rows: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}`,
  bytes: (3 * rows + 1) * dim * DTYPES[dtype].bytesPerElement,
  flops: 5 * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const [x, factor, out] = [make(), make(), make()];
    const weight = device.tensor(dtype, [dim], random.normals(dim, 0.2, 1));
    return { encode: (encoder) => void rmsNormMul(encoder, { x, weight, factor, out }) };
  },
});

export default defineBench({
  op: "rmsNormMul",
  cases: [normCase(1, 4096, "f32"), normCase(1, 4096, "bf16"), normCase(512, 4096, "f32"), normCase(512, 4096, "bf16")],
});
