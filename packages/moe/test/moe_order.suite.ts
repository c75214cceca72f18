import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { moeOrder } from "../src/index.ts";
import { orderReference } from "../src/reference.ts";

const random = new Random(12);

const orderCase = (name: string, N: number, topK: number, experts: number, of?: (pair: number) => number): Case => ({
  name: `${name} [${N}, ${topK}] of ${experts}`,
  inputs: {
    indices: {
      dtype: "u32",
      shape: [N, topK],
      data: of ? Float64Array.from({ length: N * topK }, (_, pair) => of(pair)) : random.integers(N * topK, experts),
    },
  },
  options: { experts },
  dtypes: ["f32"],
});

const ordered =
  (f: (indices: Float64Array, experts: number) => { order: number[]; offsets: number[] }): ReferenceFunction =>
  ({ indices }: Record<string, Reference64>, { experts }: Record<string, number>) => {
    const { order, offsets } = f((indices as Reference64).data, experts as number);
    return {
      order: { shape: [order.length], data: Float64Array.from(order) },
      offsets: { shape: [offsets.length], data: Float64Array.from(offsets) },
    };
  };

const suite: Suite = {
  op: moeOrder,
  errorClass: "exact",
  reference: ordered(orderReference),
  cases: [
    ...[1, 2, 7, 64, 257].flatMap((N, i) => [
      orderCase("random", N, [1, 2, 6, 8, 10][i] as number, [2, 8, 60, 128, 512][i] as number),
      orderCase("random", N, [8, 10, 1, 2, 6][i] as number, [64, 512, 1, 256, 8][i] as number),
    ]),
    orderCase("all to one expert", 33, 8, 64, () => 40),
    orderCase("all to the last expert", 5, 3, 9, () => 8),
    orderCase("an expert without tokens", 50, 4, 3, (pair) => (pair % 2) * 2),
    orderCase("descending", 40, 5, 200, (pair) => 199 - pair),
    orderCase("ascending", 40, 5, 200, (pair) => pair),
    orderCase("many pairs", 3000, 3, 7),
  ],
  mutants: {
    "not stable": ordered((indices, experts) => {
      const { order, offsets } = orderReference(indices, experts);
      const reversed = offsets.slice(1).flatMap((end, e) => order.slice(offsets[e], end).reverse());
      return { order: reversed, offsets };
    }),
    "where experts end, not where they begin": ordered((indices, experts) => {
      const { order, offsets } = orderReference(indices, experts);
      return { order, offsets: [...offsets.slice(1), indices.length] };
    }),
    "an empty expert takes its neighbor's pairs": ordered((indices, experts) => {
      const used = [...new Set(indices)].sort((a, b) => a - b);
      const { order, offsets } = orderReference(
        indices.map((e) => used.indexOf(e)),
        experts,
      );
      return { order, offsets };
    }),
    "the inverse permutation": ordered((indices, experts) => {
      const { order, offsets } = orderReference(indices, experts);
      const inverse = new Array<number>(order.length);
      order.forEach((pair, row) => {
        inverse[pair] = row;
      });
      return { order: inverse, offsets };
    }),
    "pairs of the first 32 alone": ordered((indices, experts) => {
      const { order, offsets } = orderReference(indices, experts);
      return { order: order.map((pair) => pair % 32), offsets };
    }),
  },
};

export const suites: readonly Suite[] = [suite];
