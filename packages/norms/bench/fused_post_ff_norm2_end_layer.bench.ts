import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { fusedPostFfNorm2EndLayer, rmsNormAdd } from "../src/index.ts";

const random = new Random(13);

/** One op, or two of its chain of three: the last, a product with one number, is left out. */
const endCase = (rows: number, dim: number, dtype: FloatDtype, fused: boolean): BenchCase => ({
  name: `[${rows}, ${dim}] ${dtype}${fused ? "" : ", as a chain of rmsNormAdd twice"}`,
  bytes: ((fused ? 4 : 6) * rows + 2) * dim * DTYPES[dtype].bytesPerElement,
  flops: 11 * rows * dim,
  setup(device) {
    const make = () => device.tensor(dtype, [rows, dim], random.normals(rows * dim));
    const weight = () => device.tensor(dtype, [dim], random.normals(dim, 0.2, 1));
    const [attn, x, residual, m, hidden] = [make(), make(), make(), make(), make()];
    const [weight2, weight3] = [weight(), weight()];
    const scale = device.tensor("f32", [1], [1.25]);
    if (fused)
      return {
        encode: (encoder) =>
          void fusedPostFfNorm2EndLayer(encoder, { attn, x, residual, weight2, weight3, scale, hidden }),
      };
    return {
      encode(encoder) {
        rmsNormAdd(encoder, { x, weight: weight2, residual: attn, out: m });
        rmsNormAdd(encoder, { x: m, weight: weight3, residual, out: hidden });
      },
    };
  },
});

export default defineBench({
  op: "fusedPostFfNorm2EndLayer",
  cases: [true, false].flatMap((fused) =>
    ([1, 512] as const).flatMap((rows) => (["f32", "bf16"] as const).map((dtype) => endCase(rows, 2816, dtype, fused))),
  ),
});
