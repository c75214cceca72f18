import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { l2Norm } from "../src/index.ts";

const random = new Random(3);

const l2Case = (tokens: number, heads: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${tokens}, ${heads}, ${dim}] ${dtype}`,
  bytes: 2 * tokens * heads * dim * DTYPES[dtype].bytesPerElement,
  flops: 3 * tokens * heads * dim,
  setup(device) {
    const shape = [tokens, heads, dim];
    const x = device.tensor(dtype, shape, random.normals(tokens * heads * dim));
    const out = device.tensor(dtype, shape);
    return { encode: (encoder) => void l2Norm(encoder, { x, out }) };
  },
});

export default defineBench({
  op: "l2Norm",
  cases: [l2Case(1, 16, 128, "bf16"), l2Case(512, 16, 128, "f32"), l2Case(512, 16, 128, "bf16")],
});
