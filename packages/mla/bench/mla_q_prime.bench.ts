import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { mlaQPrime } from "../src/index.ts";

const [NOPE, V, R] = [128, 128, 512];

const folded = (tokens: number, heads: number, dtype: FloatDtype): BenchCase => ({
  name: `${tokens} tokens, ${heads} heads, ${NOPE} to ${R}, ${dtype}`,
  bytes: heads * NOPE * R * DTYPES[dtype].bytesPerElement + tokens * heads * (NOPE + R) * 4,
  flops: 2 * tokens * heads * NOPE * R,
  setup(device) {
    const random = new Random(4);
    const tensors = {
      q: device.tensor(dtype, [1, tokens, heads, NOPE], random.normals(tokens * heads * NOPE)),
      kvB: device.tensor(dtype, [heads * (NOPE + V), R], random.normals(heads * (NOPE + V) * R)),
      out: device.tensor("f32", [1, tokens, heads, R]),
    };
    return { encode: (encoder) => void mlaQPrime(encoder, tensors, { nope: NOPE }) };
  },
});

export default defineBench({
  op: "mlaQPrime",
  cases: [
    folded(1, 16, "bf16"),
    folded(1, 128, "bf16"),
    folded(4, 16, "bf16"),
    folded(512, 16, "bf16"),
    folded(512, 16, "f32"),
  ],
});
