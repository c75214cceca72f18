import { onnxPeer } from "@mlxts/bench/onnx";
import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { gatedRmsNorm } from "../src/index.ts";

const random = new Random(2);

const gatedCase = (tokens: number, heads: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${tokens}, ${heads}, ${dim}] ${dtype}`,
  bytes: (3 * tokens * heads + 1) * dim * DTYPES[dtype].bytesPerElement,
  // The exponential and the division of silu count as one operation each.
  flops: 8 * tokens * heads * dim,
  setup(device) {
    const shape = [tokens, heads, dim];
    const size = tokens * heads * dim;
    const x = device.tensor(dtype, shape, random.normals(size));
    const z = device.tensor(dtype, shape, random.normals(size));
    const weight = device.tensor(dtype, [dim], random.normals(dim, 0.2, 1));
    const out = device.tensor(dtype, shape);
    return { encode: (encoder) => void gatedRmsNorm(encoder, { x, z, weight, out }, { rounding: "before-weight" }) };
  },
  ...(dtype === "f32" && {
    peers: [
      onnxPeer({
        operator: "GatedRMSNorm",
        domain: "com.microsoft",
        attributes: { epsilon: { float: 1e-6 } },
        inputs: ["x", "weight", "z"],
        feeds: {
          x: { shape: [tokens * heads, dim], data: Float32Array.from(random.normals(tokens * heads * dim)) },
          z: { shape: [tokens * heads, dim], data: Float32Array.from(random.normals(tokens * heads * dim)) },
        },
        weights: { weight: { shape: [dim], data: Float32Array.from(random.normals(dim, 0.2, 1)) } },
        outputs: { out: [tokens * heads, dim] },
      }),
    ],
  }),
});

export default defineBench({
  op: "gatedRmsNorm",
  cases: [
    gatedCase(1, 32, 128, "f32"),
    gatedCase(1, 32, 128, "bf16"),
    gatedCase(512, 32, 128, "f32"),
    gatedCase(512, 32, 128, "bf16"),
  ],
});
