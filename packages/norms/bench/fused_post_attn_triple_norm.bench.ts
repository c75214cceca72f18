import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { fusedPostAttnTripleNorm, rmsNormAdd, rmsNormTriple } from "../src/index.ts";

const random = new Random(12);

/** One op, or its chain of two. */
const postAttnCase = (rows: number, dim: number, dtype: FloatDtype, fused: boolean): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}${fused ? "" : ", as a chain of rmsNormAdd and rmsNormTriple"}`,
  bytes: ((fused ? 6 : 7) * rows + 4) * dim * DTYPES[dtype].bytesPerElement,
  flops: 11 * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const weight = () => device.tensor(dtype, [dim], random.normals(dim, 0.2, 1));
    const [hidden, attn, res, outA, outB, outC] = [make(), make(), make(), make(), make(), make()];
    const [weightPost, weightA, weightB, weightC] = [weight(), weight(), weight(), weight()];
    const last = { weightA, weightB, weightC, outA, outB, outC };
    if (fused)
      return {
        encode: (encoder) => void fusedPostAttnTripleNorm(encoder, { hidden, attn, weightPost, res, ...last }),
      };
    return {
      encode(encoder) {
        rmsNormAdd(encoder, { x: attn, weight: weightPost, residual: hidden, out: res });
        rmsNormTriple(encoder, { x: res, ...last });
      },
    };
  },
});

export default defineBench({
  op: "fusedPostAttnTripleNorm",
  cases: [true, false].flatMap((fused) =>
    ([1, 512] as const).flatMap((rows) =>
      (["f32", "bf16"] as const).map((dtype) => postAttnCase(rows, 2816, dtype, fused)),
    ),
  ),
});
