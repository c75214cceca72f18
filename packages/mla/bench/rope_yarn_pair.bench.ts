import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { ropeYarn, ropeYarnPair, rotaryTable, yarnRotary } from "../src/index.ts";

const [NOPE, ROPE, RANK] = [128, 64, 512];
const rotary = yarnRotary({
  ropeDim: ROPE,
  headDim: NOPE + ROPE,
  base: 1e4,
  factor: 40,
  originalLength: 4096,
  mscaleAllDim: 1,
});

/** Queries of some heads and the key that all share. */
const rotation = (tokens: number, heads: number, dtype: FloatDtype, how: "joint" | "chain"): BenchCase => ({
  name: `${tokens} tokens, ${heads} heads and a key, ${dtype}${how === "chain" ? ", as two ops" : ""}`,
  bytes: 2 * tokens * (heads + 1) * ROPE * DTYPES[dtype].bytesPerElement + tokens * ROPE * 4,
  flops: 3 * tokens * (heads + 1) * ROPE,
  setup(device) {
    const random = new Random(4);
    const make = (...shape: number[]) => device.tensor(dtype, shape, random.normals(shape.reduce((a, b) => a * b, 1)));
    const [q, k] = [make(1, tokens, heads, NOPE + ROPE), make(1, tokens, 1, RANK + ROPE)];
    const [outQ, outK] = [make(1, tokens, heads, ROPE), make(1, tokens, 1, ROPE)];
    const shared = {
      positions: device.tensor("i32", [1], [1000]),
      table: device.tensor("f32", [2048, 2, ROPE / 2], rotaryTable(rotary, 2048)),
    };
    return {
      encode: (encoder) => {
        if (how === "joint") {
          ropeYarnPair(encoder, { q, k, ...shared, outQ, outK }, { firstQ: NOPE, firstK: RANK });
          return;
        }
        ropeYarn(encoder, { x: q, ...shared, out: outQ }, { first: NOPE });
        ropeYarn(encoder, { x: k, ...shared, out: outK }, { first: RANK });
      },
    };
  },
});

export default defineBench({
  op: "ropeYarnPair",
  cases: (["joint", "chain"] as const).flatMap((how) => [
    rotation(1, 128, "bf16", how),
    rotation(512, 16, "bf16", how),
  ]),
});
