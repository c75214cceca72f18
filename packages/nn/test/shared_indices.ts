// Ops of this package whose inputs decide addresses, for tests in which these change while the ops run.
import { ELSEWHERE } from "@mlxts/core";
import type { Attack } from "@mlxts/test-kit/flipped_indices";
import { pairOrder } from "@mlxts/test-kit/gathered_pairs";
import { embedding, gatherMatmul, gatherMatmulSwiglu, kvCacheAppend, rope, sample, sdpa } from "../src/index.ts";

const B = 32;
const [T, H, D, CAPACITY] = [16, 2, 128, 64];
const FAR = [0x7fffffff, -0x80000000, -1];
const all = (value: number, count = B) => new Array<number>(count).fill(value);

// More experts than pairs: a wrong offset is also found as a wrong pair at any of these.
const [EXPERTS, ROWS] = [40, 70];
/** Experts of pairs; the pairs by expert; where each expert's begin; where the experts begin in a weight. */
const choices = Array.from({ length: B }, (_, pair) => (pair * 3) % EXPERTS);
const { order: byExpert, offsets: ends } = pairOrder(choices, EXPERTS);
const begins = Array.from({ length: EXPERTS }, (_, e) => e * 3);
const span = ROWS * D + 3 * EXPERTS;

/** A gathered product, one of whose index tensors changes; m rows of x to a matrix. */
const gathered = (
  changed: "rhsIndices" | "lhsIndices" | "order" | "offsets" | "starts",
  right: readonly number[][],
  wrong: readonly number[],
  m = 1,
): Attack => ({
  right,
  wrong,
  encode(encoder, indices, output) {
    const { device } = encoder;
    const tensor = (name: typeof changed, numbers: readonly number[], dtype: "i32" | "u32" = "i32") =>
      name === changed ? indices.cast(dtype) : device.tensor(dtype, [numbers.length], numbers);
    const ordered = changed === "order" || changed === "offsets";
    gatherMatmul(
      encoder,
      {
        x: device.tensor("f32", [B, m, D]),
        weight: device.tensor("f32", [span]),
        rhsIndices: tensor("rhsIndices", choices),
        lhsIndices: tensor("lhsIndices", byExpert),
        starts: tensor("starts", begins, "u32"),
        ...(ordered ? { order: tensor("order", byExpert), offsets: tensor("offsets", ends) } : {}),
        out: output("f32", [B, m, ROWS]),
      },
      { rows: ROWS },
    );
  },
});

/** The gated unit of two such products. */
const gatedProducts = (
  changed: "rhsIndices" | "lhsIndices" | "order" | "offsets" | "gateStarts" | "upStarts",
  right: readonly number[][],
  wrong: readonly number[],
  m = 1,
): Attack => ({
  right,
  wrong,
  encode(encoder, indices, output) {
    const { device } = encoder;
    const tensor = (name: typeof changed, numbers: readonly number[], dtype: "i32" | "u32" = "i32") =>
      name === changed ? indices.cast(dtype) : device.tensor(dtype, [numbers.length], numbers);
    const ordered = changed === "order" || changed === "offsets";
    const stack = () => device.tensor("f32", [span]);
    gatherMatmulSwiglu(
      encoder,
      {
        x: device.tensor("f32", [B, m, D]),
        gate: stack(),
        up: stack(),
        gateStarts: tensor("gateStarts", begins, "u32"),
        upStarts: tensor("upStarts", begins, "u32"),
        rhsIndices: tensor("rhsIndices", choices),
        lhsIndices: tensor("lhsIndices", byExpert),
        ...(ordered ? { order: tensor("order", byExpert), offsets: tensor("offsets", ends) } : {}),
        out: output("f32", [B, m, ROWS]),
      },
      { rows: ROWS },
    );
  },
});

