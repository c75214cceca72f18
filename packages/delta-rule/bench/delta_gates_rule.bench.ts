import type { FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { deltaGates, deltaGatesRule, gatedDeltaRule } from "../src/index.ts";
import { K, ruleBench, ruleTensors } from "./rule.ts";

/** The fused op, or the two that it stands for. */
function benchCase(T: number, H: number, dtype: FloatDtype, fused: boolean): BenchCase {
  const Hk = 16;
  const setting = { T, Hk, H, dtype };
  const { bytes, ...bench } = ruleBench({ ...setting, path: "recurrent" });
  const [projected, gates] = [2 * T * H * (dtype === "f32" ? 4 : 2), 2 * T * H * 4];
  return {
    ...bench,
    name: `T${T} Hk${Hk} H${H} K128 V128 ${dtype}${fused ? "" : ": deltaGates, gatedDeltaRule"}`,
    // The rule's own bytes have g and beta once.
    bytes: (bytes ?? 0) + projected + (fused ? -gates : gates),
    setup(device) {
      const random = new Random(3);
      const { g, beta, ...tensors } = ruleTensors(device, setting);
      const a = device.tensor(dtype, g.shape, random.normals(g.size));
      const b = device.tensor(dtype, g.shape, random.normals(g.size));
      const aLog = device.tensor("f32", [H], random.uniforms(H, 0, 2.8));
      const dtBias = device.tensor("f32", [H], random.normals(H));
      const options = { scale: K ** -0.5, qkNorm: "sum-eps", path: "recurrent" } as const;
      return {
        encode(encoder) {
          if (fused) return void deltaGatesRule(encoder, { ...tensors, a, b, aLog, dtBias }, options);
          deltaGates(encoder, { a, b, aLog, dtBias, g, beta });
          gatedDeltaRule(encoder, { ...tensors, g, beta }, options);
        },
      };
    },
  };
}

export default defineBench({
  op: "deltaGatesRule",
  cases: (["f32", "bf16"] as const).flatMap((dtype) =>
    // 16 value heads are those of Qwen3.5-0.8B, 32 those of its 4B model and of Qwen3-Next.
    [
      [1, 16],
      [1, 32],
      [8, 32],
    ].flatMap(([T, H]) => [true, false].map((fused) => benchCase(T as number, H as number, dtype, fused))),
  ),
});
