import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { mlaCacheAppend } from "../src/index.ts";

const [R, ROPE, CAPACITY] = [512, 64, 4096];

const append = (tokens: number, from: FloatDtype, to: FloatDtype): BenchCase => ({
  name: `${tokens} tokens, ${from} to ${to}`,
  bytes: tokens * (R + ROPE) * (DTYPES[from].bytesPerElement + DTYPES[to].bytesPerElement),
  flops: 0,
  setup(device) {
    const tensors = {
      latent: device.tensor(from, [1, tokens, R], new Random(4).normals(tokens * R)),
      kPe: device.tensor(from, [1, tokens, ROPE], new Random(5).normals(tokens * ROPE)),
      latentCache: device.tensor(to, [1, CAPACITY, R]),
      kPeCache: device.tensor(to, [1, CAPACITY, ROPE]),
      start: device.tensor("i32", [1], [1000]),
    };
    return { encode: (encoder) => void mlaCacheAppend(encoder, tensors) };
  },
});

export default defineBench({
  op: "mlaCacheAppend",
  cases: [append(1, "bf16", "bf16"), append(512, "bf16", "bf16"), append(512, "f32", "bf16")],
});
