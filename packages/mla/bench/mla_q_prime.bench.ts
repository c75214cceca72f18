import type { FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { mlaQPrime } from "../src/index.ts";
import { benchWeight, type WeightKind, weightBytes, weightName } from "./weights.ts";

const [NOPE, V, R] = [128, 128, 512];

const folded = (
  tokens: number,
  heads: number,
  dtype: FloatDtype,
  weight: WeightKind = dtype,
  name: "kvB" | "embedQ" = "kvB",
): BenchCase => ({
  name: `${tokens} tokens, ${heads} heads, ${NOPE} to ${R}, ${dtype}${weight === dtype ? "" : `, ${weightName(weight)}`}${name === "kvB" ? "" : ", embedQ"}`,
  bytes: heads * NOPE * R * weightBytes(weight) + tokens * heads * (NOPE + R) * 4,
  flops: 2 * tokens * heads * NOPE * R,
  setup(device) {
    const random = new Random(4);
    const tensors = {
      q: device.tensor(dtype, [1, tokens, heads, NOPE], random.normals(tokens * heads * NOPE)),
      [name]: benchWeight(device, weight, name === "kvB" ? [heads * (NOPE + V), R] : [heads, R, NOPE]),
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
    ...([4, 8] as const).flatMap((bits) => [
      folded(1, 16, "bf16", bits),
      folded(1, 128, "bf16", bits),
      folded(512, 16, "bf16", bits),
    ]),
    folded(1, 16, "bf16", "bf16", "embedQ"),
    folded(1, 16, "bf16", 4, "embedQ"),
    folded(512, 16, "bf16", 4, "embedQ"),
  ],
});
