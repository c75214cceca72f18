import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { embedding } from "../src/index.ts";

const random = new Random(5);
const VOCABULARY = 50000;

const embeddingCase = (tokens: number, dim: number, outDtype: "f32" | "bf16"): BenchCase => ({
  name: `${tokens} of [${VOCABULARY}, ${dim}] bf16 as ${outDtype}`,
  bytes: tokens * dim * (outDtype === "f32" ? 6 : 4),
  flops: 0,
  setup(device) {
    const weight = device.tensor("bf16", [VOCABULARY, dim]);
    const ids = device.tensor("u32", [tokens], random.integers(tokens, VOCABULARY));
    const out = device.tensor(outDtype, [tokens, dim]);
    return { encode: (encoder) => void embedding(encoder, { ids, weight, out }, { outDtype }) };
  },
});

export default defineBench({
  op: "embedding",
  cases: [embeddingCase(1, 2048, "bf16"), embeddingCase(512, 2048, "bf16"), embeddingCase(512, 2048, "f32")],
});
