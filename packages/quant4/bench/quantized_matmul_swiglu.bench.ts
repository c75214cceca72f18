import type { FloatDtype, Tensor } from "@mlxts/core";
import { defineBench } from "@mlxts/core/testing";
import { gateProductsKernel } from "../src/gate_products.ts";
import { type Quantized, quantizedMatmul, quantizedMatmulSwiglu } from "../src/index.ts";
import { jointCases } from "./joint_matrices.ts";

const cases = (m: number, cols: number, rows: number, dtype: FloatDtype) =>
  jointCases(
    { m, cols, rows: [rows, rows], dtype },
    (encoder, x, [gate, up], [out]) => {
      quantizedMatmulSwiglu(encoder, { x, gate: gate as Quantized, up: up as Quantized, out });
    },
    (encoder, x, matrices, outs) => {
      for (const [i, q] of matrices.entries()) quantizedMatmul(encoder, { x, q, out: outs[i] });
      const [out, ups] = outs as [Tensor, Tensor];
      encoder.dispatch(gateProductsKernel, {
        op: "swiglu",
        variant: dtype,
        buffers: { gates: out, ups, out },
        params: {},
        sizes: { size: out.size },
      });
    },
  );

export default defineBench({
  op: "quantizedMatmulSwiglu",
  cases: [
    ...(["bf16", "f32"] as const).flatMap((dtype) =>
      [1, 4].flatMap((m) => [...cases(m, 1024, 3584, dtype), ...cases(m, 4096, 11008, dtype)]),
    ),
    ...cases(1, 2560, 9216, "bf16"),
  ],
});
