import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { mlaDecode } from "../src/index.ts";
import { benchWeight, type WeightKind, weightBytes, weightName } from "./weights.ts";

const [NOPE, ROPE, V, R] = [128, 64, 128, 512];

function decode(
  tokens: number,
  length: number,
  heads: number,
  dtype: FloatDtype,
  weight: WeightKind = dtype,
): BenchCase {
  const weights = heads * (NOPE + V) * R;
  const pairs = tokens * length - (tokens * (tokens - 1)) / 2;
  return {
    name: `${tokens} of ${length}, ${heads} heads, ${dtype}${weight === dtype ? "" : `, ${weightName(weight)}`}`,
    bytes: length * (R + ROPE) * DTYPES[dtype].bytesPerElement + weights * weightBytes(weight),
    flops: 2 * (pairs * heads * (2 * R + ROPE) + tokens * weights),
    setup(device) {
      const random = new Random(3);
      const few = random.normals(8191);
      const tensor = (...shape: number[]) => {
        const size = shape.reduce((a, b) => a * b, 1);
        return device.tensor(
          dtype,
          shape,
          Float32Array.from({ length: size }, (_, i) => (few[i % few.length] as number) / 8),
        );
      };
      const tensors = {
        q: tensor(1, tokens, heads, NOPE + ROPE),
        qPe: tensor(1, tokens, heads, ROPE),
        latent: tensor(1, tokens, R),
        kPe: tensor(1, tokens, ROPE),
        kvB: benchWeight(device, weight, [heads * (NOPE + V), R]),
        latentCache: tensor(1, length, R),
        kPeCache: tensor(1, length, ROPE),
        lengths: device.tensor("i32", [1], [length]),
        out: tensor(1, tokens, heads, V),
      };
      return { encode: (encoder) => void mlaDecode(encoder, tensors, { nope: NOPE, softmaxScale: 0.1352 }) };
    },
  };
}

export default defineBench({
  op: "mlaDecode",
  cases: [
    decode(1, 4096, 16, "bf16"),
    decode(1, 4096, 128, "bf16"),
    decode(4, 4096, 16, "bf16"),
    decode(1, 4096, 16, "f32"),
    decode(1, 4096, 16, "bf16", 4),
    decode(1, 4096, 16, "bf16", 8),
  ],
});
