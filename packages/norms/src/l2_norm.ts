import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import { ROW_LAUNCH, ROW_LAUNCH_PARAMS, ROW_SCRATCH } from "./options.ts";
import type { L2Norm } from "./signatures.ts";

export const l2NormKernel = defineKernel({
  library: normsLibrary,
  name: "l2_norm",
  variants: FLOATS,
  buffers: { x: "read", out: "write" },
  params: { rows: "u32", dim: "u32", eps: "f32", floor: "f32" },
  inPlace: [["out", "x"]],
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
});

/**
 * Each row divided by its Euclidean norm.
 *
 * - `x`, `out` [.., D] f32, f16 or bf16. `out` may be exactly `x`.
 * - `kind` says where `eps` ≥ 0 (default 1e-6) stands: `sum-eps` (default) `x / √(Σx² + eps)`, as Hugging Face and
 *   flash-linear-attention; `mean-eps` `x / √(Σx²/D + eps) / √D`, which is sum-eps with D·eps, as mlx-lm;
 *   `max-eps` `x / max(√Σx², eps)`, as ggml.
 *
 * Sum in f32, one rounding, at the store. A zero row gives 0, with `eps` 0 NaN. Errors: `InvalidArgument` for shapes,
 * dtypes, options and partial overlap.
 * Yang, Kautz and Hatamizadeh, "Gated Delta Networks: Improving Mamba2 with Delta Rule", 2024 (queries and keys).
 */
export const l2Norm: L2Norm = defineOp({
  name: "l2Norm",
  summary: "x / sqrt(sum(x²) + eps)",
  inputs: { x: { dtype: FLOATS, shape: "... D", doc: "rows to normalize" } },
  outputs: { out: { dtype: ["=x"], shape: "... D", inPlace: ["x"], doc: "rows of unit length" } },
  params: {
    kind: {
      kind: "choice",
      values: ["sum-eps", "mean-eps", "max-eps"],
      default: "sum-eps",
      doc: "`sum-eps`: x / √(Σx² + eps); `mean-eps`: x / √(Σx²/D + eps) / √D; `max-eps`: x / max(√Σx², eps)",
    },
    eps: { kind: "number", default: 1e-6, min: 0, doc: "keeps tiny rows from being blown up" },
  },
  encode({ encoder, op, inputs: { x }, outputs: { out }, options: { kind, eps }, rows, dims }) {
    const dim = dims.D as number;
    encoder.dispatch(l2NormKernel, {
      op,
      variant: x.dtype,
      buffers: { x, out },
      params: {
        rows,
        dim,
        eps: kind === "sum-eps" ? eps : kind === "mean-eps" ? eps * dim : 0,
        floor: kind === "max-eps" ? eps : 0,
      },
      sizes: { rows, dim },
    });
  },
});
