import type { FloatDtype } from "@mlxts/core";
import { defineBench } from "@mlxts/core/testing";
import { multiQuantizedMatmul, type Quantized, quantizedMatmul } from "../src/index.ts";
import { jointCases } from "./joint_matrices.ts";

/** Queries, keys and values. */
const cases = (m: number, cols: number, rows: readonly [number, number, number], dtype: FloatDtype) =>
  jointCases(
    { m, cols, rows, dtype },
    (encoder, x, matrices, [outA, outB, outC]) => {
      const [a, b, c] = matrices as [Quantized, Quantized, Quantized];
      multiQuantizedMatmul(encoder, { x, a, b, c, outA, outB, outC });
    },
    (encoder, x, matrices, outs) => {
      for (const [i, q] of matrices.entries()) quantizedMatmul(encoder, { x, q, out: outs[i] });
    },
  );

export default defineBench({
  op: "multiQuantizedMatmul",
  cases: (["bf16", "f32"] as const).flatMap((dtype) =>
    [1, 4].flatMap((m) => [...cases(m, 1024, [2048, 512, 512], dtype), ...cases(m, 4096, [4096, 1024, 1024], dtype)]),
  ),
});
