import { DTYPES, type FloatDtype, type Tensor } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { matmul, multiMatmul } from "../src/index.ts";

type Widths = readonly [number, number, number];

/** Queries, keys and values: products of one x with three matrices of so many rows. */
function products(m: number, widths: Widths, cols: number, dtype: FloatDtype, how: "joint" | "chain"): BenchCase {
  const rows = widths.reduce((a, b) => a + b, 0);
  return {
    name: `${m}×${cols} ${dtype}, ${widths.join(" + ")} rows bf16${how === "chain" ? ", as three ops" : ""}`,
    bytes: 2 * rows * cols + m * rows * DTYPES[dtype].bytesPerElement,
    flops: 2 * m * rows * cols,
    setup(device) {
      const random = new Random(3);
      const x = device.tensor(dtype, [m, cols], random.normals(m * cols));
      const few = random.normals(8191, 1 / Math.sqrt(cols));
      const matrix = (width: number) =>
        device.tensor(
          "bf16",
          [width, cols],
          Float32Array.from({ length: width * cols }, (_, i) => few[i % few.length] as number),
        );
      const [a, b, c] = widths.map(matrix) as [Tensor, Tensor, Tensor];
      const [outA, outB, outC] = widths.map((width) => device.tensor(dtype, [m, width])) as [Tensor, Tensor, Tensor];
      return {
        encode: (encoder) => {
          if (how === "joint") {
            multiMatmul(encoder, { x, a, b, c, outA, outB, outC });
            return;
          }
          matmul(encoder, { x, weight: a, out: outA });
          matmul(encoder, { x, weight: b, out: outB });
          matmul(encoder, { x, weight: c, out: outC });
        },
      };
    },
  };
}

const SETTINGS: readonly [number, Widths, number, FloatDtype][] = [
  [1, [4096, 512, 512], 1024, "bf16"],
  [1, [4096, 512, 512], 1024, "f32"],
  [4, [4096, 512, 512], 1024, "bf16"],
];

export default defineBench({
  op: "multiMatmul",
  cases: SETTINGS.flatMap((setting) => [products(...setting, "joint"), products(...setting, "chain")]),
});
