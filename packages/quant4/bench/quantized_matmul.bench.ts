import { mlxPeer } from "@mlxts/bench/mlx";
import { onnxPeer } from "@mlxts/bench/onnx";
import { openvinoPeer } from "@mlxts/bench/openvino";
import { torchPeer } from "@mlxts/bench/torch";
import type { CommandEncoder, Device } from "@mlxts/core";
import { type BenchCase, defineBench, type Peer, Random } from "@mlxts/core/testing";
import { type Quantized, quantizedMatmul } from "../src/index.ts";

type GroupSize = 64 | 128;

/** A stack of different matrices, larger than the caches: what a model does from layer to layer. */
function stack(
  device: Device,
  copies: number,
  [rows, cols]: Shape,
  { bits, groupSize }: { bits: 4 | 8; groupSize: GroupSize },
): Quantized[] {
  const random = new Random(1);
  const words = Uint32Array.from({ length: (rows * cols * bits) / 32 }, () => random.below(2 ** 32));
  const groups = (rows * cols) / groupSize;
  const scales = device.tensor("bf16", [rows, cols / groupSize], random.uniforms(groups, -0.01, 0.01));
  const biases = device.tensor("bf16", [rows, cols / groupSize], random.uniforms(groups, -0.05, 0.05));
  const bytes = scales.readSync();
  return Array.from({ length: copies }, (_, i) => {
    const weight = device.tensor(
      "u32",
      [rows, (cols * bits) / 32],
      words.map((word) => word ^ (i * 0x9e3779b9)),
    );
    return {
      weight,
      scales: device.tensor("bf16", scales.shape, bytes),
      biases: i === 0 ? biases : device.tensor("bf16", biases.shape, biases.readSync()),
      bits,
      groupSize,
      mode: "affine",
    };
  });
}

/** Rows and columns. */
type Shape = readonly [number, number];
const SQUARE: Shape = [4096, 4096];
/** The matrices of Qwen3.5-0.8B, its head last: short rows, and many. */
const SHAPES_0_8B: readonly Shape[] = [
  [6144, 1024],
  [1024, 2048],
  [1024, 3584],
  [248320, 1024],
];
/** Some of Qwen3.5-4B's. */
const SHAPES_4B: readonly Shape[] = [
  [2560, 4096],
  [2560, 9216],
  [248320, 2560],
];
/** Bytes of codes that no cache holds. */
const COLD_BYTES = 96 << 20;

interface Setting {
  shape?: Shape;
  groupSize?: GroupSize;
  /** Activations in bytes. */
  int8?: boolean;
}

function product(m: number, dtype: "f32" | "bf16", bits: 4 | 8, cold: boolean, setting: Setting = {}): BenchCase {
  const { shape = SQUARE, groupSize = 64, int8 = false } = setting;
  const [rows, cols] = shape;
  const options = int8 ? ({ approximate: "int8-activations" } as const) : {};
  const copies = cold ? Math.ceil(COLD_BYTES / ((rows * cols * bits) / 8)) : 1;
  return {
    name: [
      `${m}×${cols} · ${rows}×${cols}ᵀ`,
      `${bits} bits`,
      ...(groupSize === 64 ? [] : [`groups of ${groupSize}`]),
      `x ${dtype}${int8 ? " in int8" : ""}`,
      ...(cold ? ["cold"] : []),
    ].join(", "),
    bytes: rows * cols * (bits / 8 + 4 / groupSize),
    flops: 2 * m * rows * cols,
    ...(cold && { from: "memory" as const }),
    products: int8 ? "int8" : `${dtype} with codes`,
    setup(device: Device) {
      const x = device.tensor(dtype, [m, cols], new Random(2).normals(m * cols));
      const matrices = stack(device, copies, shape, { bits, groupSize });
      const out = device.tensor(dtype, [m, rows]);
      let next = 0;
      return {
        encode(encoder: CommandEncoder) {
          quantizedMatmul(encoder, { x, q: matrices[next++ % copies] as Quantized, out }, options);
        },
      };
    },
    ...(!int8 && {
      gpuPeers: [
        // Dense: torch has no such products.
        torchPeer({ kind: "linear", m, rows, cols, dtype }),
        mlxPeer({ kind: "product", m, rows, cols, bits, groupSize, copies, dtype }),
      ],
    }),
    ...(bits === 4 && { peers: peers(m, int8 ? ["int8"] : [dtype, "int8"], copies, shape, groupSize) }),
  };
}

type Computing = "f32" | "bf16" | "int8";
function peers(m: number, computing: readonly Computing[], copies: number, shape: Shape, groupSize: GroupSize): Peer[] {
  const [rows, cols] = shape;
  const product = { m, rows, cols, weights: "u4", copies } as const;
  // onnxruntime has no products of bf16 on CPUs.
  const onnx = computing.includes("bf16")
    ? (["f32", "int8"] as const)
    : (["f32", "int8"] as const).filter((each) => computing.includes(each));
  return [
    ...onnx.map((computes) => matMulNBits(m, computes, copies, shape, groupSize)),
    // OpenVINO's has groups of 64.
    ...(groupSize === 64 ? computing.map((computes) => openvinoPeer({ ...product, computes })) : []),
  ];
}

/** The peer's fast form: zero points in 4 bits; those in f32, which MLX's biases would be, take forty times as long. */
function matMulNBits(
  m: number,
  computes: "f32" | "int8",
  copies: number,
  [rows, cols]: Shape,
  groupSize: GroupSize,
): Peer {
  const random = new Random(3);
  const groups = cols / groupSize;
  const bytes = (...shape: number[]) => {
    const data = Uint8Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => random.below(256));
    return { shape, data };
  };
  return onnxPeer({
    operator: "MatMulNBits",
    about: computes,
    domain: "com.microsoft",
    attributes: {
      K: { int: cols },
      N: { int: rows },
      bits: { int: 4 },
      block_size: { int: groupSize },
      accuracy_level: { int: computes === "int8" ? 4 : 1 },
    },
    inputs: ["x", "codes", "scales", "zeros"],
    feeds: { x: { shape: [m, cols], data: Float32Array.from(random.normals(m * cols)) } },
    // The library would compute with equal weights from a cache.
    copies,
    weightsOf: () => ({
      codes: bytes(rows, groups, groupSize / 2),
      scales: { shape: [rows, groups], data: Float32Array.from(random.uniforms(rows * groups, -0.01, 0.01)) },
      zeros: bytes(rows, groups / 2),
    }),
    outputs: { y: [m, rows] },
  });
}

export default defineBench({
  op: "quantizedMatmul",
  cases: [
    ...(["f32", "bf16"] as const).flatMap((dtype) => [
      product(1, dtype, 4, true),
      product(1, dtype, 4, false),
      product(4, dtype, 4, true),
      product(8, dtype, 4, true),
      product(16, dtype, 4, false),
      product(64, dtype, 4, false),
      product(512, dtype, 4, false),
      product(1, dtype, 4, true, { groupSize: 128 }),
    ]),
    product(1, "bf16", 8, true),
    product(1, "f32", 8, true),
    product(1, "bf16", 4, true, { shape: [11008, 4096] }),
    ...[...SHAPES_0_8B, ...SHAPES_4B].map((shape) => product(1, "bf16", 4, true, { shape })),
    ...[2, 3, 5, 6, 7].map((m) => product(m, "bf16", 4, true)),
    ...[1, 8].flatMap((m) => [true, false].map((cold) => product(m, "bf16", 4, cold, { int8: true }))),
    product(512, "bf16", 4, false, { int8: true }),
    product(1, "bf16", 8, true, { int8: true }),
  ],
});
