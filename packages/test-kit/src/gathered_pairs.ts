// Gathered products in plain numbers: which matrices each pair has, and the pairs in the order of the matrices that they
// choose, for tests and benchmarks without the op that gives it.
import type { Device, Tensor } from "@mlxts/core";

interface Numbers {
  readonly shape: readonly number[];
  readonly data: ArrayLike<number>;
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

/** The dimensions of the pairs, and the pairs. `stack`: the leading dimensions of x. */
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

/** What `moeOrder` gives for the matrix, of so many, that each pair has chosen. */
export function pairOrder(chosen: readonly number[], matrices: number): { order: number[]; offsets: number[] } {
  const order = chosen.map((_, pair) => pair).sort((a, b) => (chosen[a] as number) - (chosen[b] as number) || a - b);
  const offsets = Array.from({ length: matrices + 1 }, (_, e) => chosen.filter((matrix) => matrix < e).length);
  return { order, offsets };
}

/** The same as tensors. */
export function pairOrderOn(
  device: Device,
  chosen: readonly number[],
  matrices: number,
): { order: Tensor<"i32">; offsets: Tensor<"i32"> } {
  const { order, offsets } = pairOrder(chosen, matrices);
  return { order: device.tensor("i32", [order.length], order), offsets: device.tensor("i32", [matrices + 1], offsets) };
}
