import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { ropeYarn, rotaryTable, yarnRotary } from "../src/index.ts";

const [NOPE, ROPE] = [128, 64];
const rotary = yarnRotary({
  ropeDim: ROPE,
  headDim: NOPE + ROPE,
  base: 1e4,
  factor: 40,
  originalLength: 4096,
  mscaleAllDim: 1,
});

const rotation = (tokens: number, heads: number, dtype: FloatDtype): BenchCase => ({
  name: `${tokens} tokens, ${heads} heads, ${ROPE} of ${NOPE + ROPE} columns, ${dtype}`,
  bytes: 2 * tokens * heads * ROPE * DTYPES[dtype].bytesPerElement + tokens * ROPE * 4,
  flops: 3 * tokens * heads * ROPE,
  setup(device) {
    const size = tokens * heads * (NOPE + ROPE);
    const tensors = {
      x: device.tensor(dtype, [1, tokens, heads, NOPE + ROPE], new Random(4).normals(size)),
      positions: device.tensor("i32", [1], [1000]),
      table: device.tensor("f32", [2048, 2, ROPE / 2], rotaryTable(rotary, 2048)),
      out: device.tensor(dtype, [1, tokens, heads, ROPE]),
    };
    return { encode: (encoder) => void ropeYarn(encoder, tensors, { first: NOPE }) };
  },
});

export default defineBench({
  op: "ropeYarn",
  cases: [rotation(1, 128, "bf16"), rotation(512, 16, "bf16"), rotation(512, 16, "f32")],
});
