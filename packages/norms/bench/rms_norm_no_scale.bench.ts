import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { rmsNormNoScale } from "../src/index.ts";

const random = new Random(15);

const normCase = (rows: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}`,
  bytes: 2 * rows * dim * DTYPES[dtype].bytesPerElement,
  flops: 3 * rows * dim,
  setup(device) {
    const x = device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const out = device.tensor(dtype, [rows, dim]);
    return { encode: (encoder) => void rmsNormNoScale(encoder, { x, out }) };
  },
});

export default defineBench({
  op: "rmsNormNoScale",
  cases: [normCase(1, 4096, "f32"), normCase(1, 4096, "bf16"), normCase(512, 4096, "f32"), normCase(512, 4096, "bf16")],
});