const attention = (tokens: number): Attack => ({
  right: [all(tokens), all(CAPACITY), all(tokens + 11)],
  wrong: [...FAR, CAPACITY + 1, 4 * CAPACITY, 1000, 0],
  encode(encoder, lengths, output) {
    const { device } = encoder;
    const cache = () => device.tensor("f32", [B, H, CAPACITY, D]);
    const q = device.tensor("f32", [B, tokens, 2 * H, D]);
    sdpa(encoder, { q, kCache: cache(), vCache: cache(), lengths, out: output("f32", [B, tokens, 2 * H, D]) });
  },
});

export const attacks: Record<string, Attack> = {
  kvCacheAppend: {
    right: [all(0), all(CAPACITY - T), all(5)],
    wrong: [...FAR, CAPACITY, CAPACITY + 1000, -100, 2 * CAPACITY],
    encode(encoder, start, output) {
      const { device } = encoder;
      const k = device.tensor("f32", [B, T, H, D]);
      const cache = () => output("f32", [B, H, CAPACITY, D]);
      kvCacheAppend(encoder, { k, v: k, start, kCache: cache(), vCache: cache() });
    },
  },
  embedding: {
    right: [all(0), all(99)],
    wrong: [...FAR, 100, 5000],
    encode(encoder, ids, output) {
      embedding(encoder, { ids, weight: encoder.device.tensor("f32", [100, D]), out: output("f32", [B, D]) });
    },
  },
  "gatherMatmul, experts": gathered("rhsIndices", [choices, all(EXPERTS - 1)], [...FAR, EXPERTS, 1000]),
  "gatherMatmul, experts of many rows": gathered("rhsIndices", [choices, all(0)], [...FAR, EXPERTS, 1000], 20),
  "gatherMatmul, rows of x": gathered("lhsIndices", [all(0), all(B - 1)], [...FAR, B, 5000]),
  "gatherMatmul, order": gathered("order", [byExpert], [...FAR, B, 5000, 0]),
  "gatherMatmul, offsets": gathered("offsets", [ends], [...FAR, B + 1, 5000, 3]),
  "gatherMatmul, starts": gathered("starts", [begins, all(0, EXPERTS)], [...FAR, span, span - 1]),
  "gatherMatmul, starts elsewhere": gathered("starts", [begins, all(ELSEWHERE, EXPERTS)], [ELSEWHERE - 1, span]),
  "gatherMatmul, starts elsewhere of many rows": gathered("starts", [begins, all(ELSEWHERE, EXPERTS)], [span], 20),
  "gatherMatmulSwiglu, experts": gatedProducts("rhsIndices", [choices, all(EXPERTS - 1)], [...FAR, EXPERTS, 1000]),
  "gatherMatmulSwiglu, rows of x": gatedProducts("lhsIndices", [all(0), all(B - 1)], [...FAR, B, 5000], 3),
  "gatherMatmulSwiglu, starts of gate": gatedProducts(
    "gateStarts",
    [begins, all(0, EXPERTS)],
    [...FAR, span, span - 1],
  ),
  "gatherMatmulSwiglu, starts of up": gatedProducts("upStarts", [begins, all(ELSEWHERE, EXPERTS)], [...FAR, span]),
  "gatherMatmulSwiglu, order": gatedProducts("order", [byExpert], [...FAR, B, 5000, 0]),
  "sdpa, few queries": attention(1),
  "sdpa, many queries": attention(48),
  rope: {
    right: [all(0), all(7), [...FAR, ...all(9, B - FAR.length)]],
    wrong: [],
    encode(encoder, positions, output) {
      const { device } = encoder;
      const inverseFrequencies = device.tensor("f32", [D / 2], new Array(D / 2).fill(0.3));
      rope(encoder, {
        x: device.tensor("f32", [1, B, H, D]),
        positions: positions.reshape([1, B]),
        inverseFrequencies,
        out: output("f32", [1, B, H, D]),
      });
    },
  },
  sample: {
    right: [[0], [7], [-1]],
    wrong: [],
    encode(encoder, step, output) {
      const logits = encoder.device.tensor("f32", [4, 300]);
      sample(
        encoder,
        { logits, step: step.cast("u32"), ids: output("u32", [4]) },
        { temperature: 0.8, topK: 5, topP: 0.9, seed: 3 },
      );
    },
  },
};
