import { onnxPeer } from "@mlxts/bench/onnx";
import { openvinoPeer } from "@mlxts/bench/openvino";
import { torchPeer } from "@mlxts/bench/torch";
import type { FloatDtype, Tensor } from "@mlxts/core";
import { type Device, DTYPES } from "@mlxts/core";
import { type BenchCase, defineBench, type Peer, Random } from "@mlxts/core/testing";
import { matmul } from "../src/index.ts";

/** Matrices that differ, larger together than the caches when there are several: what a model goes through. */
function weights(device: Device, dtype: FloatDtype, rows: number, cols: number, copies: number): Tensor[] {
  const few = new Random(1).normals(8191, 1 / Math.sqrt(cols));
  const data = new Float32Array(rows * cols);
  return Array.from({ length: copies }, (_, copy) => {
    for (let i = 0; i < data.length; i++) data[i] = few[(i + copy * 13) % few.length] as number;
    return device.tensor(dtype, [rows, cols], data);
  });
}

function product(m: number, rows: number, cols: number, dtype: FloatDtype, weight: FloatDtype, copies = 1): BenchCase {
  return {
    name: `${m}×${cols} ${dtype} · ${rows}×${cols}ᵀ ${weight}${copies > 1 ? ", cold" : ""}`,
    bytes: rows * cols * DTYPES[weight].bytesPerElement,
    flops: 2 * m * rows * cols,
    products: dtype === "bf16" && weight === "bf16" ? "bf16" : "f32",
    setup(device) {
      const x = device.tensor(dtype, [m, cols], new Random(2).normals(m * cols));
      const matrices = weights(device, weight, rows, cols, copies);
      const out = device.tensor(dtype, [m, rows]);
      let next = 0;
      return {
        encode: (encoder) => void matmul(encoder, { x, weight: matrices[next++ % copies] as Tensor, out }),
      };
    },
    peers: peers(m, rows, cols, dtype, weight, copies),
    gpuPeers: dtype === weight ? [torchPeer({ kind: "linear", m, rows, cols, dtype })] : [],
  };
}

function peers(m: number, rows: number, cols: number, dtype: FloatDtype, weight: FloatDtype, copies: number): Peer[] {
  if (dtype !== weight || dtype === "f16") return [];
  const openvino = openvinoPeer({ m, rows, cols, weights: "f32", computes: dtype, copies });
  return dtype === "f32" ? [peer(m, rows, cols), openvino] : [openvino];
}

function peer(m: number, rows: number, cols: number): Peer {
  const random = new Random(3);
  const floats = (...shape: [number, number]) => ({
    shape,
    data: Float32Array.from(random.normals(shape[0] * shape[1])),
  });
  return onnxPeer({
    operator: "MatMul",
    inputs: ["x", "weight"],
    feeds: { x: floats(m, cols) },
    weights: { weight: floats(cols, rows) },
    outputs: { y: [m, rows] },
  });
}

export default defineBench({
  op: "matmul",
  cases: [
    product(1, 4096, 4096, "bf16", "bf16", 4),
    product(1, 4096, 4096, "f32", "bf16", 4),
    product(1, 4096, 4096, "f16", "f16", 4),
    product(1, 1024, 1024, "bf16", "bf16"),
    product(1, 256, 256, "f32", "f32"),
    product(5, 4096, 4096, "bf16", "bf16", 4),
    product(8, 4096, 4096, "bf16", "bf16", 4),
    product(16, 4096, 4096, "bf16", "bf16", 4),
    product(64, 4096, 4096, "bf16", "bf16", 4),
    product(512, 4096, 4096, "bf16", "bf16"),
    product(512, 4096, 4096, "f32", "bf16"),
    product(512, 4096, 4096, "f16", "f16"),
    product(512, 2048, 2048, "f32", "f32"),
  ],
});
