// The gathered product in plain f64.
import { ELSEWHERE } from "@mlxts/core";

interface Numbers {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

export interface GatherInputs {
  x: Numbers;
  weight: Numbers;
  rhsIndices: Numbers;
  lhsIndices?: Numbers;
  starts?: Numbers;
  /** What the output has before. */
  out?: Numbers;
}

/** What pair `pair` multiplies: the matrix of x, and the first element of the matrix that its index has chosen. */
export interface GatheredPair {
  readonly pair: number;
  readonly left: number;
  readonly begin: number;
}

/** Where the element of a broadcast tensor lies that has the coordinates of number `flat` of `shape`. */
function broadcastPlace(flat: number, shape: readonly number[], own: readonly number[]): number {
  let [place, step] = [0, 1];
  for (let i = 1; i <= shape.length; i++) {
    const size = shape[shape.length - i] as number;
    const ownSize = own[own.length - i] ?? 1;
    if (ownSize > 1) place += (flat % size) * step;
    flat = Math.floor(flat / size);
    step *= ownSize;
  }
  return place;
}

/** The dimensions of the pairs, and the pairs. `order` plays no part: it names the same pairs. */
export function gatheredPairs(inputs: GatherInputs, rows: number): { lead: number[]; pairs: GatheredPair[] } {
  const { x, rhsIndices, lhsIndices, starts } = inputs;
  const cols = x.shape.at(-1) as number;
  const stack = lhsIndices?.shape ?? x.shape.slice(0, -2);
  const rank = Math.max(stack.length, rhsIndices.shape.length);
  const lead = Array.from({ length: rank }, (_, i) =>
    Math.max(stack.at(i - rank) ?? 1, rhsIndices.shape.at(i - rank) ?? 1),
  );
  const size = lead.reduce((a, b) => a * b, 1);
  const pairs = Array.from({ length: size }, (_, pair) => {
    const matrix = rhsIndices.data[broadcastPlace(pair, lead, rhsIndices.shape)] as number;
    const place = broadcastPlace(pair, lead, stack);
    const left = lhsIndices ? (lhsIndices.data[place] as number) : place;
    return { pair, left, begin: starts ? (starts.data[matrix] as number) : matrix * rows * cols };
  });
  return { lead, pairs };
}

/**
 * `out[pair] = x[left] · (the rows of a matrix from `begin` on)ᵀ`, for each of the pairs; x of M rows each. Pairs whose matrix
 * is elsewhere keep what `out` has.
 */
export function gatherMatmulReference(
  { x, weight, out: before }: Pick<GatherInputs, "x" | "weight" | "out">,
  pairs: readonly GatheredPair[],
  rows: number,
): Float64Array {
  const [m, cols] = x.shape.slice(-2) as [number, number];
  const out = before?.data.slice() ?? new Float64Array(pairs.length * m * rows);
  for (const { pair, left, begin } of pairs) {
    if (begin === ELSEWHERE) continue;
    for (let i = 0; i < m; i++)
      for (let j = 0; j < rows; j++) {
        let sum = 0;
        for (let l = 0; l < cols; l++)
          sum += (x.data[(left * m + i) * cols + l] as number) * (weight.data[begin + j * cols + l] as number);
        out[(pair * m + i) * rows + j] = sum;
      }
  }
  return out;
}
