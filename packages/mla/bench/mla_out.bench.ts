import type { FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { mlaOut } from "../src/index.ts";
import { benchWeight, type WeightKind, weightBytes, weightName } from "./weights.ts";

const [NOPE, V, R] = [128, 128, 512];

const values = (tokens: number, heads: number, dtype: FloatDtype, weight: WeightKind = dtype): BenchCase => ({
  name: `${tokens} tokens, ${heads} heads, ${V} from ${R}, ${dtype}${weight === dtype ? "" : `, ${weightName(weight)}`}`,
  bytes: heads * V * R * weightBytes(weight) + tokens * heads * (V + R) * 4,
  flops: 2 * tokens * heads * V * R,
  setup(device) {
    const random = new Random(4);
    const tensors = {
      vc: device.tensor("f32", [1, tokens, heads, R], random.normals(tokens * heads * R)),
      kvB: benchWeight(device, weight, [heads * (NOPE + V), R]),
      out: device.tensor(dtype, [1, tokens, heads, V]),
    };
    return { encode: (encoder) => void mlaOut(encoder, tensors, { v: V, outDtype: dtype }) };
  },
});

export default defineBench({
  op: "mlaOut",
  cases: [
    values(1, 16, "bf16"),
    values(1, 128, "bf16"),
    values(4, 16, "bf16"),
    values(512, 16, "bf16"),
    values(512, 16, "f32"),
    ...([4, 8] as const).flatMap((bits) => [
      values(1, 16, "bf16", bits),
      values(1, 128, "bf16", bits),
      values(512, 16, "bf16", bits),
    ]),
  ],
});
