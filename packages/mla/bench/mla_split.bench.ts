import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { mlaSplit } from "../src/index.ts";

const [NOPE, ROPE, R] = [128, 64, 512];

const split = (tokens: number, heads: number, dtype: FloatDtype): BenchCase => ({
  name: `${tokens} tokens, ${heads} heads, ${dtype}`,
  bytes: 2 * tokens * (heads * (NOPE + ROPE) + R + ROPE) * DTYPES[dtype].bytesPerElement,
  flops: 0,
  setup(device) {
    const q = device.tensor(
      dtype,
      [1, tokens, heads, NOPE + ROPE],
      new Random(4).normals(tokens * heads * (NOPE + ROPE)),
    );
    const kv = device.tensor(dtype, [1, tokens, R + ROPE]);
    const tensors = {
      q,
      kv,
      qNope: device.tensor(dtype, [1, tokens, heads, NOPE]),
      qPe: device.tensor(dtype, [1, tokens, heads, ROPE]),
      latent: device.tensor(dtype, [1, tokens, R]),
      kPe: device.tensor(dtype, [1, tokens, ROPE]),
    };
    return { encode: (encoder) => void mlaSplit(encoder, tensors, { rope: ROPE }) };
  },
});

export default defineBench({
  op: "mlaSplit",
  cases: [split(1, 128, "bf16"), split(512, 16, "bf16"), split(512, 16, "f32")],
});
