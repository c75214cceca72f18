import { onnxPeer } from "@mlxts/bench/onnx";
import { torchPeer } from "@mlxts/bench/torch";
import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { rmsNorm } from "../src/index.ts";

const random = new Random(1);

const rmsCase = (rows: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}`,
  bytes: (2 * rows + 1) * dim * DTYPES[dtype].bytesPerElement,
  flops: 4 * rows * dim,
  setup(device) {
    const x = device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const weight = device.tensor(dtype, [dim], random.normals(dim, 0.2, 1));
    const out = device.tensor(dtype, [rows, dim]);
    return { encode: (encoder) => void rmsNorm(encoder, { x, weight, out }) };
  },
  gpuPeers: [torchPeer({ kind: "rms_norm", rows, dim, dtype })],
  ...(dtype === "f32" && {
    peers: [
      onnxPeer({
        operator: "RMSNormalization",
        attributes: { axis: { int: -1 }, epsilon: { float: 1e-6 } },
        inputs: ["x", "weight"],
        feeds: { x: { shape: [rows, dim], data: Float32Array.from(random.normals(rows * dim)) } },
        weights: { weight: { shape: [dim], data: Float32Array.from(random.normals(dim, 0.2, 1)) } },
        outputs: { out: [rows, dim] },
      }),
    ],
  }),
});

export default defineBench({
  op: "rmsNorm",
  cases: [
    rmsCase(1, 4096, "f32"),
    rmsCase(1, 4096, "bf16"),
    rmsCase(16, 256, "bf16"),
    rmsCase(512, 4096, "f32"),
    rmsCase(512, 4096, "bf16"),
    rmsCase(4096, 4096, "f32"),
    rmsCase(4096, 4096, "bf16"),
  ],
});
