import { type CommandEncoder, defineOp, FLOATS, type Tensor } from "@mlxts/core";
import { elementwiseKernel } from "./elementwise.ts";
import type { Swiglu } from "./signatures.ts";

export const swigluKernel = elementwiseKernel("swiglu", "gate", "up");

function encodeSwiglu(encoder: CommandEncoder, op: string, buffers: Record<"gate" | "up" | "out", Tensor>): void {
  const { dtype: variant, size } = buffers.out;
  encoder.dispatch(swigluKernel, { op, variant, buffers, params: {}, sizes: { size } });
}

/** The gated unit of two products, which `encode` records one after the other. */
export function encodeGated(
  encoder: CommandEncoder,
  op: string,
  out: Tensor,
  encode: (input: "gate" | "up", product: Tensor) => void,
): void {
  const mark = encoder.arena?.mark();
  const up = encoder.empty(out.dtype, out.shape);
  encode("gate", out);
  encode("up", up);
  encodeSwiglu(encoder, op, { gate: out, up, out });
  if (mark) encoder.arena?.rewind(mark);
}

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
    encodeSwiglu(encoder, op, { gate, up, out });
  },
});
