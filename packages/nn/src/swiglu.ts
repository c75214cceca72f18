import { defineOp, FLOATS } from "@mlxts/core";
import { elementwiseKernel } from "./elementwise.ts";
import type { Swiglu } from "./signatures.ts";

export const swigluKernel = elementwiseKernel("swiglu", "gate", "up");

/**
 * The gated unit of a feed-forward layer: `out = silu(gate) · up`, silu(x) = x · σ(x).
 *
 * - `gate`, `up`, `out`: one shape, one dtype of f32, f16, bf16. `out` may be exactly `gate` or exactly `up`.
 *
 * In f32, rounded once, and right also where silu(gate) alone would be too small for f32 (gates below −87) and `up` is
 * large or infinite; below −173 silu counts as ∓0. Errors: `InvalidArgument` for shapes, dtypes and partial overlap.
 * Shazeer, "GLU Variants Improve Transformer", 2020.
 */
export const swiglu: Swiglu = defineOp({
  name: "swiglu",
  summary: "silu(gate) · up",
  inputs: {
    gate: { dtype: FLOATS, shape: "... D", doc: "gate of each element, before its silu" },
    up: { dtype: ["=gate"], shape: "... D", doc: "what is gated" },
  },
  outputs: { out: { dtype: ["=gate"], shape: "... D", inPlace: ["gate", "up"], doc: "the gated elements" } },
  params: {},
  encode({ encoder, op, inputs: { gate, up }, outputs: { out } }) {
    encoder.dispatch(swigluKernel, {
      op,
      variant: gate.dtype,
      buffers: { gate, up, out },
      params: {},
      sizes: { size: gate.size },
    });
  },
});
