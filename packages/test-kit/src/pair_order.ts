// The pairs of a gathered product in the order of the matrices that they choose, for tests and benchmarks without an op
// that gives it.

/** What `moeOrder` gives for the matrix, of so many, that each pair has chosen. */
export function pairOrder(chosen: readonly number[], matrices: number): { order: number[]; offsets: number[] } {
  const order = chosen.map((_, pair) => pair).sort((a, b) => (chosen[a] as number) - (chosen[b] as number) || a - b);
  const offsets = Array.from({ length: matrices + 1 }, (_, e) => chosen.filter((matrix) => matrix < e).length);
  return { order, offsets };
}
