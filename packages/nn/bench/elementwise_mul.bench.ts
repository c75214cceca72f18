import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { elementwiseMul } from "../src/index.ts";

const random = new Random(5);

const productCase = (rows: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}`,
  bytes: 3 * rows * dim * DTYPES[dtype].bytesPerElement,
  flops: 1 * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const [a, b, out] = [make(), make(), make()];
    return { encode: (encoder) => void elementwiseMul(encoder, { a, b, out }) };
  },
});

export default defineBench({
  op: "elementwiseMul",
  cases: [
    productCase(1, 4096, "f32"),
    productCase(1, 4096, "bf16"),
    productCase(512, 4096, "f32"),
    productCase(512, 4096, "bf16"),
  ],
});
