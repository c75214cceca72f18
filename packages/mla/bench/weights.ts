// Weights of benchmarks: in bf16 or another dtype, or in codes of 4 or 8 bits with a bf16 scale and bias for 64 of them.
import { type Device, DTYPES, type FloatDtype } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";

export type WeightKind = FloatDtype | 4 | 8;
export const weightName = (kind: WeightKind) => (typeof kind === "number" ? `${kind}-bit weight` : `${kind} weight`);

/** Bytes of an element, with its share of scale and bias. */
export const weightBytes = (kind: WeightKind) =>
  typeof kind === "number" ? kind / 8 + 4 / 64 : DTYPES[kind].bytesPerElement;

export function benchWeight(device: Device, kind: WeightKind, shape: readonly number[]) {
  const random = new Random(5);
  const size = shape.reduce((a, b) => a * b, 1);
  if (typeof kind === "string") {
    const few = random.normals(8191);
    return device.tensor(
      kind,
      shape,
      Float32Array.from({ length: size }, (_, i) => few[i % few.length] as number),
    );
  }
  const [lead, cols] = [shape.slice(0, -1), shape[shape.length - 1] as number];
  const part = (values: number[]) => device.tensor("bf16", [...lead, cols / 64], values);
  return {
    weight: device.tensor("u32", [...lead, (cols * kind) / 32], random.integers((size * kind) / 32, 2 ** 32)),
    scales: part(Array(size / 64).fill(2 ** -kind)),
    biases: part(Array(size / 64).fill(-0.5)),
    bits: kind,
    groupSize: 64 as const,
    mode: "affine" as const,
  };
}
