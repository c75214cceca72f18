import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import { ROUNDING, ROW_SCRATCH, rowsOnGpu, WEIGHT_OFFSET } from "./options.ts";
import type { RmsNorm } from "./signatures.ts";

export const rmsNormKernel = defineKernel({
  library: normsLibrary,
  name: "rms_norm",
  variants: ["f32_f32", "f16_f16", "bf16_bf16", "f16_f32", "bf16_f32"],
  buffers: { x: "read", weight: "read", out: "write" },
  params: { rows: "u32", dim: "u32", eps: "f32", weightOffset: "f32", roundBeforeWeight: "u32" },
  inPlace: [["out", "x"]],
  scratch: ROW_SCRATCH,
  launch: {
    cpu: ({ rows }: { rows: number; dim: number }) => ({ threadgroups: [rows, 1, 1] }),
    gpu: rowsOnGpu,
  },
});

/**
 * RMS norm of each row: `out = x / √(Σx²/D + eps) · (w + weightOffset)`.
 *
 * - `x`, `out` [.., D] f32, f16 or bf16; `weight` [D], dtype of x or f32. `out` may be exactly `x`.
 * - `eps` ≥ 0, inside the root (default 1e-6). With `eps` 0 a zero row gives NaN.
 * - `weightOffset` 0 (default) or 1: 1 for checkpoints that store w with meaning 1 + w (Hugging Face Qwen3-Next, Qwen3.5).
 * - `rounding` `once` (default): one rounding, at the store. `before-weight`: x·inv is rounded to the dtype of `out`
 *   before it meets the weight, as MLX and the Llama family do.
 *
 * Sums in f32. Errors: `InvalidArgument` for shapes, dtypes, options and partial overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const rmsNorm: RmsNorm = defineOp({
  name: "rmsNorm",
  summary: "x / sqrt(mean(x²) + eps) · (weight + weightOffset)",
  inputs: {
    x: { dtype: FLOATS, shape: "... D", doc: "rows to normalize" },
    weight: { dtype: ["=x", "f32"], shape: "D", doc: "factor of each column" },
  },
  outputs: { out: { dtype: ["=x"], shape: "... D", inPlace: ["x"], doc: "the normalized rows" } },
  params: {
    eps: { kind: "number", default: 1e-6, min: 0, doc: "added to the mean square" },
    weightOffset: WEIGHT_OFFSET,
    rounding: ROUNDING,
  },
  encode({ encoder, op, inputs: { x, weight }, outputs: { out }, options, rows, dims }) {
    const dim = dims.D as number;
    encoder.dispatch(rmsNormKernel, {
      op,
      variant: `${x.dtype}_${weight.dtype}`,
      buffers: { x, weight, out },
      params: {
        rows,
        dim,
        eps: options.eps,
        weightOffset: options.weightOffset,
        roundBeforeWeight: options.rounding === "before-weight" ? 1 : 0,
      },
      sizes: { rows, dim },
    });
  },
});
