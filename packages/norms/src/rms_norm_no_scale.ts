import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import { EPS, ROW_LAUNCH, ROW_LAUNCH_PARAMS, ROW_SCRATCH } from "./options.ts";
import type { RmsNormNoScale } from "./signatures.ts";

export const rmsNormNoScaleKernel = defineKernel({
  library: normsLibrary,
  name: "rms_norm_no_scale",
  variants: FLOATS,
  buffers: { x: "read", out: "write" },
  params: { rows: "u32", dim: "u32", eps: "f32" },
  inPlace: [["out", "x"]],
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
});

/**
 * RMS norm of each row, without weights: `out = x / √(Σx²/D + eps)`.
 *
 * - `x`, `out` [.., D] f32, f16 or bf16. `out` may be exactly `x`.
 * - `eps` ≥ 0, inside the root (default 1e-6). With `eps` 0 a zero row gives NaN.
 *
 * Sums in f32, one rounding, at the store. Errors: `InvalidArgument` for shapes, dtypes, options and partial overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const rmsNormNoScale: RmsNormNoScale = defineOp({
  name: "rmsNormNoScale",
  summary: "x / sqrt(mean(x²) + eps)",
  inputs: { x: { dtype: FLOATS, shape: "... D", doc: "rows to normalize" } },
  outputs: { out: { dtype: ["=x"], shape: "... D", inPlace: ["x"], doc: "the normalized rows" } },
  params: { eps: EPS },
  encode({ encoder, op, inputs: { x }, outputs: { out }, options: { eps }, rows, dims }) {
    const dim = dims.D as number;
    encoder.dispatch(rmsNormNoScaleKernel, {
      op,
      variant: x.dtype,
      buffers: { x, out },
      params: { rows, dim, eps },
      sizes: { rows, dim },
    });
  },
});
