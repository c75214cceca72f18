import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { kvCacheAppend } from "../src/index.ts";

const append = (tokens: number, heads: number, dim: number, from: FloatDtype, to: FloatDtype): BenchCase => ({
  name: `${tokens} tokens, ${heads} heads of ${dim}, ${from} to ${to}`,
  bytes: 2 * tokens * heads * dim * (DTYPES[from].bytesPerElement + DTYPES[to].bytesPerElement),
  flops: 0,
  setup(device) {
    const shape = [1, tokens, heads, dim];
    const k = device.tensor(from, shape, new Random(4).normals(tokens * heads * dim));
    const cache = () => device.tensor(to, [1, heads, 4096, dim]);
    const tensors = { k, v: k, kCache: cache(), vCache: cache(), start: device.tensor("i32", [1], [1000]) };
    return { encode: (encoder) => void kvCacheAppend(encoder, tensors) };
  },
});

export default defineBench({
  op: "kvCacheAppend",
  cases: [
    append(1, 8, 128, "bf16", "bf16"),
    append(1, 8, 128, "f32", "bf16"),
    append(512, 8, 128, "bf16", "bf16"),
    append(512, 8, 128, "f32", "bf16"),
  ],
});
