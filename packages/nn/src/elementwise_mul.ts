import { defineOp, FLOATS } from "@mlxts/core";
import { elementwiseKernel } from "./elementwise.ts";
import type { ElementwiseMul } from "./signatures.ts";

export const elementwiseMulKernel = elementwiseKernel("elementwise_mul", "a", "b");

/**
 * Product of two tensors, element by element: `out = a · b`.
 *
 * - `a`, `b`, `out`: one shape, one dtype of f32, f16, bf16. `out` may be exactly `a` or exactly `b`.
 *
 * Multiplied in f32, rounded once. Errors: `InvalidArgument` for shapes, dtypes and partial overlap.
 */
export const elementwiseMul: ElementwiseMul = defineOp({
  name: "elementwiseMul",
  summary: "a · b, element by element",
  inputs: {
    a: { dtype: FLOATS, shape: "... D", doc: "first factor" },
    b: { dtype: ["=a"], shape: "... D", doc: "second factor" },
  },
  outputs: { out: { dtype: ["=a"], shape: "... D", inPlace: ["a", "b"], doc: "the product" } },
  params: {},
  encode({ encoder, op, inputs: { a, b }, outputs: { out } }) {
    encoder.dispatch(elementwiseMulKernel, {
      op,
      variant: a.dtype,
      buffers: { a, b, out },
      params: {},
      sizes: { size: a.size },
    });
  },
});
