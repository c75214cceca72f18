import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { fusedMoeWsumPostFfNorm2EndLayer } from "../src/index.ts";

const random = new Random(14);

const endCase = (rows: number, topK: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${topK}, ${dim}] ${dtype}`,
  bytes: ((topK + 3) * rows + 2) * dim * DTYPES[dtype].bytesPerElement,
  flops: (2 * topK + 11) * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const weight = () => device.tensor(dtype, [dim], random.normals(dim, 0.2, 1));
    const inputs = {
      attn: make(),
      experts: device.tensor(dtype, [rows, topK, dim], random.normals(rows * topK * dim)),
      routing: device.tensor("f32", [rows, topK], random.uniforms(rows * topK)),
      residual: make(),
      weight2: weight(),
      weight3: weight(),
      scale: device.tensor("f32", [1], [1.25]),
      hidden: make(),
    };
    return { encode: (encoder) => void fusedMoeWsumPostFfNorm2EndLayer(encoder, inputs) };
  },
});

export default defineBench({
  op: "fusedMoeWsumPostFfNorm2EndLayer",
  cases: [
    endCase(1, 8, 2816, "f32"),
    endCase(1, 8, 2816, "bf16"),
    endCase(128, 8, 2816, "f32"),
    endCase(128, 8, 2816, "bf16"),
  ],
});
