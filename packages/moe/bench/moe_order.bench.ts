import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { moeOrder } from "../src/index.ts";

const random = new Random(7);

const orderCase = (tokens: number, topK: number, experts: number): BenchCase => ({
  name: `[${tokens}, ${topK}] of ${experts}`,
  bytes: 4 * (2 * tokens * topK + experts + 1),
  flops: tokens * topK,
  setup(device) {
    const indices = device.tensor("u32", [tokens, topK], random.integers(tokens * topK, experts));
    return { encode: (encoder) => void moeOrder(encoder, { indices }, { experts }) };
  },
});

export default defineBench({
  op: "moeOrder",
  cases: [orderCase(1, 8, 128), orderCase(512, 8, 128), orderCase(4096, 10, 512)],
});
