import { defineKernel, defineOp, FLOATS } from "@mlxts/core";
import { normsLibrary } from "./library.ts";
import { EPS, ROUNDING, ROW_LAUNCH, ROW_LAUNCH_PARAMS, ROW_SCRATCH, WEIGHT_OFFSET, WEIGHTED } from "./options.ts";
import type { GatedRmsNorm } from "./signatures.ts";

export const gatedRmsNormKernel = defineKernel({
  library: normsLibrary,
  name: "gated_rms_norm",
  variants: WEIGHTED,
  buffers: { x: "read", z: "read", weight: "read", out: "write" },
  early: ["weight"],
  params: {
    rows: "u32",
    dim: "u32",
    eps: "f32",
    weightOffset: "f32",
    roundBeforeWeight: "u32",
    sigmoidGate: "u32",
    gateFirst: "u32",
  },
  inPlace: [["out", "x"]],
  launchParams: ROW_LAUNCH_PARAMS,
  scratch: ROW_SCRATCH,
  launch: ROW_LAUNCH,
});

/**
 * RMS norm of each head vector, gated: `out = norm(x) · (w + weightOffset) · activation(z)`, norm(x) = x / √(Σx²/V + eps).
 * With `order` `gate-then-norm` it is `norm(x · activation(z)) · (w + weightOffset)`.
 *
 * - `x`, `z`, `out` [.., V] f32, f16 or bf16; `weight` [V], dtype of x or f32. `out` may be exactly `x`.
 * - `eps` ≥ 0, inside the root (default 1e-6). With `eps` 0 a zero row gives NaN.
 * - `activation` `silu` (default; z·σ(z), Qwen) or `sigmoid` (Kimi). Below z = −173 both count as 0.
 * - `order` `norm-then-gate` (default) or `gate-then-norm`.
 * - `rounding` `once` (default): one rounding, at the store. `before-weight`: the norm is rounded to the dtype of `out`,
 *   and so is its product with a weight of that dtype (with an f32 weight that product stays f32) before the gate
 *   multiplies in f32: the bits of the Hugging Face Qwen gated norm.
 * - `weightOffset` 0 (default; all known models) or 1.
 *
 * Sums, gate and products in f32. Errors: `InvalidArgument` for shapes, dtypes, options and partial overlap.
 * Zhang and Sennrich, "Root Mean Square Layer Normalization", 2019; gated as in Yang, Kautz and Hatamizadeh, "Gated
 * Delta Networks: Improving Mamba2 with Delta Rule", 2024, gate first as in Dao and Gu, "Transformers are SSMs", 2024.
 */
export const gatedRmsNorm: GatedRmsNorm = defineOp({
  name: "gatedRmsNorm",
  summary: "x / sqrt(mean(x²) + eps) · (weight + weightOffset) · activation(z)",
  inputs: {
    x: { dtype: FLOATS, shape: "... V", doc: "rows to normalize" },
    z: { dtype: ["=x"], shape: "... V", doc: "gate of each element, before its activation" },
    weight: { dtype: ["=x", "f32"], shape: "V", doc: "factor of each column" },
  },
  outputs: { out: { dtype: ["=x"], shape: "... V", inPlace: ["x"], doc: "the normalized and gated rows" } },
  params: {
    eps: EPS,
    activation: {
      kind: "choice",
      values: ["silu", "sigmoid"],
      default: "silu",
      doc: "`silu`: z · σ(z) (Qwen); `sigmoid`: σ(z) (Kimi)",
    },
    order: {
      kind: "choice",
      values: ["norm-then-gate", "gate-then-norm"],
      default: "norm-then-gate",
      doc: "whether the gate multiplies the norm or its input",
    },
    rounding: ROUNDING,
    weightOffset: WEIGHT_OFFSET,
  },
  encode({ encoder, op, inputs: { x, z, weight }, outputs: { out }, options, rows, dims }) {
    const dim = dims.V as number;
    encoder.dispatch(gatedRmsNormKernel, {
      op,
      variant: `${x.dtype}_${weight.dtype}`,
      buffers: { x, z, weight, out },
      params: {
        rows,
        dim,
        eps: options.eps,
        weightOffset: options.weightOffset,
        roundBeforeWeight: options.rounding === "before-weight" ? 1 : 0,
        sigmoidGate: options.activation === "sigmoid" ? 1 : 0,
        gateFirst: options.order === "gate-then-norm" ? 1 : 0,
      },
      sizes: { rows, dim },
    });
  },
});
