import { defineOp, FLOATS } from "@mlxts/core";
import { elementwiseKernel } from "./elementwise.ts";
import type { Add } from "./signatures.ts";

export const addKernel = elementwiseKernel("add", "a", "b");

/**
 * Sum of two tensors: `out = a + b`.
 *
 * - `a`, `b`, `out`: one shape, one dtype of f32, f16, bf16. `out` may be exactly `a` or exactly `b`.
 *
 * Added in f32, rounded once. Errors: `InvalidArgument` for shapes, dtypes and partial overlap.
 */
export const add: Add = defineOp({
  name: "add",
  summary: "a + b",
  inputs: {
    a: { dtype: FLOATS, shape: "... D", doc: "first summand" },
    b: { dtype: ["=a"], shape: "... D", doc: "second summand" },
  },
  outputs: { out: { dtype: ["=a"], shape: "... D", inPlace: ["a", "b"], doc: "the sum" } },
  params: {},
  encode({ encoder, op, inputs: { a, b }, outputs: { out } }) {
    encoder.dispatch(addKernel, {
      op,
      variant: a.dtype,
      buffers: { a, b, out },
      params: {},
      sizes: { size: a.size },
    });
  },
});
