import { attentionPeers } from "@mlxts/bench/attention";
import { mlxPeer } from "@mlxts/bench/mlx";
import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { mlaAttention } from "../src/index.ts";

const [R, ROPE] = [512, 64];

function attention(tokens: number, length: number, heads: number, dtype: FloatDtype): BenchCase {
  const pairs = tokens * length - (tokens * (tokens - 1)) / 2;
  return {
    name: `${tokens} of ${length}, ${heads} heads, ${dtype}`,
    bytes: length * (R + ROPE) * DTYPES[dtype].bytesPerElement,
    flops: 2 * pairs * heads * (2 * R + ROPE),
    // One token's heads are queries that share one head of keys; values have no rotated columns.
    ...(tokens === 1 && {
      gpuPeers: [
        mlxPeer({ kind: "attention", queries: 1, keys: length, heads, kvHeads: 1, dim: R + ROPE, valueDim: R, dtype }),
      ],
      peers: attentionPeers(
        { queries: heads, keys: length, heads: 1, dim: R + ROPE, valueDim: R, causal: false, copies: 1 },
        dtype as "f32" | "bf16",
      ),
    }),
    setup(device) {
      const random = new Random(3);
      const few = random.normals(8191);
      const rows = (columns: number) =>
        device.tensor(
          dtype,
          [1, length, columns],
          Float32Array.from({ length: length * columns }, (_, i) => few[i % few.length] as number),
        );
      const tensors = {
        queries: device.tensor("f32", [1, tokens, heads, R], random.normals(tokens * heads * R)),
        qPe: device.tensor(dtype, [1, tokens, heads, ROPE], random.normals(tokens * heads * ROPE)),
        latentCache: rows(R),
        kPeCache: rows(ROPE),
        lengths: device.tensor("i32", [1], [length]),
        vc: device.tensor("f32", [1, tokens, heads, R]),
      };
      return { encode: (encoder) => void mlaAttention(encoder, tensors, { softmaxScale: 0.04 }) };
    },
  };
}

export default defineBench({
  op: "mlaAttention",
  cases: [
    attention(1, 4096, 16, "bf16"),
    attention(1, 4096, 128, "bf16"),
    attention(1, 4096, 16, "f32"),
    attention(4, 4096, 16, "bf16"),
    attention(128, 1024, 16, "bf16"),
  ],
});
