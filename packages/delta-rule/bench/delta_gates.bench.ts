import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { deltaGates } from "../src/index.ts";

/** `K`: gates for channels. */
function benchCase(T: number, H: number, K?: number): BenchCase {
  const own = K === undefined ? [] : [K];
  const gates = H * (K ?? 1);
  return {
    name: `T${T} H${H}${K === undefined ? "" : ` K${K}`} bf16`,
    bytes: T * (gates + H) * 6 + (gates + H) * 4,
    flops: 20 * T * gates,
    setup(device) {
      const random = new Random(1);
      const a = device.tensor("bf16", [T, H, ...own], random.normals(T * gates));
      const b = device.tensor("bf16", [T, H], random.normals(T * H));
      const aLog = device.tensor("f32", [H], random.uniforms(H, 0, 2.8));
      const dtBias = device.tensor("f32", [H, ...own], random.normals(gates));
      const g = device.tensor("f32", [T, H, ...own]);
      const beta = device.tensor("f32", [T, H]);
      return { encode: (encoder) => void deltaGates(encoder, { a, b, aLog, dtBias, g, beta }) };
    },
  };
}

export default defineBench({
  op: "deltaGates",
  cases: [benchCase(1, 32), benchCase(512, 32), benchCase(1, 32, 128), benchCase(512, 32, 128)],
});
