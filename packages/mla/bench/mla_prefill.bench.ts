import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { mlaPrefill } from "../src/index.ts";

const [NOPE, ROPE, V, R] = [128, 64, 128, 512];
const P = NOPE + V;

interface Prefill {
  tokens: number;
  length: number;
  heads: number;
  dtype: FloatDtype;
  form?: "auto" | "folded" | "materialized";
}

function prefill({ tokens, length, heads, dtype, form = "auto" }: Prefill): BenchCase {
  const pairs = tokens * length - (tokens * (tokens - 1)) / 2;
  const folded = pairs * (2 * R + ROPE) + tokens * P * R;
  const materialized = pairs * (NOPE + ROPE + V) + length * P * R;
  return {
    name: `${tokens} of ${length}, ${heads} heads, ${dtype}${form === "auto" ? "" : `, ${form}`}`,
    bytes: (length * (R + ROPE) + heads * P * R) * DTYPES[dtype].bytesPerElement,
    flops: 2 * heads * (form === "folded" ? folded : materialized),
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
        kvB: tensor(heads * P, R),
        latentCache: tensor(1, length, R),
        kPeCache: tensor(1, length, ROPE),
        lengths: device.tensor("i32", [1], [length]),
        out: tensor(1, tokens, heads, V),
      };
      return { encode: (encoder) => void mlaPrefill(encoder, tensors, { nope: NOPE, softmaxScale: 0.1352, form }) };
    },
  };
}

export default defineBench({
  op: "mlaPrefill",
  cases: [
    prefill({ tokens: 512, length: 512, heads: 16, dtype: "bf16" }),
    prefill({ tokens: 512, length: 512, heads: 16, dtype: "bf16", form: "folded" }),
    prefill({ tokens: 512, length: 4096, heads: 16, dtype: "bf16" }),
    prefill({ tokens: 128, length: 4096, heads: 16, dtype: "bf16" }),
    prefill({ tokens: 128, length: 4096, heads: 16, dtype: "bf16", form: "materialized" }),
    prefill({ tokens: 512, length: 512, heads: 16, dtype: "f32" }),
  ],
});
