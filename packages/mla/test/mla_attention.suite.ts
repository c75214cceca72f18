import type { Reference64, ReferenceFunction, Suite } from "@mlxts/core/testing";
import { mlaAttention } from "../src/index.ts";
import { type LatentAttention, mlaAttentionReference } from "../src/reference_attention.ts";
import { caseMaker } from "./attention_cases.ts";
import { comb, TREE, treeOf } from "./trees.ts";

const problemOf = (
  inputs: Record<string, Reference64>,
  options: { softmaxScale?: number; causal?: boolean },
): LatentAttention => {
  const { queries, qPe, latentCache, kPeCache, lengths, treeMask } = inputs as Record<string, Reference64> &
    Record<"queries" | "qPe" | "latentCache" | "kPeCache" | "lengths", Reference64>;
  const [N, L, H, R] = queries.shape as [number, number, number, number];
  const causal = options.causal ?? true;
  return {
    queries: queries.data,
    qPe: qPe.data,
    latents: latentCache.data,
    keys: kPeCache.data,
    lengths: lengths.data,
    sizes: { N, L, H, R, rope: qPe.shape[3] as number, capacity: latentCache.shape[1] as number },
    scale: options.softmaxScale as number,
    causal,
    ...(treeMask ? { tree: treeOf(treeMask) } : {}),
  };
};
const reference =
  (
    change: (problem: LatentAttention) => Partial<LatentAttention>,
    finish: (outputs: { vc: Float64Array; lse: Float64Array }, problem: LatentAttention) => void = () => {},
  ): ReferenceFunction =>
  (inputs, options) => {
    const given = problemOf(inputs, options);
    const problem = { ...given, ...change(given) };
    const outputs = mlaAttentionReference(problem);
    finish(outputs, problem);
    const { N, L, H, R } = given.sizes;
    return { vc: { shape: [N, L, H, R], data: outputs.vc }, lse: { shape: [N, L, H], data: outputs.lse } };
  };

/** Widths of whole tiles, of the dtype that they multiply. */
const makeCase = caseMaker();
const inPlace = (shape: Parameters<typeof makeCase>[0]) => makeCase({ R: 64, rope: 32, dtypes: ["bf16"], ...shape });

const LENGTHS = [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 1000];
const DEEPSEEK = { R: 512, rope: 64 };

/** What a token sees of a piece of the cache: its softmax's maximum and denominator, and the weighted mean of latents. */
interface Piece {
  maximum: number;
  denominator: number;
  vc: Float64Array;
}
const PIECE = 64;

/** The pieces of each row of queries, put together as `weigh` says: how much a piece counts, of which `top` is the highest. */
const inPieces =
  (weigh: (piece: Piece, top: number) => number): ReferenceFunction =>
  (inputs, options) => {
    const problem = problemOf(inputs, options);
    const { N, L, H, R } = problem.sizes;
    const rows: Piece[][] = Array.from({ length: N * L * H }, () => []);
    for (let begin = 0; begin < Math.max(...Array.from(problem.lengths)); begin += PIECE) {
      const maxima = new Float64Array(rows.length).fill(Number.NEGATIVE_INFINITY);
      const { vc, lse } = mlaAttentionReference({
        ...problem,
        skip: (t) => t < begin || t >= begin + PIECE,
        base(top, row) {
          maxima[row] = top;
          return top;
        },
      });
      for (const [row, pieces] of rows.entries()) {
        if (begin >= (problem.lengths[Math.floor(row / (L * H))] as number)) continue;
        const maximum = maxima[row] as number;
        const denominator = maximum === Number.NEGATIVE_INFINITY ? 0 : Math.exp((lse[row] as number) - maximum);
        pieces.push({ maximum, denominator, vc: vc.subarray(row * R, (row + 1) * R) });
      }
    }
    const out = new Float64Array(rows.length * R);
    for (const [row, pieces] of rows.entries()) {
      const top = Math.max(...pieces.map(({ maximum }) => maximum));
      const weights = pieces.map((piece) => weigh(piece, top));
      const total = weights.reduce((a, w) => a + w, 0);
      for (const [i, { vc }] of pieces.entries())
        for (let c = 0; c < R && total !== 0; c++)
          out[row * R + c] = (out[row * R + c] as number) + ((weights[i] as number) / total) * (vc[c] as number);
    }
    return { vc: { shape: [N, L, H, R], data: out } };
  };

