import { compare } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { pairOrderOn } from "@mlxts/test-kit/gathered_pairs";
import { goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { gatherQuantizedMatmul } from "../src/index.ts";

const mlx = goldens("goldens/gather_qmm.safetensors");
const SETTINGS = ([4, 8] as const).flatMap((bits) => ([32, 64, 128] as const).map((group) => [bits, group] as const));

describe.each(DEVICES)("mx.gather_qmm on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  const stored = <D extends "f32" | "u32">(name: string, dtype: D) =>
    device.tensor(dtype, mlx.tensor(name).shape, mlx.numbers(name));

  it.each(SETTINGS)("%i bits, groups of %i", async (bits, groupSize) => {
    const name = `b${bits}.g${groupSize}`;
    const [scales, biases] = [stored(`${name}.scales`, "f32"), stored(`${name}.biases`, "f32")];
    const q = { weight: stored(`${name}.weight`, "u32"), scales, biases, bits, groupSize, mode: "affine" } as const;
    const [experts = 0] = q.weight.shape;
    for (const [part, ordered] of [
      ["up", false],
      ["up", true],
      ["down", false],
      ["down", true],
      ["rows", false],
    ] as const) {
      const encoder = device.encoder();
      const out = gatherQuantizedMatmul(encoder, {
        x: stored(`${part}.x`, "f32"),
        q,
        rhsIndices: stored(`${part}.rhs`, "u32"),
        ...(mlx.has(`${part}.lhs`) && { lhsIndices: stored(`${part}.lhs`, "u32") }),
        ...(ordered && pairOrderOn(device, [...mlx.numbers(`${part}.rhs`)], experts)),
      });
      await encoder.commit();
      expect(out.shape).toEqual(mlx.tensor(`${name}.${part}`).shape);
      const { ratio } = compare(await out.readNumbers(), mlx.numbers(`${name}.${part}`));
      expect(ratio, `${part} ${ordered}`).toBeLessThan(1e-6);
    }
  });
});
