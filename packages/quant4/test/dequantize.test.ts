import { Device } from "@mlxts/core";
import { afterAll, expect, it } from "vitest";
import { dequantize } from "../src/index.ts";
import { dequantizeReference } from "../src/reference.ts";
import { randomQuantized } from "./groups.ts";

const device = Device.open();
afterAll(() => device.dispose());

it("reads rows that start anywhere on 4 bytes", async () => {
  const { weight, scales, biases } = randomQuantized(1, 5, 96, { bits: 4, groupSize: 32 }, 99);
  const words = device.tensor("u32", [61], [7, ...weight]).view(1, [5, 12]);
  const before = device.limits.bufferOffsetAlignment > 2 ? [7, 7] : [7];
  const halves = (data: Float64Array) =>
    device.tensor("bf16", [data.length + before.length], [...before, ...data]).view(before.length, [5, 3]);
  const encoder = device.encoder();
  const q = {
    weight: words,
    scales: halves(scales),
    biases: halves(biases),
    bits: 4,
    groupSize: 32,
    mode: "affine",
  } as const;
  const out = dequantize(encoder, { q }, { outDtype: "f32" });
  await encoder.commit();
  const expected = dequantizeReference(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), q);
  expect(await out.readNumbers()).toEqual(expected);
});
