import { onnxPeer } from "@mlxts/bench/onnx";
import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { addRmsNorm } from "../src/index.ts";

const random = new Random(9);

const addCase = (rows: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}`,
  bytes: (4 * rows + 1) * dim * DTYPES[dtype].bytesPerElement,
  flops: 5 * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const [a, b, sum, out] = [make(), make(), make(), make()];
    const weight = device.tensor(dtype, [dim], random.normals(dim, 0.2, 1));
    return { encode: (encoder) => void addRmsNorm(encoder, { a, b, weight, sum, out }) };
  },
  ...(dtype === "f32" && {
    peers: [
      onnxPeer({
        operator: "SkipSimplifiedLayerNormalization",
        domain: "com.microsoft",
        attributes: { epsilon: { float: 1e-6 } },
        inputs: ["a", "b", "weight"],
        feeds: Object.fromEntries(
          ["a", "b"].map((name) => [name, { shape: [rows, dim], data: Float32Array.from(random.normals(rows * dim)) }]),
        ),
        weights: { weight: { shape: [dim], data: Float32Array.from(random.normals(dim, 0.2, 1)) } },
        outputs: { out: [rows, dim] },
      }),
    ],
  }),
});

export default defineBench({
  op: "addRmsNorm",
  cases: [addCase(1, 4096, "f32"), addCase(1, 4096, "bf16"), addCase(512, 4096, "f32"), addCase(512, 4096, "bf16")],
});