/** The highest score of each row of queries, rows of the cache that it does not see among them; NaN is no score. */
function highestOfAll(problem: LatentAttention): number[] {
  const highest: number[] = [];
  const { tree: _, ...rest } = problem;
  const base = (top: number, row: number) => {
    highest[row] = top;
    return top;
  };
  mlaAttentionReference({ ...rest, causal: false, base });
  return highest;
}

export const suite: Suite = {
  op: mlaAttention,
  errorClass: "A",
  reference: reference(() => ({})),
  cases: [
    // Extreme and equal scores.
    ...[1, 20].flatMap((L) => [
      makeCase({
        L,
        H: 8,
        lengths: [150],
        scale: 1,
        name: "one score far above the rest",
        edit: ({ queries, latents }) => {
          latents.fill(32, 40 * 32, 41 * 32);
          for (let i = 0; i < queries.length; i++) queries[i] = 10 + (queries[i] as number) / 8;
        },
      }),
      makeCase({
        L,
        H: 8,
        lengths: [150],
        name: "all scores equal",
        edit: ({ latents, keys }) => {
          for (const all of [latents, keys]) for (let i = 0; i < all.length; i++) if (!Number.isNaN(all[i])) all[i] = 1;
        },
      }),
    ]),
    // The last row scores far above all others: earlier tokens do not see it.
    ...[3, 20].map((L) =>
      makeCase({
        L,
        H: 3,
        lengths: [L + 60],
        scale: 1,
        name: "last row far above the rest",
        edit: ({ queries, latents }) => {
          latents.fill(32, (L + 59) * 32, (L + 60) * 32);
          for (let i = 0; i < queries.length; i++) queries[i] = 10 + (queries[i] as number) / 8;
        },
      }),
    ),
    // Trees.
    makeCase({ L: 5, H: 4, lengths: [5, 69, 130], tree: TREE }),
    makeCase({ L: 5, H: 8, lengths: [64, 67], tree: TREE, causal: false }),
    ...[32, 33, 40, 70].map((L) => makeCase({ L, H: 2, lengths: [L, L + 30, 200], tree: comb(L) })),
    makeCase({ L: 3, H: 2, lengths: [3, 40], tree: [[], [1], [0, 2]], name: "nothing seen by a token" }),
    makeCase({ L: 5, H: 9, lengths: [5, 69], tree: TREE.toReversed().map((seen) => seen.map((j) => 4 - j)) }),
    // Sequences of different lengths; nothing visible.
    ...[false, true].flatMap((causal) => [
      makeCase({ H: 8, lengths: causal ? [1, 700, 130] : [0, 1, 700, 130], causal }),
      makeCase({ L: 3, H: 8, lengths: causal ? [3, 300, 130] : [0, 1, 300, 130], causal }),
      makeCase({ L: 70, H: 2, lengths: causal ? [70, 150] : [0, 1, 150], causal }),
    ]),
    makeCase({ H: 3, lengths: [0], causal: false }),
    // One token: all lengths around the blocks and pieces.
    ...LENGTHS.map((length) => makeCase({ H: 16, R: 64, rope: 16, lengths: [length] })),
    ...[4095, 4096, 4097, 8193].map((length) => makeCase({ H: 4, R: 12, rope: 4, lengths: [length] })),
    makeCase({ H: 2, R: 8, rope: 4, lengths: [33000] }),
    // Seven pieces, of 64 rows and of 128.
    makeCase({ H: 4, R: 12, rope: 4, lengths: [385, 448, 769, 896] }),
    // Pieces of many rows for many query rows.
    makeCase({ L: 8, H: 4, R: 12, rope: 4, lengths: [4097], dtypes: ["f16", "bf16"] }),
    makeCase({ L: 16, H: 64, R: 4, rope: 2, lengths: [300], dtypes: ["f16", "bf16"] }),
    makeCase({ H: 8, lengths: [300], capacity: 1500, lse: false }),
    // Widths.
    makeCase({ H: 16, ...DEEPSEEK, lengths: [200] }),
    makeCase({ H: 128, ...DEEPSEEK, lengths: [70], dtypes: ["f32", "bf16"] }),
    makeCase({ L: 2, H: 8, R: 128, rope: 32, lengths: [90] }),
    ...[1, 2, 3, 7, 15, 16, 17, 31, 33, 63, 65, 80, 127, 129, 300, 520].map((R) =>
      makeCase({ H: 7, R, rope: 4, lengths: [70, 9] }),
    ),
    makeCase({ H: 3, R: 1100, rope: 4, lengths: [70] }),
    ...[1, 2, 3, 6, 16, 30, 34, 64, 70].map((rope) => makeCase({ L: 2, H: 5, R: 16, rope, lengths: [70, 9] })),
    // Widths that many query rows take at once, and more.
    ...[500, 512, 513].map((R) => makeCase({ L: 8, H: 4, R, rope: 64, lengths: [35] })),
    makeCase({ L: 8, H: 4, R: 16, rope: 66, lengths: [35] }),
    // Many query rows, whose last ones leave room in a tile, over odd rows of a cache.
    ...(
      [
        [1, 1],
        [45, 7],
        [63, 33],
        [129, 63],
        [511, 17],
      ] as const
    ).map(([R, rope]) => makeCase({ L: 11, H: 3, R, rope, lengths: [37, 19] })),
    makeCase({ L: 8, H: 4, R: 45, rope: 7, lengths: [70] }),
    // Heads.
    ...[1, 2, 3, 4, 6, 8, 31, 32, 33, 100].map((H) => makeCase({ H, lengths: [40, 130, 3] })),
    // Few tokens and many.
    ...[2, 3, 5, 8, 16].flatMap((L) =>
      [L, L + 1, 64, 130].map((length) => makeCase({ L, H: 3, R: 48, lengths: [length] })),
    ),
    ...[65, 100, 200].map((L) => makeCase({ L, H: 2, lengths: [L, L + 77] })),
    makeCase({ L: 12, H: 5, R: 40, lengths: [68, 140] }),
    makeCase({ L: 33, H: 1, lengths: [150] }),
    makeCase({ L: 600, H: 8, R: 4, rope: 2, lengths: [601], dtypes: ["f32"] }),
    // Caches filled to the last row.
    makeCase({ H: 8, R: 96, lengths: [70, 70], capacity: 70 }),
    makeCase({ L: 70, H: 2, R: 96, lengths: [70], capacity: 70 }),
    // The cache's own dtype.
    ...(["f32", "f16", "bf16"] as const).flatMap((cache) => [
      makeCase({ H: 8, R: 72, rope: 12, lengths: [200], cache }),
      makeCase({ L: 20, H: 4, R: 72, rope: 12, lengths: [100], cache }),
    ]),
    // Beside multiples of the query rows, keys and columns that tiles take at a time, of caches that they read in place.
    ...[15, 16, 17, 47, 48, 49, 129].map((H) => inPlace({ H, lengths: [40, 3] })),
    ...[1, 15, 16, 17, 31, 32, 33, 47, 49].map((length) => inPlace({ H: 5, lengths: [length], capacity: length })),
    ...[255, 256, 257, 288, 289, 300, 512, 513].map((length) => inPlace({ L: 65, H: 32, lengths: [length] })),
    ...[2, 3, 9].flatMap((L) => [34, 64, 257].map((length) => inPlace({ L, H: 16, lengths: [length] }))),
    inPlace({ L: 3, H: 16, lengths: [0, 1, 300], causal: false }),
    inPlace({ L: 33, H: 4, lengths: [33, 63, 300], tree: comb(33) }),
    inPlace({ H: 16, lengths: [4097, 8193, 5000] }),
    inPlace({ L: 5, H: 3, lengths: [4097, 4352], tree: TREE }),
    ...[31, 33, 48, 95].flatMap((width) => [
      inPlace({ L: 2, H: 9, R: width, lengths: [65] }),
      inPlace({ L: 2, H: 9, rope: width + 1 - (width % 2), lengths: [65] }),
    ]),
    // Rows that some do not see hold anything.
    ...[Number.NaN, Number.POSITIVE_INFINITY].flatMap((value) =>
      [2, 5, 40].map((L) =>
        inPlace({
          L,
          H: 4,
          lengths: [L + 230],
          name: `last row ${value}`,
          edit: ({ latents, keys }) => {
            latents.fill(value, (L + 229) * 64, (L + 230) * 64);
            keys.fill(value, (L + 229) * 32, (L + 230) * 32);
          },
        }),
      ),
    ),
    inPlace({
      L: 40,
      H: 2,
      lengths: [300],
      tree: comb(40).map((seen) => seen.filter((j) => j % 7 !== 2)),
      name: "rows NaN that no token sees",
      edit: ({ latents, keys }) => {
        for (let row = 262; row < 300; row += 7) {
          latents.fill(Number.NaN, row * 64, (row + 1) * 64);
          keys.fill(Number.NaN, row * 32, (row + 1) * 32);
        }
      },
    }),
    // Scales.
    ...[0.01, 0.3].map((scale) => makeCase({ H: 16, R: 16, lengths: [90], scale })),
    // The last row is NaN: earlier tokens do not see it.
    ...[2, 3, 20].flatMap((L) =>
      [60, 61].map((before) =>
        makeCase({
          L,
          H: 3,
          lengths: [L + before],
          name: "last row NaN",
          edit: ({ latents, keys }) => {
            latents.fill(Number.NaN, (L + before - 1) * 32, (L + before) * 32);
            keys.fill(Number.NaN, (L + before - 1) * 8, (L + before) * 8);
          },
        }),
      ),
    ),
    makeCase({
      L: 5,
      H: 4,
      lengths: [66],
      tree: TREE.map((seen) => seen.filter((j) => j !== 2)),
      name: "a row NaN that no token sees",
      edit: ({ latents, keys }) => {
        latents.fill(Number.NaN, 63 * 32, 64 * 32);
        keys.fill(Number.NaN, 63 * 8, 64 * 8);
      },
    }),
    makeCase({
      L: 40,
      H: 2,
      lengths: [70],
      tree: comb(40).map((seen) => seen.filter((j) => j % 7 !== 2)),
      name: "rows NaN that no token sees",
      edit: ({ latents, keys }) => {
        for (let row = 32; row < 70; row += 7) {
          latents.fill(Number.NaN, row * 32, (row + 1) * 32);
          keys.fill(Number.NaN, row * 8, (row + 1) * 8);
        }
      },
    }),
  ],
  mutants: {
    "scale missing": reference(() => ({ scale: 1 })),
    "scale of the rotated part alone": reference(({ sizes }) => ({ scale: sizes.rope ** -0.5 })),
    "rotated part dropped": reference(({ qPe }) => ({ qPe: qPe.map(() => 0) })),
    "latent part dropped": reference(({ queries }) => ({ queries: queries.map(() => 0) })),
    "strict mask": reference(() => ({ visible: (length, L, i, causal) => (causal ? length - L + i : length) })),
    "mask one row late": reference(() => ({
      visible: (length, L, i, causal) => (causal ? Math.min(length, length - L + i + 2) : length),
    })),
    "not causal": reference(() => ({ causal: false })),
    "always causal": reference(() => ({ causal: true })),
    "positions of tokens from 0": reference(() => ({
      visible: (length, _, i, causal) => (causal ? Math.min(length, i + 1) : length),
    })),
    "length ignored": reference(({ sizes: { capacity } }) => ({
      visible: (_, L, i, causal) => (causal ? capacity - L + i + 1 : capacity),
    })),
    "length of the sequence before": reference(({ lengths, sizes: { L } }) => ({
      lengths: Array.from(lengths, (_, n) => Math.max(L, lengths[Math.max(0, n - 1)] as number)),
    })),
    "tree mask ignored": reference((problem) => {
      const { tree: _, ...rest } = problem;
      return { ...rest, tree: undefined };
    }),
    "tree mask transposed": reference(({ tree }) => (tree ? { tree: (i, j) => tree(j, i) } : {})),
    "tree mask of 32 tokens": reference(({ tree }) => (tree ? { tree: (i, j) => tree(i, j & 31) } : {})),
    "bits of the tree mask behind the new tokens show rows": reference(({ tree }) =>
      tree ? { visible: (length) => length + 1 } : {},
    ),
    "tree mask as well as causal": reference(({ tree }) =>
      tree ? { visible: (length, L, i) => length - L + i + 1 } : {},
    ),
    "tree mask hides earlier rows": reference(({ tree, sizes: { L } }) =>
      tree ? { skip: (t, _, length) => t < length - L } : {},
    ),
    "softmax without the maximum": reference(() => ({ base: () => 0 })),
    "maximum of rows that a token does not see": reference((problem) => {
      const highest = highestOfAll(problem);
      return { base: (top, row) => Math.max(top, highest[row] || top) };
    }),
    "pieces put together without their maxima": inPieces(({ denominator }) => denominator),
    "pieces put together without their denominators": inPieces(({ maximum }, top) =>
      maximum === Number.NEGATIVE_INFINITY ? 0 : Math.exp(maximum - top),
    ),
    "the mean of pieces": inPieces(({ denominator }) => (denominator > 0 ? 1 : 0)),
    "a piece of which nothing is visible gives NaN": inPieces(
      ({ maximum, denominator }, top) => Math.exp(maximum - maximum) * Math.exp(maximum - top) * denominator,
    ),
    "invisible rows times 0": reference(() => ({ multiplyAll: true })),
    "first row skipped": reference(() => ({ skip: (t, visible) => t === 0 && visible > 1 })),
    "last row skipped": reference(() => ({ skip: (t, visible) => t === visible - 1 && visible > 1 })),
    "last partial block skipped": reference(() => ({
      skip: (t, visible) => visible > 64 && t >= visible - (visible % 64),
    })),
    "only the last 128 rows": reference(() => ({ skip: (t, visible) => t < visible - 128 })),
    "pieces after the first dropped": reference(() => ({ skip: (t) => t >= 128 })),
    "head h reads the queries of h + 1": reference(({ queries, sizes: { H, R } }) => ({
      queries: queries.map((_, i) => {
        const head = Math.floor(i / R) % H;
        return queries[i + (((head + 1) % H) - head) * R] as number;
      }),
    })),
    "rows of the rope cache as far apart as latents": reference(({ keys, sizes: { R, rope } }) => ({
      keys: keys.map((_, i) => keys[Math.floor(i / rope) * R + (i % rope)] ?? 0),
    })),
    "tail of the latent skipped in scores": reference(({ queries, sizes: { R } }) => ({
      queries: queries.map((v, i) => (i % R >= R - (R % 4) ? 0 : v)),
    })),
    "nothing visible left unwritten": reference(
      () => ({}),
      ({ vc, lse }, { sizes: { R } }) => {
        for (let row = 0; row < lse.length; row++)
          if (lse[row] === Number.NEGATIVE_INFINITY) vc.fill(Number.NaN, row * R, (row + 1) * R);
      },
    ),
    "lse in base 2": reference(
      () => ({}),
      ({ lse }) => lse.set(lse.map((v) => v / Math.LN2)),
    ),
    "lse without the scale": reference(
      () => ({}),
      ({ lse }, { scale }) => lse.set(lse.map((v) => v / scale)),
    ),
    "lse without the maximum": reference(
      () => ({}),
      ({ lse }) => lse.set(lse.map((v) => (v > 0 ? Math.log(v) : v))),
    ),
    "output left unwritten": reference(
      () => ({}),
      ({ vc }) => vc.fill(Number.NaN),
    ),
  },
};
