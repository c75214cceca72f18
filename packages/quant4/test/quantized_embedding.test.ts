import { Device } from "@mlxts/core";
import { afterAll, expect, it } from "vitest";
import { dequantize, quantizedEmbedding } from "../src/index.ts";
import { randomQuantized } from "./groups.ts";

const device = Device.open();
afterAll(() => device.dispose());

it("has the bits of dequantize", async () => {
  const [rows, cols] = [300, 192];
  const { weight, scales, biases } = randomQuantized(1, rows, cols, { bits: 4, groupSize: 64 }, 3);
  for (const dtype of ["f32", "f16", "bf16"] as const) {
    const q = {
      weight: device.tensor("u32", [rows, cols / 8], weight),
      scales: device.tensor(dtype, [rows, cols / 64], scales),
      biases: device.tensor(dtype, [rows, cols / 64], biases),
      bits: 4,
      groupSize: 64,
      mode: "affine",
    } as const;
    const ids = device.tensor(
      "u32",
      [rows],
      Uint32Array.from({ length: rows }, (_, i) => i),
    );
    const encoder = device.encoder();
    const embedded = quantizedEmbedding(encoder, { ids, q });
    const decoded = dequantize(encoder, { q });
    await encoder.commit();
    expect(await embedded.read()).toEqual(await decoded.read());
  }
});
