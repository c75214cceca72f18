import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { moeKeep } from "../src/index.ts";

const random = new Random(7);

const keepCase = (tokens: number, topK: number, experts: number, keep: number): BenchCase => ({
  name: `[${tokens}, ${topK}] of ${experts}, ${keep} kept`,
  bytes: 4 * (tokens * topK + 4 * experts),
  flops: tokens * topK + experts,
  setup(device) {
    const indices = device.tensor("u32", [tokens, topK], random.integers(tokens * topK, experts));
    const ages = device.tensor("u32", [experts], random.integers(experts, 9));
    return { encode: (encoder) => void moeKeep(encoder, { indices, ages }, { keep }) };
  },
});

export default defineBench({
  op: "moeKeep",
  cases: [keepCase(1, 8, 128, 64), keepCase(1, 10, 512, 128), keepCase(512, 10, 512, 128)],
});
