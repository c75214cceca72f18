import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { rope } from "../src/index.ts";

const random = new Random(6);

const ropeCase = (
  [tokens, heads, dim]: readonly [number, number, number],
  pairs: number,
  dtype: FloatDtype,
  pairing: "half" | "interleaved" = "half",
): BenchCase => ({
  name: `[1, ${tokens}, ${heads}, ${dim}], ${pairs} pairs, ${pairing}, ${dtype}`,
  bytes: 2 * tokens * heads * dim * DTYPES[dtype].bytesPerElement,
  flops: 6 * tokens * heads * pairs,
  setup(device) {
    const shape = [1, tokens, heads, dim];
    const x = device.tensor(dtype, shape, random.normals(tokens * heads * dim));
    const positions = device.tensor(
      "i32",
      [1, tokens],
      Int32Array.from({ length: tokens }, (_, t) => 4000 + t),
    );
    const inverseFrequencies = device.tensor(
      "f32",
      [pairs],
      Float32Array.from({ length: pairs }, (_, i) => 1e7 ** (-i / pairs)),
    );
    const out = device.tensor(dtype, shape);
    return { encode: (encoder) => void rope(encoder, { x, positions, inverseFrequencies, out }, { pairing }) };
  },
});

export default defineBench({
  op: "rope",
  cases: [
    ropeCase([1, 32, 128], 64, "bf16"),
    ropeCase([512, 32, 128], 64, "f32"),
    ropeCase([512, 32, 128], 64, "bf16"),
    ropeCase([512, 16, 256], 32, "bf16"),
    ropeCase([512, 16, 64], 32, "bf16", "interleaved"),
  ],
});
