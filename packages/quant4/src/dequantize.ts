import { type Dtype, defineKernel, defineOp, FLOATS, QUANTIZED, type QuantizedDims, quantizedDims } from "@mlxts/core";
import { quant4Library } from "./library.ts";
import { BITS, combinations, WORD_LAUNCH } from "./quantized.ts";
import type { Dequantize } from "./signatures.ts";

export const dequantizeKernel = defineKernel({
  library: quant4Library,
  name: "dequantize",
  variants: combinations(FLOATS, FLOATS, ["b2", "b4", "b8"]),
  buffers: { weight: "read", scales: "read", biases: "read", out: "write" },
  params: { cols: "u32", groupSize: "u32" },
  launch: WORD_LAUNCH,
});

/**
 * The matrix a quantized one stands for: `out = round(f32(q)·f32(scale) + f32(bias))`.
 *
 * - `q` a `Quantized` with bits 2, 4 or 8; `out` [.., rows, cols].
 * - `outDtype` f32, f16 or bf16; default the dtype of the scales.
 *
 * The product and the sum are f32, each rounded (the product of a 16-bit scale is exact), then one rounding to the
 * dtype of `out`: the same bits on every device for 16-bit scales. Errors: `InvalidArgument` for shapes, dtypes and
 * attributes that contradict each other; `UnsupportedDtype` for 3, 5, 6 bits and modes other than affine.
 * Source: MLX affine quantization, `mx.dequantize`.
 */
export const dequantize: Dequantize = defineOp({
  name: "dequantize",
  summary: "scale·q + bias",
  inputs: { q: QUANTIZED },
  outputs: {
    out: {
      dtype: ({ options, tensors }) => (options.outDtype ?? tensors.scales?.dtype) as Dtype,
      shape: {
        text: "..., rows, cols",
        of: (c) => {
          const { stack, rows, cols } = quantizedDims(c, BITS) as QuantizedDims;
          return [...stack, rows, cols];
        },
      },
      doc: "the elements as numbers",
    },
  },
  params: { outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of out; default that of scales" } },
  relations(c) {
    quantizedDims(c, BITS);
  },
  encode({ encoder, op, inputs: { q }, outputs: { out } }) {
    encoder.dispatch(dequantizeKernel, {
      op,
      variant: `${q.scales.dtype}_${out.dtype}_b${q.bits}`,
      buffers: { weight: q.weight, scales: q.scales, biases: q.biases, out },
      params: { cols: out.lastDim, groupSize: q.groupSize },
      sizes: { rows: out.size / out.lastDim, words: q.weight.lastDim },
    });
  },
});
