import type { Device } from "@mlxts/core";
import type { Bits, Quantized } from "../src/index.ts";

/** A quantized matrix in groups of 64 whose codes are all 0: the time of decoding does not depend on them. */
export function quantizedZeros(device: Device, rows: number, cols: number, bits: Bits): Quantized {
  return {
    weight: device.tensor("u32", [rows, (cols * bits) / 32]),
    scales: device.tensor("bf16", [rows, cols / 64]),
    biases: device.tensor("bf16", [rows, cols / 64]),
    bits,
    groupSize: 64,
    mode: "affine",
  };
}
