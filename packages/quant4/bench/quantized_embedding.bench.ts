import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { quantizedEmbedding } from "../src/index.ts";
import { quantizedZeros } from "./zeros.ts";

const [ROWS, COLS] = [32768, 2048];

const embeddingCase = (tokens: number): BenchCase => ({
  name: `${tokens} of [${ROWS}, ${COLS}], 4 bits to bf16`,
  bytes: tokens * COLS * (0.5 + 4 / 64 + 2),
  flops: 2 * tokens * COLS,
  setup(device) {
    const q = quantizedZeros(device, ROWS, COLS, 4);
    const ids = device.tensor("u32", [tokens], new Random(1).integers(tokens, ROWS));
    const out = device.tensor("bf16", [tokens, COLS]);
    return { encode: (encoder) => void quantizedEmbedding(encoder, { ids, q, out }, { outDtype: "bf16" }) };
  },
});

export default defineBench({ op: "quantizedEmbedding", cases: [embeddingCase(1), embeddingCase(512)] });
