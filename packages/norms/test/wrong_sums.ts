// Sums of squares as wrong kernels would take them.
import { roundTo } from "@mlxts/core";

/** Every square and every partial sum rounded to f16. */
export function sumInF16(row: Float64Array): number {
  let sum = 0;
  for (const v of row) sum = roundTo("f16", sum + roundTo("f16", v * v));
  return sum;
}

/** Whole vectors of 32 elements: lanes beyond the row hold the next one, after the last row the first. */
export function paddedSquares(x: Float64Array, row: number, dim: number): number {
  let sum = 0;
  for (let i = 0; i < Math.ceil(dim / 32) * 32; i++) sum += (x[(row * dim + i) % x.length] as number) ** 2;
  return sum;
}
