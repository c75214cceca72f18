// What a tree's mask shows to new tokens behind rows of the cache, in the ops of a whole layer: against attention with
// decompressed keys and values, which shares no code with folded queries.
import type { FloatDtype } from "@mlxts/core";
import { BARS, compare, within } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { mlaDecode, mlaPrefill } from "../src/index.ts";
import { type DecompressedAttention, decompressedReference } from "../src/reference_attention.ts";
import { layerMaker, type Sizes } from "./layers.ts";
import { comb, TREE, type Tree, treeMask } from "./trees.ts";

const makeLayer = layerMaker();

const SIZES: Sizes = { H: 3, nope: 8, rope: 4, v: 6, R: 16 };
/** Trees, and the rows before them in each sequence. */
const TREES: readonly (readonly [name: string, tree: Tree, before: readonly number[]])[] = [
  ["two branches", TREE, [0, 64, 7]],
  ["of two words", comb(33), [150, 31]],
  // More tokens than mlaPrefill folds without a mask.
  ["of many tokens", comb(40), [3, 0, 90]],
  ["whose tokens see later ones", TREE.toReversed().map((seen) => seen.map((j) => 4 - j)), [60]],
];
const DTYPES = ["f32", "f16", "bf16"] as const;

/** A layer of which some new row is NaN that no token sees, and what each token's mask shows. */
function makeTree(dtype: FloatDtype, tree: Tree, before: readonly number[], hidden?: number) {
  const L = tree.length;
  const layer = makeLayer(
    dtype,
    before.map((rows) => rows + L),
    L,
    SIZES,
  );
  const shown = tree.map((seen) => seen.filter((j) => j !== hidden));
  const { latents, keys, sizes } = layer.problem;
  if (hidden !== undefined)
    for (const [n, rows] of before.entries()) {
      const row = n * sizes.capacity + rows + hidden;
      latents.fill(Number.NaN, row * sizes.R, (row + 1) * sizes.R);
      keys.fill(Number.NaN, row * sizes.rope, (row + 1) * sizes.rope);
    }
  const problem = { ...layer.problem, tree: (i: number, j: number) => (shown[i] as readonly number[]).includes(j) };
  return { ...layer, problem, mask: treeMask(shown) };
}
const near = (dtype: FloatDtype, got: Float64Array, expected: Float64Array, factor?: number) =>
  within(compare(got, expected), BARS.A[dtype], BARS.A.spread, factor);

describe.each(DEVICES)("trees of new tokens on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());

  it.each(TREES.flatMap(([name, tree, before]) => DTYPES.map((dtype) => [name, dtype, tree, before] as const)))(
    "%s: %s",
    async (_, dtype, tree, before) => {
      for (const hidden of [undefined, tree.length - 1, 1]) {
        const { problem, tensors, options, mask } = makeTree(dtype, tree, before, hidden);
        const given = { ...tensors(device), treeMask: device.tensor(mask.dtype, mask.shape, mask.data) };
        const encoder = device.encoder();
        const outs = [
          mlaDecode(encoder, given, options).out,
          mlaDecode(encoder, given, { ...options, causal: false }).out,
          mlaPrefill(encoder, given, options).out,
          mlaPrefill(encoder, given, { ...options, form: "folded" }).out,
        ];
        await encoder.commit();
        const expected = decompressedReference(problem);
        for (const out of outs) {
          const numbers = await out.readNumbers();
          expect(near(dtype, numbers, expected), JSON.stringify(compare(numbers, expected))).toBe(true);
        }
      }
    },
  );
});

const WRONG: Record<string, (problem: DecompressedAttention) => Partial<DecompressedAttention>> = {
  "a lost mask": () => ({ tree: undefined }),
  "a lost mask of tokens that see all": () => ({ tree: undefined, causal: false }),
  "a mask that hides nothing but later tokens": () => ({ tree: (i, j) => j <= i }),
  "a mask as well as the causal one": ({ tree }) => ({ tree: (i, j) => j <= i && tree?.(i, j) === true }),
  "a transposed mask": ({ tree }) => ({ tree: (i, j) => tree?.(j, i) === true }),
  "the first word of each row alone": ({ tree }) => ({ tree: (i, j) => j < 32 && tree?.(i, j) === true }),
  "a mask for all rows of the cache": ({ tree, sizes: { L } }) => ({
    skip: (t, _, length) => t < length - L && !tree?.(0, t % L),
  }),
  "bits behind the last token": ({ tree, sizes: { L } }) => ({
    tree: (i, j) => j >= L || tree?.(i, j) === true,
    visible: (length) => length + 1,
  }),
};

describe("trees tell right implementations from wrong ones", () => {
  it.each(Object.keys(WRONG))("%s", (name) => {
    const caught = TREES.some(([, tree, before]) => {
      const { problem } = makeTree("f32", tree, before);
      const wrong = decompressedReference({ ...problem, ...WRONG[name]?.(problem) });
      return !near("f32", wrong, decompressedReference(problem), 1.2);
    });
    expect(caught).toBe(true);
  });

  it("of each tree, a lost mask", () => {
    for (const [, tree, before] of TREES) {
      const { problem } = makeTree("f32", tree, before);
      const lost = decompressedReference({ ...problem, tree: undefined });
      expect(compare(lost, decompressedReference(problem)).ratio).toBeGreaterThan(0.02);
    }
  });
});
