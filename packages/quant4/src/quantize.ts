import { defineKernel, defineOp, FLOATS, refuseBits } from "@mlxts/core";
import { quant4Library } from "./library.ts";
import { BITS, combinations, GROUP_SIZES } from "./quantized.ts";
import type { Quantize } from "./signatures.ts";

export const quantizeKernel = defineKernel({
  library: quant4Library,
  name: "quantize",
  variants: combinations(FLOATS, ["b2", "b4", "b8"]),
  buffers: { w: "read", weight: "write", scales: "write", biases: "write" },
  params: { cols: "u32", groupSize: "u32", gpu: "u32" },
  faults: {
    notFinite: ([bits, row, column], { cols }) => {
      const value = new Float32Array(Uint32Array.of(bits).buffer)[0];
      return `\`w\` must be finite, got ${value} at index ${row * cols + column} (row ${row}, column ${column})`;
    },
  },
  launch: {
    cpu: ({ rows }: { rows: number; groups: number }) => ({ threadgroups: [rows, 1, 1] }),
    // A simdgroup to a group of columns, up to eight.
    gpu: ({ rows, groups }: { rows: number; groups: number }) => ({
      threadgroups: [rows, 1, 1],
      threadsPerThreadgroup: [32 * Math.min(groups, 8), 1, 1],
    }),
  },
});

/**
 * MLX affine quantization of each group of `groupSize` columns, in f32, n = 2^bits − 1:
 *
 * ```
 * s = max((max − min)/n, 1e-7);  s = |min| > |max| ? s : −s;  edge = |min| > |max| ? min : max
 * q0 = round(edge/s);  q0 ≠ 0: s = edge/q0, b = edge;  else b = 0
 * q = clamp(round((w − b)/s), 0, n);  stored: q, s and b rounded to the dtype of w
 * ```
 *
 * - `w` [.., rows, cols] f32, f16 or bf16, cols % groupSize = 0 → `weight` u32 [.., rows, cols·bits/32], `scales` and
 *   `biases` [.., rows, cols/groupSize] in the dtype of w. Codes are packed low bits first along the columns.
 * - `bits` 2, 4 (default) or 8; `groupSize` 32, 64 (default) or 128.
 * - `variant` `cpu` (default): ties to even, as MLX on a CPU, bit for bit. `gpu`: ties away from zero and a maximum that
 *   starts at 0, as MLX's Metal and CUDA kernels, which made most published checkpoints (up to their division).
 *
 * Errors: `InvalidArgument` for shapes, dtypes and options; when the work runs, for a value of w that is not finite, with
 * the first index. `UnsupportedDtype` for 3, 5 and 6 bits. Quantizing decoded weights again changes them.
 * Source: MLX affine quantization, `mx.quantize`.
 */
export const quantize: Quantize = defineOp({
  name: "quantize",
  summary: "w → q, scale, bias with w ≈ scale·q + bias for each group of columns",
  inputs: { w: { dtype: FLOATS, shape: "... rows cols", doc: "a matrix, or a stack of them" } },
  outputs: {
    weight: {
      dtype: ["u32"],
      shape: {
        text: "..., rows, cols·bits/32",
        of: ({ lead, dims, options }) => [
          ...lead,
          dims.rows as number,
          ((dims.cols as number) * (options.bits as number)) / 32,
        ],
      },
      doc: "packed codes",
    },
    scales: {
      dtype: ["=w"],
      shape: { text: "..., rows, cols/groupSize", of: (c) => groupShape(c) },
      doc: "scale of each group",
    },
    biases: {
      dtype: ["=w"],
      shape: { text: "..., rows, cols/groupSize", of: (c) => groupShape(c) },
      doc: "bias of each group",
    },
  },
  params: {
    bits: { kind: "choice", values: [2, 4, 8], default: 4, doc: "bits of a code" },
    groupSize: { kind: "choice", values: [32, 64, 128], default: 64, doc: "columns that share a scale and a bias" },
    variant: {
      kind: "choice",
      values: ["cpu", "gpu"],
      default: "cpu",
      doc: "`cpu`: ties to even; `gpu`: ties away from zero, and the maximum of a group starts at 0",
    },
  },
  relations({ op, dims, inputs, options, fail }) {
    refuseBits(op, options.bits, BITS);
    // Values that do not exist are refused next; a message about columns would hide that.
    if (!BITS.includes(options.bits) || !GROUP_SIZES.includes(options.groupSize)) return;
    if ((dims.cols ?? 0) % options.groupSize !== 0)
      fail("w", `have a last dimension that is a multiple of ${options.groupSize} (groupSize)`, inputs.w.shape);
  },
  encode({ encoder, op, inputs: { w }, outputs, options, rows, dims }) {
    encoder.dispatch(quantizeKernel, {
      op,
      variant: `${w.dtype}_b${options.bits}`,
      buffers: { w, ...outputs },
      params: { cols: dims.cols as number, groupSize: options.groupSize, gpu: options.variant === "gpu" ? 1 : 0 },
      sizes: { rows: rows * (dims.rows as number), groups: outputs.scales.lastDim },
    });
  },
});

function groupShape({
  lead,
  dims,
  options,
}: {
  lead: readonly number[];
  dims: Readonly<Record<string, number>>;
  options: Record<string, unknown>;
}): number[] {
  return [...lead, dims.rows as number, (dims.cols as number) / (options.groupSize as number)];
}
