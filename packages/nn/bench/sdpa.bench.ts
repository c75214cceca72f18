import { attentionPeers } from "@mlxts/bench/attention";
import { mlxPeer } from "@mlxts/bench/mlx";
import { torchPeer } from "@mlxts/bench/torch";
import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, type Peer, Random } from "@mlxts/core/testing";
import { sdpa } from "../src/index.ts";

interface Setting {
  tokens: number;
  length: number;
  heads: number;
  kvHeads: number;
  dim: number;
  dtype: FloatDtype;
  cache?: FloatDtype;
  gpuOnly?: boolean;
}

function attention({ tokens, length, heads, kvHeads, dim, dtype, cache = dtype, gpuOnly = false }: Setting): BenchCase {
  const pairs = tokens * length - (tokens * (tokens - 1)) / 2;
  // Several caches, as there are several layers.
  const copies = tokens === 1 ? 4 : 1;
  return {
    name: `${tokens} of ${length}, ${heads}/${kvHeads} heads of ${dim}, ${dtype}, cache ${cache}`,
    bytes: 2 * length * kvHeads * dim * DTYPES[cache].bytesPerElement,
    flops: 4 * pairs * heads * dim,
    peers: dtype === cache && dtype !== "f16" ? peers({ tokens, length, heads, kvHeads, dim, dtype }, copies) : [],
    gpuPeers: cache === dtype ? gpuPeers({ tokens, length, heads, kvHeads, dim, dtype }) : [],
    gpuOnly,
    setup(device) {
      const random = new Random(3);
      const q = device.tensor(dtype, [1, tokens, heads, dim], random.normals(tokens * heads * dim));
      const few = random.normals(8191);
      const rows = (shift: number) => {
        const data = new Float32Array(kvHeads * length * dim);
        for (let i = 0; i < data.length; i++) data[i] = few[(i + shift) % few.length] as number;
        return device.tensor(cache, [1, kvHeads, length, dim], data);
      };
      const layers = Array.from({ length: copies }, (_, i) => ({ kCache: rows(2 * i), vCache: rows(2 * i + 1) }));
      const lengths = device.tensor("i32", [1], [length]);
      const out = device.tensor(dtype, [1, tokens, heads, dim]);
      let next = 0;
      return {
        encode(encoder) {
          const layer = layers[next++ % copies] as (typeof layers)[number];
          sdpa(encoder, { q, ...layer, lengths, out });
        },
      };
    },
  };
}

/** One token's heads that share keys are queries of one head; with as many tokens as keys, each head has keys of its own. */
function peers({ tokens, length, heads, kvHeads, dim, dtype }: Setting, copies: number): Peer[] {
  if (tokens !== 1 && tokens !== length) return [];
  const causal = tokens > 1;
  const split = causal ? { queries: tokens, heads } : { queries: heads / kvHeads, heads: kvHeads };
  return attentionPeers({ ...split, keys: length, dim, valueDim: dim, causal, copies }, dtype as "f32" | "bf16");
}

/** torch's causal form has as many queries as keys. */
function gpuPeers({ tokens, length, heads, kvHeads, dim, dtype }: Setting): Peer[] {
  const mlx = mlxPeer({ kind: "attention", queries: tokens, keys: length, heads, kvHeads, dim, valueDim: dim, dtype });
  return tokens === length ? [torchPeer({ kind: "attention", tokens, heads, kvHeads, dim, dtype }), mlx] : [mlx];
}

const wide = { heads: 32, kvHeads: 8, dim: 128 };
/** Qwen3.5-0.8B. */
const small = { heads: 8, kvHeads: 2, dim: 256 };

export default defineBench({
  op: "sdpa",
  cases: [
    attention({ tokens: 1, length: 4096, ...wide, dtype: "bf16" }),
    attention({ tokens: 1, length: 4096, ...wide, dtype: "f16" }),
    attention({ tokens: 1, length: 4096, ...wide, dtype: "f32", cache: "bf16" }),
    attention({ tokens: 1, length: 4096, ...wide, dtype: "f32" }),
    ...[512, 4096, 16384].map((length) => attention({ tokens: 1, length, ...small, dtype: "bf16" })),
    attention({ tokens: 1, length: 16384, ...small, dtype: "f32" }),
    attention({ tokens: 1, length: 4096, heads: 16, kvHeads: 2, dim: 256, dtype: "bf16" }),
    attention({ tokens: 1, length: 128, ...wide, dtype: "bf16" }),
    attention({ tokens: 4, length: 4096, ...wide, dtype: "bf16" }),
    attention({ tokens: 512, length: 512, ...wide, dtype: "bf16" }),
    attention({ tokens: 512, length: 512, ...wide, dtype: "f16" }),
    attention({ tokens: 512, length: 512, ...wide, dtype: "f32" }),
    ...(["bf16", "f32"] as const).map((dtype) => attention({ tokens: 512, length: 512, ...small, dtype })),
    attention({ tokens: 4096, length: 4096, ...small, dtype: "bf16" }),
    attention({ tokens: 4096, length: 4096, ...small, dtype: "f32" }),
    attention({ tokens: 512, length: 4096, heads: 16, kvHeads: 2, dim: 256, dtype: "bf16" }),
    attention({ tokens: 4096, length: 4096, heads: 16, kvHeads: 16, dim: 128, dtype: "bf16", gpuOnly: true }),
  ],
});
