import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { pairOrderOn } from "@mlxts/test-kit/gathered_pairs";
import { gatherMatmul } from "../src/index.ts";

const [EXPERTS, TOP_K, ROWS, COLS] = [128, 8, 768, 2048];
/** Choices of a router that a recording takes in turn: what few tokens choose would stay in cache. */
const CHOICES = 8;

/** The experts of each token, all different. */
function choose(tokens: number, random: Random): number[] {
  return Array.from({ length: tokens }, () => {
    const own = new Set<number>();
    while (own.size < TOP_K) own.add(random.below(EXPERTS));
    return [...own];
  }).flat();
}

function experts(tokens: number, dtype: FloatDtype, weight: FloatDtype, ordered: boolean): BenchCase {
  // As many matrices as so many pairs choose on average.
  const read = EXPERTS * (1 - (1 - TOP_K / EXPERTS) ** tokens);
  return {
    name: `${tokens}×${COLS} ${dtype}, ${TOP_K} of ${EXPERTS} ${ROWS}×${COLS}ᵀ ${weight}${ordered ? ", ordered" : ""}`,
    bytes: Math.round(read * ROWS * COLS * DTYPES[weight].bytesPerElement),
    flops: 2 * tokens * TOP_K * ROWS * COLS,
    setup(device) {
      const random = new Random(1);
      const few = random.normals(8191, 1 / Math.sqrt(COLS));
      const stack = device.tensor(weight, [EXPERTS, ROWS, COLS]);
      const matrix = new Float32Array(ROWS * COLS);
      for (let e = 0; e < EXPERTS; e++) {
        for (let i = 0; i < matrix.length; i++) matrix[i] = few[(i + e * 13) % few.length] as number;
        stack.view(e * matrix.length, [matrix.length]).write(matrix);
      }
      const x = device.tensor(dtype, [tokens, 1, 1, COLS], random.normals(tokens * COLS));
      const out = device.tensor(dtype, [tokens, TOP_K, 1, ROWS]);
      const choices = Array.from({ length: CHOICES }, () => {
        const chosen = choose(tokens, random);
        return {
          rhsIndices: device.tensor("u32", [tokens, TOP_K], chosen),
          ...(ordered && pairOrderOn(device, chosen, EXPERTS)),
        };
      });
      let next = 0;
      return {
        encode: (encoder) =>
          void gatherMatmul(encoder, { x, weight: stack, ...(choices[next++ % CHOICES] as (typeof choices)[0]), out }),
      };
    },
  };
}

export default defineBench({
  op: "gatherMatmul",
  cases: [
    experts(1, "bf16", "bf16", false),
    experts(1, "f32", "bf16", false),
    experts(1, "bf16", "bf16", true),
    experts(4, "bf16", "bf16", false),
    experts(4, "bf16", "bf16", true),
    experts(16, "bf16", "bf16", false),
    experts(16, "bf16", "bf16", true),
    experts(64, "bf16", "bf16", true),
    experts(512, "bf16", "bf16", true),
    experts(512, "f32", "bf16", true),
    experts(512, "f32", "f32", true),
  ],
});
