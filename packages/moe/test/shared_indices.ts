// Ops of this package whose inputs decide addresses, for tests in which these change while the ops run.
import { ELSEWHERE } from "@mlxts/core";
import type { Attack } from "@mlxts/test-kit/flipped_indices";
import { moeCombine, moeCombineRmsNorm, moeKeep, moeOrder, moePages } from "../src/index.ts";

const PAIRS = 4096;
const [TOKENS, SLOTS, EXPERTS] = [PAIRS / 4, 4, 16];
const FAR = [0x7fffffff, -0x80000000, -1];
const counting = Array.from({ length: PAIRS }, (_, pair) => pair);

export const attacks: Record<string, Attack> = {
  moeOrder: {
    right: [counting.map(() => 0), counting.map((pair) => pair % EXPERTS), counting.map(() => EXPERTS - 1)],
    wrong: [...FAR, EXPERTS, 1000],
    encode(encoder, indices, output) {
      moeOrder(
        encoder,
        {
          indices: indices.cast("u32").reshape([TOKENS, SLOTS]),
          order: output("i32", [PAIRS]),
          offsets: output("i32", [EXPERTS + 1]),
        },
        { experts: EXPERTS },
      );
    },
  },
  moeKeep: {
    right: [counting.map(() => 0), counting.map((pair) => pair % EXPERTS), counting.map(() => EXPERTS - 1)],
    wrong: [...FAR, EXPERTS, 1000],
    encode(encoder, indices, output) {
      moeKeep(
        encoder,
        {
          indices: indices.cast("u32").reshape([TOKENS, SLOTS]),
          ages: encoder.device.tensor("u32", [EXPERTS]),
          aged: output("u32", [EXPERTS]),
          chosen: output("u32", [EXPERTS]),
          evicted: output("u32", [EXPERTS]),
        },
        { keep: 3 },
      );
    },
  },
  moePages: {
    right: [counting, counting.map(() => ELSEWHERE), counting.map((e) => (e % 2 === 0 ? PAIRS - e : ELSEWHERE))],
    wrong: [...FAR, PAIRS + 1, 2 * PAIRS],
    encode(encoder, starts, output) {
      const { device } = encoder;
      moePages(
        encoder,
        {
          stack: device.tensor("u8", [2 * PAIRS]),
          starts: starts.cast("u32"),
          chosen: device.tensor(
            "u32",
            [PAIRS],
            counting.map(() => 1),
          ),
          resident: output("u32", [PAIRS]),
        },
        { advice: "evict", elements: PAIRS },
      );
    },
  },
  moeCombine: {
    right: [counting],
    wrong: [...FAR, PAIRS, 0, PAIRS - 1],
    encode(encoder, order, output) {
      const { device } = encoder;
      moeCombine(encoder, {
        y: device.tensor("f32", [TOKENS, SLOTS, 8]),
        weights: device.tensor("f32", [TOKENS, SLOTS]),
        order,
        out: output("f32", [TOKENS, 8]),
      });
    },
  },
  moeCombineRmsNorm: {
    right: [counting],
    wrong: [...FAR, PAIRS, 0, PAIRS - 1],
    encode(encoder, order, output) {
      const { device } = encoder;
      const D = 520;
      moeCombineRmsNorm(encoder, {
        y: device.tensor("f32", [TOKENS, SLOTS, D]),
        weights: device.tensor("f32", [TOKENS, SLOTS]),
        order,
        normWeight: device.tensor("f32", [D]),
        sum: output("f32", [TOKENS, D]),
        out: output("f32", [TOKENS, D]),
      });
    },
  },
};
