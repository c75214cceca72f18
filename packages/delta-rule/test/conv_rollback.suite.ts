import { Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { convRollback } from "../src/index.ts";

const random = new Random(14);

function makeCase(C: number, kernelSize: number, rejected: readonly number[], rows: number) {
  const N = rejected.length;
  return {
    name: `[${N}, ${rows}, ${C}] W ${kernelSize} rejected ${rejected.slice(0, 4)}`,
    inputs: {
      history: { dtype: "act" as const, shape: [N, rows, C], data: random.normals(N * rows * C) },
      rejected: { dtype: "i32" as const, shape: [N], data: rejected },
    },
    options: { kernelSize },
  };
}

/** Rows of the history from `first` on, by its number of rows, the kernel size and the tokens taken back. */
const rowsFrom =
  (first: (R: number, W: number, rejected: Float64Array, n: number) => number): ReferenceFunction =>
  (inputs: Record<string, Reference64>, { kernelSize = 0 }: { kernelSize?: number }) => {
    const { history, rejected } = inputs as Record<"history" | "rejected", Reference64>;
    const [N, R, C] = history.shape as [number, number, number];
    const rows = Array.from({ length: N }, (_, n) => {
      const begin = (n * R + first(R, kernelSize, rejected.data, n)) * C;
      return [...history.data.subarray(begin, begin + (kernelSize - 1) * C)];
    });
    return { finalState: { shape: [N, kernelSize - 1, C], data: Float64Array.from(rows.flat()) } };
  };
const tokens = (rejected: Float64Array, n: number) => rejected[n] as number;

export const suite: Suite = {
  op: convRollback,
  errorClass: "exact",
  reference: rowsFrom((R, W, rejected, n) => R - (W - 1) - tokens(rejected, n)),
  cases: [
    ...[1, 3, 85, 86, 300].map((C) => makeCase(C, 4, [0, 5, 1, 2, 3, 4], 8)),
    makeCase(40, 4, [0, 0], 3),
    makeCase(40, 2, [0, 1], 2),
    makeCase(20, 70, [3, 0, 7], 76),
    makeCase(40, 4, [64, 1, 63, 0], 67),
    makeCase(
      9,
      4,
      Array.from({ length: 70 }, (_, i) => i % 3),
      5,
    ),
  ],
  mutants: {
    "nothing is taken back": rowsFrom((R, W) => R - (W - 1)),
    "rows from the oldest on": rowsFrom((_, __, rejected, n) => tokens(rejected, n)),
    "one token too many": rowsFrom((R, W, rejected, n) => Math.max(0, R - W - tokens(rejected, n))),
    "as many as of the first sequence": rowsFrom((R, W, rejected) => R - (W - 1) - tokens(rejected, 0)),
  },
};
