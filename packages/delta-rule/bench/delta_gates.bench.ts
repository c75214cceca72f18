import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { deltaGates } from "../src/index.ts";

function benchCase(T: number, H: number): BenchCase {
  return {
    name: `T${T} H${H} bf16`,
    bytes: T * H * 12 + H * 8,
    flops: 20 * T * H,
    setup(device) {
      const random = new Random(1);
      const a = device.tensor("bf16", [T, H], random.normals(T * H));
      const b = device.tensor("bf16", [T, H], random.normals(T * H));
      const aLog = device.tensor("f32", [H], random.uniforms(H, 0, 2.8));
      const dtBias = device.tensor("f32", [H], random.normals(H));
      const g = device.tensor("f32", [T, H]);
      const beta = device.tensor("f32", [T, H]);
      return { encode: (encoder) => void deltaGates(encoder, { a, b, aLog, dtBias, g, beta }) };
    },
  };
}

export default defineBench({ op: "deltaGates", cases: [benchCase(1, 32), benchCase(512, 32)] });
