import { DEVICES } from "@mlxts/test-kit/devices";
import { goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { type Bits, dequantize, type GroupSize, quantize } from "../src/index.ts";
import { dequantizeReference } from "../src/reference.ts";

const mlx = goldens("goldens/mlx_quantize.safetensors");

/** [prefix, bits, groupSize] of every setting in the file. */
const settings = mlx.names.flatMap((name): [string, Bits, GroupSize][] => {
  const match = /^(.*)\.b(\d+)\.g(\d+)\.weight$/.exec(name);
  return match ? [[match[1] as string, Number(match[2]) as Bits, Number(match[3]) as GroupSize]] : [];
});

describe.each(DEVICES)("mx.quantize, on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());

  it("has all settings", () => {
    expect(settings.length).toBe(189);
  });

  it.each(settings)("%s, %i bits, groups of %i: the same words, scales and biases", async (prefix, bits, groupSize) => {
    const input = mlx.tensor(`${prefix}.input`);
    const name = `${prefix}.b${bits}.g${groupSize}`;
    const dtype = input.dtype as "f32" | "f16" | "bf16";
    const w = device.tensor(dtype, input.shape, input.data as never);
    const encoder = device.encoder();
    const made = quantize(encoder, { w }, { bits, groupSize });
    const q = { ...made, bits, groupSize, mode: "affine" as const };
    const decoded = dequantize(encoder, { q }, { outDtype: "f32" });
    await encoder.commit();
    for (const part of ["weight", "scales", "biases"] as const) {
      expect(made[part].shape, part).toEqual(mlx.tensor(`${name}.${part}`).shape);
      expect(await made[part].read(), part).toEqual(mlx.tensor(`${name}.${part}`).data);
    }
    const [scales, biases] = [await made.scales.readNumbers(), await made.biases.readNumbers()];
    const words = mlx.tensor(`${name}.weight`).data as Uint32Array;
    expect(await decoded.readNumbers()).toEqual(dequantizeReference(words, scales, biases, { bits, groupSize }));
  });
});
