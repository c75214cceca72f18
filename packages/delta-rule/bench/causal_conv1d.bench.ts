import { onnxPeer } from "@mlxts/bench/onnx";
import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, type Peer, Random } from "@mlxts/core/testing";
import { causalConv1d } from "../src/index.ts";

function benchCase(T: number, C: number, dtype: FloatDtype, activation: "none" | "silu"): BenchCase {
  const W = 4;
  const { bytesPerElement: bytes } = DTYPES[dtype];
  return {
    name: `T${T} C${C} W${W} ${dtype} ${activation}`,
    bytes: bytes * (2 * T * C + C * W + 2 * (W - 1) * C),
    flops: 2 * T * C * W,
    setup(device) {
      const random = new Random(1);
      const x = device.tensor(dtype, [1, T, C], random.normals(T * C));
      const weight = device.tensor(dtype, [C, W], random.normals(C * W));
      const state = device.tensor(dtype, [1, W - 1, C]);
      const y = device.tensor(dtype, [1, T, C]);
      return {
        encode(encoder) {
          causalConv1d(encoder, { x, weight, initialState: state, y, finalState: state }, { activation });
        },
      };
    },
    ...(dtype === "f32" && activation === "silu" && { peers: [peer(T, C, W)] }),
  };
}

/** The peer has channels before time. */
function peer(T: number, C: number, W: number): Peer {
  const random = new Random(2);
  const floats = (...shape: number[]) => ({
    shape,
    data: Float32Array.from(random.normals(shape.reduce((a, b) => a * b, 1))),
  });
  return onnxPeer({
    operator: "CausalConvWithState",
    domain: "com.microsoft",
    attributes: { activation: { text: "silu" }, ndim: { int: 1 } },
    inputs: ["x", "weight", "", "state"],
    feeds: { x: floats(1, C, T), state: floats(1, C, W - 1) },
    weights: { weight: floats(C, 1, W) },
    outputs: { y: [1, C, T], newState: [1, C, W - 1] },
  });
}

export default defineBench({
  op: "causalConv1d",
  // 6144 channels are those of Qwen3.5-0.8B, 8192 those of its 4B model and of Qwen3-Next.
  cases: (["f32", "bf16"] as const).flatMap((dtype) => [
    benchCase(512, 6144, dtype, "silu"),
    benchCase(1, 6144, dtype, "silu"),
    benchCase(512, 8192, dtype, "none"),
    benchCase(512, 8192, dtype, "silu"),
    benchCase(1, 8192, dtype, "silu"),
  ]),
});
