import type { CommandEncoder, Tensor } from "@mlxts/core";
import { rmsNorm } from "@mlxts/norms";
import { linear, type Matrix } from "./weights.ts";

/** What makes logits of the hidden state: the last norm and the output matrix. */
export interface Head {
  norm: Tensor;
  head: Matrix;
}

/** The logits f32 [rows.length, vocab] of some rows of the hidden state [T, hidden], in `out` where there is one. */
export function encodeHead(
  encoder: CommandEncoder,
  hidden: Tensor,
  rows: readonly number[],
  { norm: weight, head }: Head,
  options: { eps: number; weightOffset?: 0 | 1 },
  out?: Tensor,
): Tensor {
  const normed = encoder.empty(hidden.dtype, [rows.length, head.cols]);
  // One norm for each run of consecutive rows.
  for (let begin = 0, end = 1; begin < rows.length; begin = end++) {
    const first = rows[begin] as number;
    while (end < rows.length && rows[end] === first + end - begin) end++;
    const x = hidden.slice(first, first + end - begin);
    rmsNorm(encoder, { x, weight, out: normed.slice(begin, end) }, options);
  }
  return linear(encoder, normed, head, "f32", out).reshape([rows.length, head.rows]);
}
