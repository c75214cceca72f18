import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { moeCombineRmsNorm } from "../src/index.ts";

const random = new Random(7);

/** Beside `moeCombine` with the same tensors and `rmsNorm` of its rows: a row less is read. */
const combineCase = (tokens: number, topK: number, dim: number, dtype: FloatDtype): BenchCase => ({
  name: `[${tokens}, ${topK}, ${dim}] ${dtype}`,
  bytes: tokens * (topK + 4) * dim * DTYPES[dtype].bytesPerElement,
  flops: 2 * tokens * (topK + 3) * dim,
  setup(device) {
    const normal = (shape: number[]) => device.tensor(dtype, shape, random.normals(shape.reduce((a, b) => a * b, 1)));
    const inputs = {
      y: normal([tokens, topK, dim]),
      weights: device.tensor("f32", [tokens, topK], random.uniforms(tokens * topK, 0, 1)),
      shared: normal([tokens, dim]),
      sharedGate: normal([tokens, 1]),
      residual: normal([tokens, dim]),
      normWeight: normal([dim]),
    };
    return { encode: (encoder) => void moeCombineRmsNorm(encoder, inputs) };
  },
});

export default defineBench({
  op: "moeCombineRmsNorm",
  cases: [combineCase(1, 8, 2048, "bf16"), combineCase(512, 8, 2048, "bf16"), combineCase(512, 8, 2048, "f32")],
});
