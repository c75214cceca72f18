// The rule on the layers of the known models.

import { onnxPeer } from "@mlxts/bench/onnx";
import { torchPeer } from "@mlxts/bench/torch";
import { type Device, DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, type Peer, Random } from "@mlxts/core/testing";
import { gatedDeltaRule } from "../src/index.ts";

export interface Setting {
  T: number;
  Hk: number;
  H: number;
  /** Default 128. */
  K?: number;
  V?: number;
  /** A gate for each channel. */
  channels?: boolean;
  dtype: FloatDtype;
  path: "recurrent" | "chunk";
  /** Absent: what the op takes. */
  chunkLength?: 16 | 32 | 64;
  gpuOnly?: boolean;
}

export const K = 128;
export function ruleBench(setting: Setting): BenchCase {
  const { T, Hk, H, K = 128, V = 128, channels = false, dtype, path, chunkLength, gpuOnly = false } = setting;
  const { bytesPerElement: bytes } = DTYPES[dtype];
  const gates = `${dtype}${channels ? " channels" : ""}`;
  return {
    name: `T${T} Hk${Hk} H${H} K${K} V${V} ${gates} ${path}${chunkLength ? ` ${chunkLength}` : ""}`,
    bytes: bytes * T * (2 * Hk * K + 2 * H * V) + 4 * T * H * (channels ? K + 1 : 2) + 8 * H * V * K,
    // The sequential form: decay, prediction, update and output, each once over the state.
    flops: 7 * T * H * V * K,
    setup(device) {
      const tensors = ruleTensors(device, setting);
      return {
        encode(encoder) {
          gatedDeltaRule(encoder, tensors, { scale: K ** -0.5, qkNorm: "sum-eps", path, chunkLength });
        },
      };
    },
    gpuOnly,
    ...(dtype === "f32" && { peers: [rulePeer(setting)] }),
    ...(dtype === "bf16" &&
      !channels && {
        gpuPeers: [torchPeer({ kind: path, T, Hk, H, K, V, dtype })],
      }),
  };
}

/** Numbers that repeat after a while: drawing millions of them takes longer than the rule does. */
function repeated(count: number, draw: (count: number) => Float64Array): Float64Array {
  const drawn = draw(Math.min(count, 2 ** 16));
  const out = new Float64Array(count);
  for (let at = 0; at < count; at += drawn.length) out.set(drawn.subarray(0, count - at), at);
  return out;
}

/** Random inputs of a layer, and outputs; the state is updated in place. */
export function ruleTensors(
  device: Device,
  { T, Hk, H, K = 128, V = 128, channels = false, dtype }: Omit<Setting, "path" | "chunkLength" | "gpuOnly">,
) {
  const random = new Random(1);
  const normals = (count: number) => repeated(count, (n) => random.normals(n));
  const uniforms = (count: number, low: number, high: number) => repeated(count, (n) => random.uniforms(n, low, high));
  const state = device.tensor("f32", [1, H, V, K]);
  return {
    q: device.tensor(dtype, [1, T, Hk, K], normals(T * Hk * K)),
    k: device.tensor(dtype, [1, T, Hk, K], normals(T * Hk * K)),
    v: device.tensor(dtype, [1, T, H, V], normals(T * H * V)),
    g: channels
      ? device.tensor("f32", [1, T, H, K], uniforms(T * H * K, -1, 0))
      : device.tensor("f32", [1, T, H], uniforms(T * H, -1, 0)),
    beta: device.tensor("f32", [1, T, H], uniforms(T * H, 0, 1)),
    o: device.tensor(dtype, [1, T, H, V]),
    initialState: state,
    finalState: state,
  };
}

/** The same rule token by token, without the norm of q and k. */
function rulePeer({ T, Hk, H, K = 128, V = 128, channels = false }: Setting): Peer {
  const random = new Random(2);
  const floats = (shape: number[], low: number, high: number) => ({
    shape,
    data: new Float32Array(
      repeated(
        shape.reduce((a, b) => a * b, 1),
        (n) => random.uniforms(n, low, high),
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
      g: floats([1, T, channels ? H * K : H], -1, 0),
      beta: floats([1, T, H], 0, 1),
    },
    outputs: { o: [1, T, H * V], newState: [1, H, K, V] },
  });
}
