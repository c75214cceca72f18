import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { rmsNormNoScaleDual, rmsNormNoScaleDualPermuted } from "../src/index.ts";

const random = new Random(16);

const dualCase = (tokens: number, heads: number, dim: number, permuted: boolean): BenchCase => ({
  name: `[${tokens}, ${heads}, ${dim}]${permuted ? " by head" : ""}`,
  bytes: 10 * tokens * heads * dim,
  flops: 3 * tokens * heads * dim,
  setup(device) {
    const shape = [tokens, heads, dim];
    const x = device.tensor("f32", shape, random.normals(tokens * heads * dim));
    const out = device.tensor("f32", shape);
    const out16 = device.tensor("bf16", permuted ? [heads, tokens, dim] : shape);
    const op = permuted ? rmsNormNoScaleDualPermuted : rmsNormNoScaleDual;
    return { encode: (encoder) => void op(encoder, { x, out, out16 }) };
  },
});

export default defineBench({
  op: "rmsNormNoScaleDual",
  cases: [dualCase(1, 8, 256, false), dualCase(512, 8, 256, false), dualCase(512, 8, 256, true)],
});
