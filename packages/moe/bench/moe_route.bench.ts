import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { moeRoute } from "../src/index.ts";

const random = new Random(7);
const QWEN = { score: "softmax", topK: 10, normalize: true } as const;
const DEEPSEEK = { score: "sigmoid", topK: 8, groups: 8, topGroups: 4, normalize: true, scale: 2.5 } as const;

const routeCase = (
  tokens: number,
  experts: number,
  dtype: FloatDtype,
  options: typeof QWEN | typeof DEEPSEEK,
): BenchCase => ({
  name: `[${tokens}, ${experts}] ${options.score} ${dtype}`,
  bytes: tokens * (experts * DTYPES[dtype].bytesPerElement + options.topK * 8),
  flops: tokens * experts,
  setup(device) {
    const logits = device.tensor(dtype, [tokens, experts], random.normals(tokens * experts));
    return { encode: (encoder) => void moeRoute(encoder, { logits }, options) };
  },
});

export default defineBench({
  op: "moeRoute",
  cases: [
    routeCase(1, 512, "bf16", QWEN),
    routeCase(1, 256, "f32", DEEPSEEK),
    routeCase(512, 512, "bf16", QWEN),
    routeCase(512, 256, "f32", DEEPSEEK),
  ],
});
