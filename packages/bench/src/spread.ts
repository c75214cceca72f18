/** Some measurements of one thing. */
export interface Spread {
  median: number;
  least: number;
  most: number;
  samples: number;
}

export function spreadOf(values: readonly number[]): Spread {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (i: number) => sorted[i] as number;
  const middle = sorted.length >> 1;
  return {
    median: sorted.length % 2 ? at(middle) : (at(middle - 1) + at(middle)) / 2,
    least: at(0),
    most: at(sorted.length - 1),
    samples: sorted.length,
  };
}
