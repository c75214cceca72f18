import type { Tensor } from "@mlxts/core";
import { compare } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { pairOrderOn } from "@mlxts/test-kit/gathered_pairs";
import { goldens } from "@mlxts/test-kit/goldens";
import { afterAll, describe, expect, it } from "vitest";
import { gatherMatmul } from "../src/index.ts";

const gathered = goldens("goldens/gather_mm.safetensors");

describe.each(DEVICES)("gathered products of MLX and torch on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  const stored = (name: string, dtype: "f32" | "u32" | "i32"): Tensor =>
    device.tensor(dtype, gathered.tensor(name).shape, gathered.numbers(name));

  /** Inputs with the order of the pairs, or with each matrix at a place of its own. */
  function inputsOf(name: string, how: string) {
    const indices = stored(`${name}.rhs`, "u32");
    const weight = stored(`${name}.weight`, "f32");
    const given = { x: stored(`${name}.x`, "f32"), weight, rhsIndices: indices };
    const [experts = 0, rows = 0, cols = 0] = weight.shape;
    if (how === "starts") {
      const starts = device.tensor(
        "u32",
        [experts],
        Array.from({ length: experts }, (_, e) => e * rows * cols),
      );
      return { inputs: { ...given, weight: weight.reshape([weight.size]), starts }, options: { rows } };
    }
    if (how === "plain") return { inputs: given, options: {} };
    return { inputs: { ...given, ...pairOrderOn(device, [...gathered.numbers(`${name}.rhs`)], experts) }, options: {} };
  }

  it.each([
    ["up", "plain"],
    ["up", "ordered"],
    ["up", "starts"],
    ["down", "plain"],
    ["down", "ordered"],
    ["rows", "plain"],
  ])("%s, %s", async (name, how) => {
    const { inputs, options } = inputsOf(name, how);
    const lhs = gathered.has(`${name}.lhs`) ? { lhsIndices: stored(`${name}.lhs`, "u32") } : {};
    const encoder = device.encoder();
    const out = gatherMatmul(encoder, { ...inputs, ...lhs }, options);
    await encoder.commit();
    for (const peer of ["mlx", "torch"]) {
      expect(out.shape).toEqual(gathered.tensor(`${name}.${peer}`).shape);
      expect(compare(await out.readNumbers(), gathered.numbers(`${name}.${peer}`)).ratio).toBeLessThan(5e-7);
    }
  });
});
