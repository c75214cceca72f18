import { defineOp, FLOATS } from "@mlxts/core";
import { elementwiseKernel } from "./elementwise.ts";
import type { SigmoidGate } from "./signatures.ts";

export const sigmoidGateKernel = elementwiseKernel("sigmoid_gate", "x", "gate");

/**
 * Output gate of gated attention: `out = x · σ(gate)`, σ(z) = 1 / (1 + exp(−z)).
 *
 * - `x`, `gate`, `out`: one shape, one dtype of f32, f16, bf16. `out` may be exactly `x` or exactly `gate`.
 *
 * In f32, rounded once, and right also where σ(gate) alone would be too small for f32 (gates below −87) and `x` is large
 * or infinite; below −173 σ counts as 0. Errors: `InvalidArgument` for shapes, dtypes and partial overlap.
 */
export const sigmoidGate: SigmoidGate = defineOp({
  name: "sigmoidGate",
  summary: "x · sigmoid(gate)",
  inputs: {
    x: { dtype: FLOATS, shape: "... D", doc: "what is gated" },
    gate: { dtype: ["=x"], shape: "... D", doc: "gate of each element, before its sigmoid" },
  },
  outputs: { out: { dtype: ["=x"], shape: "... D", inPlace: ["x", "gate"], doc: "the gated elements" } },
  params: {},
  encode({ encoder, op, inputs: { x, gate }, outputs: { out } }) {
    encoder.dispatch(sigmoidGateKernel, {
      op,
      variant: x.dtype,
      buffers: { x, gate, out },
      params: {},
      sizes: { size: x.size },
    });
  },
});
