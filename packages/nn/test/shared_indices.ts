// Ops of this package whose inputs decide addresses, for tests in which these change while the ops run.
import type { Attack } from "@mlxts/test-kit/flipped_indices";
import { embedding, kvCacheAppend, rope, sample, sdpa } from "../src/index.ts";

const B = 32;
const [T, H, D, CAPACITY] = [16, 2, 128, 64];
const FAR = [0x7fffffff, -0x80000000, -1];
const all = (value: number, count = B) => new Array<number>(count).fill(value);

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
