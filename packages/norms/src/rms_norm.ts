import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import {
  NORM_OPTIONS,
  NORM_PARAMS,
  normParams,
  ROW_LAUNCH,
  ROW_LAUNCH_PARAMS,
  ROW_SCRATCH,
  WEIGHTED,
} from "./options.ts";
import type { RmsNorm } from "./signatures.ts";

export const rmsNormKernel = defineKernel({
  library: normsLibrary,
  name: "rms_norm",
  variants: WEIGHTED,
  buffers: { x: "read", weight: "read", out: "write" },
  early: ["weight"],
  params: NORM_PARAMS,
  inPlace: [["out", "x"]],
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
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
  params: NORM_OPTIONS,
  encode({ encoder, op, inputs: { x, weight }, outputs: { out }, options, rows, dims }) {
    const dim = dims.D as number;
    encoder.dispatch(rmsNormKernel, {
      op,
      variant: `${x.dtype}_${weight.dtype}`,
      buffers: { x, weight, out },
      params: normParams(rows, dim, options),
      sizes: { rows, dim },
    });
  },
});
