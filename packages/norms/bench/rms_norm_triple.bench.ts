import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { rmsNorm, rmsNormTriple } from "../src/index.ts";

const random = new Random(11);

/** One op, or its chain: three norms of the same rows. */
const tripleCase = (rows: number, dim: number, dtype: FloatDtype, fused: boolean): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}${fused ? "" : ", as a chain of rmsNorm"}`,
  bytes: ((fused ? 4 : 6) * rows + 3) * dim * DTYPES[dtype].bytesPerElement,
  flops: (fused ? 6 : 12) * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const weight = () => device.tensor(dtype, [dim], random.normals(dim, 0.2, 1));
    const [x, outA, outB, outC] = [make(), make(), make(), make()];
    const [weightA, weightB, weightC] = [weight(), weight(), weight()];
    if (fused)
      return {
        encode: (encoder) => void rmsNormTriple(encoder, { x, weightA, weightB, weightC, outA, outB, outC }),
      };
    return {
      encode(encoder) {
        rmsNorm(encoder, { x, weight: weightA, out: outA });
        rmsNorm(encoder, { x, weight: weightB, out: outB });
        rmsNorm(encoder, { x, weight: weightC, out: outC });
      },
    };
  },
});

export default defineBench({
  op: "rmsNormTriple",
  cases: [true, false].flatMap((fused) =>
    ([1, 512] as const).flatMap((rows) =>
      (["f32", "bf16"] as const).map((dtype) => tripleCase(rows, 2816, dtype, fused)),
    ),
  ),
});
