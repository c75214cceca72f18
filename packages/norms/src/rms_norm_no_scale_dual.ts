import { type CommandEncoder, defineKernel, defineOp, type Tensor } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import { EPS, ROW_LAUNCH, ROW_LAUNCH_PARAMS, ROW_SCRATCH } from "./options.ts";
import type { RmsNormNoScaleDual, RmsNormNoScaleDualPermuted } from "./signatures.ts";

/** The second output lies at [head, token]; with one head its rows are those of the first. */
export const rmsNormNoScaleDualKernel = defineKernel({
  library: normsLibrary,
  name: "rms_norm_no_scale_dual",
  variants: ["f32_f16", "f32_bf16"],
  buffers: { x: "read", out: "write", out16: "write" },
  params: { rows: "u32", dim: "u32", eps: "f32", heads: "u32" },
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
});

const X = { dtype: ["f32"] } as const;
const OUT = { dtype: ["f32"], doc: "the normalized rows" } as const;
const OUT16 = { dtype: ["bf16", "f16"] } as const;

function dispatch(
  encoder: CommandEncoder,
  op: string,
  { x, out, out16 }: { x: Tensor; out: Tensor; out16: Tensor },
  eps: number,
  heads: number,
): void {
  const dim = x.shape[x.shape.length - 1] as number;
  const rows = x.size / dim;
  encoder.dispatch(rmsNormNoScaleDualKernel, {
    op,
    variant: `f32_${out16.dtype}`,
    buffers: { x, out, out16 },
    params: { rows, dim, eps, heads },
    sizes: { rows, dim },
  });
}

/**
 * RMS norm of each row, without weights, in two dtypes: `out = x / √(Σx²/D + eps)`, `out16 = out` rounded.
 *
 * - `x`, `out` [.., D] f32; `out16` [.., D] bf16, or f16 where such a tensor is given. No output may be `x`.
 * - `eps` ≥ 0, inside the root (default 1e-6). With `eps` 0 a zero row gives NaN.
 *
 * Sums in f32, one rounding, at each store. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const rmsNormNoScaleDual: RmsNormNoScaleDual = defineOp({
  name: "rmsNormNoScaleDual",
  summary: "x / sqrt(mean(x²) + eps), in f32 and in 16 bits",
  inputs: { x: { ...X, shape: "... D", doc: "rows to normalize" } },
  outputs: {
    out: { ...OUT, shape: "... D" },
    out16: { ...OUT16, shape: "... D", doc: "the same, rounded" },
  },
  params: { eps: EPS },
  encode({ encoder, op, inputs: { x }, outputs: { out, out16 }, options: { eps } }) {
    dispatch(encoder, op, { x, out, out16 }, eps, 1);
  },
});

/**
 * RMS norm of each head vector, without weights, in two dtypes and two orders: `out = x / √(Σx²/D + eps)`,
 * `out16[head, token] = out[token, head]` rounded.
 *
 * - `x`, `out` [T, H, D] f32, T tokens of H heads; `out16` [H, T, D] bf16, or f16 where such a tensor is given. No output
 *   may be `x`.
 * - `eps` ≥ 0, inside the root (default 1e-6). With `eps` 0 a zero row gives NaN.
 *
 * Sums in f32, one rounding, at each store. Errors: `InvalidArgument` for shapes, dtypes, options and overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019.
 */
export const rmsNormNoScaleDualPermuted: RmsNormNoScaleDualPermuted = defineOp({
  name: "rmsNormNoScaleDualPermuted",
  summary: "x / sqrt(mean(x²) + eps), in f32 by token and in 16 bits by head",
  inputs: { x: { ...X, shape: "T H D", doc: "a vector for each token and head" } },
  outputs: {
    out: { ...OUT, shape: "T H D" },
    out16: { ...OUT16, shape: "H T D", doc: "the same, rounded, by head" },
  },
  params: { eps: EPS },
  encode({ encoder, op, inputs: { x }, outputs: { out, out16 }, options: { eps }, dims }) {
    dispatch(encoder, op, { x, out, out16 }, eps, dims.H as number);
  },
});
