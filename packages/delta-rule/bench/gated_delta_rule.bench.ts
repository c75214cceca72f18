import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, type Peer, Random } from "@mlxts/core/testing";
import { onnxPeer } from "../../../scripts/onnx_peer.ts";
import { gatedDeltaRule } from "../src/index.ts";

interface Setting {
  T: number;
  Hk: number;
  H: number;
  dtype: FloatDtype;
  path: "recurrent" | "chunk";
  chunkLength?: 16 | 32 | 64;
}

const K = 128;
const V = 128;

function benchCase({ T, Hk, H, dtype, path, chunkLength = 64 }: Setting): BenchCase {
  const { bytes } = DTYPES[dtype];
  return {
    name: `T${T} Hk${Hk} H${H} K128 V128 ${dtype} ${path}${path === "chunk" ? ` ${chunkLength}` : ""}`,
    bytes: bytes * T * (2 * Hk * K + 2 * H * V) + 8 * T * H + 8 * H * V * K,
    // The sequential form: decay, prediction, update and output, each once over the state.
    flops: 7 * T * H * V * K,
    setup(device) {
      const random = new Random(1);
      const q = device.tensor(dtype, [1, T, Hk, K], random.normals(T * Hk * K));
      const k = device.tensor(dtype, [1, T, Hk, K], random.normals(T * Hk * K));
      const v = device.tensor(dtype, [1, T, H, V], random.normals(T * H * V));
      const g = device.tensor("f32", [1, T, H], random.uniforms(T * H, -1, 0));
      const beta = device.tensor("f32", [1, T, H], random.uniforms(T * H));
      const o = device.tensor(dtype, [1, T, H, V]);
      const state = device.tensor("f32", [1, H, V, K]);
      return {
        encode(encoder) {
          gatedDeltaRule(
            encoder,
            { q, k, v, g, beta, initialState: state, o, finalState: state },
            { scale: K ** -0.5, qkNorm: "sum-eps", path, chunkLength },
          );
        },
      };
    },
    ...(dtype === "f32" && { peer: peer(T, Hk, H) }),
  };
}

/** The same rule token by token, without the norm of q and k. */
function peer(T: number, Hk: number, H: number): Peer {
  const random = new Random(2);
  const floats = (shape: number[], low: number, high: number) => ({
    shape,
    data: Float32Array.from(
      random.uniforms(
        shape.reduce((a, b) => a * b, 1),
        low,
        high,
      ),
    ),
  });
  return onnxPeer({
    operator: "LinearAttention",
    domain: "com.microsoft",
    attributes: {
      q_num_heads: { int: Hk },
      kv_num_heads: { int: H },
      update_rule: { text: "gated_delta" },
      scale: { float: K ** -0.5 },
    },
    inputs: ["q", "k", "v", "state", "g", "beta"],
    feeds: {
      q: floats([1, T, Hk * K], -0.1, 0.1),
      k: floats([1, T, Hk * K], -0.1, 0.1),
      v: floats([1, T, H * V], -1, 1),
      state: floats([1, H, K, V], -1, 1),
      g: floats([1, T, H], -1, 0),
      beta: floats([1, T, H], 0, 1),
    },
    outputs: { o: [1, T, H * V], newState: [1, H, K, V] },
  });
}

const HEADS = [
  { Hk: 2, H: 4 },
  { Hk: 16, H: 32 },
];

export default defineBench({
  op: "gatedDeltaRule",
  cases: [
    ...(["f32", "bf16"] as const).flatMap((dtype) => [
      benchCase({ T: 1, Hk: 16, H: 32, dtype, path: "recurrent" }),
      ...([16, 32, 64] as const).map((chunkLength) =>
        benchCase({ T: 512, Hk: 16, H: 32, dtype, path: "chunk", chunkLength }),
      ),
    ]),
    // The crossover of `auto`.
    ...HEADS.flatMap((heads) =>
      (["f32", "bf16"] as const).flatMap((dtype) =>
        [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048].flatMap((T) =>
          (["recurrent", "chunk"] as const).map((path) => benchCase({ T, ...heads, dtype, path })),
        ),
      ),
    ),
  ],
});
