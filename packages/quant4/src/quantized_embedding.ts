import { type Dtype, defineKernel, defineOp, FLOATS, QUANTIZED, type QuantizedDims, quantizedDims } from "@mlxts/core";
import { quant4Library } from "./library.ts";
import { BITS, combinations, WORD_LAUNCH } from "./quantized.ts";
import type { QuantizedEmbedding } from "./signatures.ts";

export const quantizedEmbeddingKernel = defineKernel({
  library: quant4Library,
  name: "quantized_embedding",
  variants: combinations(FLOATS, FLOATS, ["b2", "b4", "b8"]),
  buffers: { ids: "read", weight: "read", scales: "read", biases: "read", out: "write" },
  params: { rows: "u32", cols: "u32", groupSize: "u32", signedIds: "u32" },
  faults: {
    id: ([id, index], { rows, signedIds }) =>
      signedIds
        ? `\`ids\` must be from 0 to ${rows - 1}, got ${id | 0} at index ${index}`
        : `\`ids\` must be < ${rows}, got ${id} at index ${index}`,
  },
  launch: WORD_LAUNCH,
});

/**
 * Rows of a quantized matrix: `out[t, :] = dequantize(row ids[t])`, bit for bit as `dequantize`.
 *
 * - `ids` [..] u32 or i32, from 0 to rows − 1; `q` a `Quantized` [rows, cols] with bits 2, 4 or 8; `out` [.., cols].
 * - `outDtype` f32, f16 or bf16; default the dtype of the scales.
 *
 * Errors: `InvalidArgument` for shapes, dtypes and attributes; when the work runs, for an id out of range, with the
 * first index. `UnsupportedDtype` for 3, 5, 6 bits and modes other than affine.
 * Source: MLX affine quantization, `mlx.nn.QuantizedEmbedding`.
 */
export const quantizedEmbedding: QuantizedEmbedding = defineOp({
  name: "quantizedEmbedding",
  summary: "rows ids of scale·q + bias",
  inputs: {
    ids: { dtype: ["u32", "i32"], shape: "...", doc: "rows of the table to take, each from 0 to rows − 1" },
    q: QUANTIZED,
  },
  outputs: {
    out: {
      dtype: ({ options, tensors }) => (options.outDtype ?? tensors.scales?.dtype) as Dtype,
      shape: { text: "..., cols", of: (c) => [...c.lead, (quantizedDims(c, BITS) as QuantizedDims).cols] },
      doc: "the rows taken",
    },
  },
  params: { outDtype: { kind: "choice", values: FLOATS, optional: true, doc: "dtype of out; default that of scales" } },
  relations(c) {
    const dims = quantizedDims(c, BITS);
    if (dims && dims.stack.length > 0) c.fail("weight", "have 2 dimensions", c.tensors.weight?.shape);
  },
  encode({ encoder, op, inputs: { ids, q }, outputs: { out } }) {
    encoder.dispatch(quantizedEmbeddingKernel, {
      op,
      variant: `${q.scales.dtype}_${out.dtype}_b${q.bits}`,
      buffers: { ids, weight: q.weight, scales: q.scales, biases: q.biases, out },
      params: {
        rows: q.weight.shape[0] as number,
        cols: out.lastDim,
        groupSize: q.groupSize,
        signedIds: ids.dtype === "i32" ? 1 : 0,
      },
      sizes: { rows: ids.size, words: q.weight.lastDim },
    });
  },
});
