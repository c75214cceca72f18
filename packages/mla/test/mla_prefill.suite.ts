import type { Case, Suite } from "@mlxts/core/testing";
import { mlaPrefill } from "../src/index.ts";
import { layerCases, layerReference, layerSuite, makeCase, type Shape, scoreCases } from "./mla_decode.suite.ts";
import { comb } from "./trees.ts";

const WIDTHS = { nope: 16, rope: 16, v: 16, R: 64 };
const materialized = (shape: Shape, options: Case["options"] = {}) =>
  makeCase(shape, { form: "materialized", ...options });
/** Room for 64 rows of `heads` heads. */
const blocks = ({ N = 1, nope, v }: Shape, heads: number) => ({ scratchBytes: 64 * heads * (nope + v) * 4 * N });
const bf16 = (test: Case): Case => ({ ...test, dtypes: ["bf16"] });
const inBlocks = (shape: Shape, heads = 1) => materialized(shape, blocks(shape, heads));

export const suite: Suite = {
  op: mlaPrefill,
  ...layerSuite,
  cases: [
    // Quantized weights, and those that MLX stores.
    ...([4, 8] as const).flatMap((bits) => [
      materialized({ L: 9, H: 3, nope: 64, rope: 32, v: 48, R: 128, weights: { bits, groupSize: 64 } }),
      materialized({ L: 70, H: 2, ...WIDTHS, weights: { bits, groupSize: 32, scales: "f32" } }),
      materialized({ L: 9, H: 2, ...WIDTHS, weights: { bits, groupSize: 32, scales: "bf16" } }),
      materialized({
        ...{ L: 9, H: 3, nope: 96, rope: 32, v: 48, R: 128 },
        parts: { embedQ: { bits, groupSize: 32 }, unembedOut: { bits, groupSize: 128 } },
      }),
      inBlocks({
        ...{ L: 140, H: 2, ...WIDTHS, nope: 32 },
        parts: { embedQ: { bits, groupSize: 32, scales: "f16" }, unembedOut: { bits, groupSize: 64 } },
      }),
    ]),
    materialized({ L: 9, H: 3, nope: 10, rope: 6, v: 14, R: 40, parts: { embedQ: "act", unembedOut: "act" } }),
    inBlocks({ N: 2, L: 70, H: 3, ...WIDTHS, parts: { embedQ: "act", unembedOut: "act" } }),
    // Trees, extreme scores.
    ...layerCases(makeCase),
    makeCase({ L: 33, H: 2, ...WIDTHS, tree: comb(33) }, { form: "folded" }),
    ...[3, 20, 70].flatMap((L) => scoreCases(L, materialized)),
    // Heads.
    ...[1, 16, 128].map((H) => materialized({ L: 3, H, ...WIDTHS })),
    inBlocks({ L: 9, H: 128, nope: 6, rope: 4, v: 5, R: 12 }, 9), // 48 of them at a time
    // Widths.
    materialized({ L: 3, H: 16, nope: 128, rope: 64, v: 128, R: 512, more: 64 }),
    materialized({ L: 6, H: 8, nope: 64, rope: 32, v: 64, R: 128, more: 32 }),
    materialized({ L: 3, H: 1, nope: 192, rope: 64, v: 256, R: 512 }),
    materialized({ N: 2, L: 9, H: 3, nope: 10, rope: 6, v: 14, R: 40, more: 5 }),
    materialized({ L: 40, H: 2, nope: 7, rope: 2, v: 5, R: 20 }),
    materialized({ L: 20, H: 1, nope: 150, rope: 70, v: 130, R: 33 }),
    materialized({ L: 1, H: 2, nope: 1, rope: 2, v: 1, R: 1 }),
    // Tokens.
    ...[1, 2, 5, 6, 7, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200].map((L) => materialized({ L, H: 2, ...WIDTHS })),
    materialized({ L: 260, H: 1, ...WIDTHS }),
    materialized({ N: 3, L: 70, H: 3, ...WIDTHS }),
    materialized({ N: 2, L: 70, H: 3, ...WIDTHS, causal: false }),
    materialized({ N: 2, L: 5, H: 4, nope: 7, rope: 2, v: 5, R: 20, causal: false }),
    // Blocks of heads and of rows, between which sums wait.
    inBlocks({ L: 200, H: 3, ...WIDTHS }),
    inBlocks({ L: 200, H: 3, ...WIDTHS }, 2),
    inBlocks({ N: 2, L: 150, H: 3, ...WIDTHS, causal: false }),
    inBlocks({ N: 2, L: 130, H: 2, nope: 10, rope: 6, v: 135, R: 40 }),
    materialized({ L: 70, H: 5, ...WIDTHS }, { scratchBytes: 1 }),
    // Beside multiples of the keys that tiles take at a time; several of their blocks.
    ...[255, 256, 257].map((L) => bf16(materialized({ L, H: 1, ...WIDTHS }))),
    bf16(materialized({ L: 530, H: 1, ...WIDTHS }, { scratchBytes: 1 })),
    bf16(materialized({ N: 2, L: 300, H: 2, nope: 33, rope: 6, v: 47, R: 65 }, { scratchBytes: 1 })),
    bf16(materialized({ L: 300, H: 1, nope: 65, rope: 34, v: 129, R: 63, causal: false }, { scratchBytes: 1 })),
    // Rows and columns beside multiples of 16, of matrices that are contracted along either dimension.
    ...([15, 16, 17, 31, 33, 48] as const).flatMap((width) => [
      bf16(materialized({ L: width, H: 2, nope: width, rope: 6, v: width, R: 2 * width + 1 })),
      bf16(
        materialized({
          ...{ L: 49, H: 2, nope: width, rope: 6, v: width, R: 2 * width + 1 },
          parts: { embedQ: "act", unembedOut: "act" },
        }),
      ),
    ]),
    // The form that is chosen: up to 21 tokens cost less folded.
    ...[21, 22, 40].map((L) => makeCase({ L, H: 2, ...WIDTHS })),
    makeCase({ L: 40, H: 2, ...WIDTHS }, { form: "folded" }),
    makeCase({ L: 40, H: 2, nope: 16, rope: 8, v: 16, R: 16 }),
    // Dtypes of the cache, of the weight, and of the result.
    ...(["f32", "f16", "bf16"] as const).flatMap((dtype) => [
      materialized({ L: 70, H: 2, ...WIDTHS, cache: dtype }),
      materialized({ L: 70, H: 2, ...WIDTHS, weights: dtype }),
      materialized({ L: 70, H: 2, ...WIDTHS, cache: dtype, weights: "f16" }),
    ]),
    { ...materialized({ L: 9, H: 2, ...WIDTHS }, { outDtype: "f32" }), dtypes: ["f16", "bf16"] },
    { ...materialized({ L: 9, H: 2, ...WIDTHS }, { outDtype: "f16" }), dtypes: ["bf16"] },
  ],
  mutants: {
    ...layerSuite.mutants,
    "last partial block skipped": layerReference(() => ({
      skip: (t, visible) => visible > 64 && t >= visible - (visible % 64),
    })),
    "blocks after the first dropped": layerReference(() => ({ skip: (t) => t >= 64 })),
    "only the last block": layerReference(() => ({
      skip: (t, visible) => t < Math.floor((visible - 1) / 64) * 64,
    })),
  },
};
