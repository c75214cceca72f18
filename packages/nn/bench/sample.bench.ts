import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { sample } from "../src/index.ts";

const random = new Random(8);
const DIM = 151936;

const sampleCase = (name: string, spread: number, options: { topK?: number; topP?: number }): BenchCase => ({
  name: `[1, ${DIM}] f32, ${name} of logits ×${spread}`,
  bytes: DIM * 4,
  flops: DIM,
  setup(device) {
    const logits = device.tensor("f32", [1, DIM], random.normals(DIM, spread));
    const step = device.tensor("u32", [1]);
    const ids = device.tensor("u32", [1]);
    return {
      encode: (encoder) => void sample(encoder, { logits, step, ids }, { temperature: 0.8, seed: 1, ...options }),
    };
  },
});

export default defineBench({
  op: "sample",
  cases: [
    sampleCase("all", 3, {}),
    sampleCase("top 40", 3, { topK: 40 }),
    sampleCase("top 40, share 0.95", 3, { topK: 40, topP: 0.95 }),
    sampleCase("share 0.95", 3, { topP: 0.95 }),
    sampleCase("share 0.95", 0.5, { topP: 0.95 }),
  ],
});
