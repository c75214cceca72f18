// The gathered product in plain f64.
import { ELSEWHERE } from "@mlxts/core";

interface Numbers {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

/**
 * `out[pair] = x[left] · W[matrix]ᵀ`, for each of the pairs; x of M rows each, W of `rows` rows, one after the other or from
 * `starts` on. Every sum is rounded by `round`. Pairs whose matrix is elsewhere keep what `out` has.
 */
export function gatherMatmulReference(
  { x, weight, starts, out: before }: { x: Numbers; weight: Numbers; starts?: Numbers; out?: Numbers },
  pairs: readonly { pair: number; left: number; matrix: number }[],
  rows: number,
  round = (sum: number) => sum,
): Float64Array {
  const [m, cols] = x.shape.slice(-2) as [number, number];
  const out = before?.data.slice() ?? new Float64Array(pairs.length * m * rows);
  for (const { pair, left, matrix } of pairs) {
    const begin = starts ? (starts.data[matrix] as number) : matrix * rows * cols;
    if (begin === ELSEWHERE) continue;
    for (let i = 0; i < m; i++)
      for (let j = 0; j < rows; j++) {
        let sum = 0;
        for (let l = 0; l < cols; l++)
          sum = round(
            sum + (x.data[(left * m + i) * cols + l] as number) * (weight.data[begin + j * cols + l] as number),
          );
        out[(pair * m + i) * rows + j] = sum;
      }
  }
  return out;
}
