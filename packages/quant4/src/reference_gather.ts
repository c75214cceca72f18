// Gathered products in plain f64: which matrices each pair has. `order` plays no part: it names the same pairs.

interface Numbers {
  readonly shape: readonly number[];
  readonly data: Float64Array;
}

/** Pair number `pair` multiplies matrix `left` of x with matrix `matrix` of the stack. */
export interface GatheredPair {
  readonly pair: number;
  readonly left: number;
  readonly matrix: number;
}

/** Where the element of a broadcast tensor lies that has the coordinates of number `flat` of `shape`. */
function broadcastPlace(flat: number, shape: readonly number[], own: readonly number[]): number {
  let [place, step, rest] = [0, 1, flat];
  for (let i = 1; i <= shape.length; i++) {
    const size = shape[shape.length - i] as number;
    const ownSize = own[own.length - i] ?? 1;
    if (ownSize > 1) place += (rest % size) * step;
    rest = Math.floor(rest / size);
    step *= ownSize;
  }
  return place;
}

/** The dimensions of the pairs, and the pairs. */
export function gatheredPairs(
  stack: readonly number[],
  rhsIndices: Numbers,
  lhsIndices?: Numbers,
): { lead: number[]; pairs: GatheredPair[] } {
  const left = lhsIndices?.shape ?? stack;
  const rank = Math.max(left.length, rhsIndices.shape.length);
  const lead = Array.from({ length: rank }, (_, i) =>
    Math.max(left.at(i - rank) ?? 1, rhsIndices.shape.at(i - rank) ?? 1),
  );
  const pairs = Array.from({ length: lead.reduce((a, b) => a * b, 1) }, (_, pair) => {
    const place = broadcastPlace(pair, lead, left);
    return {
      pair,
      left: lhsIndices ? (lhsIndices.data[place] as number) : place,
      matrix: rhsIndices.data[broadcastPlace(pair, lead, rhsIndices.shape)] as number,
    };
  });
  return { lead, pairs };
}
