import { type BenchCase, defineBench } from "@mlxts/core/testing";
import { slice } from "../src/index.ts";

const sliceCase = (rows: number, dim: number, size: number): BenchCase => ({
  name: `[${rows}, ${dim}] to ${size} columns bf16`,
  bytes: 4 * rows * size,
  flops: 0,
  setup(device) {
    const x = device.tensor("bf16", [rows, dim]);
    const out = device.tensor("bf16", [rows, size]);
    return { encode: (encoder) => void slice(encoder, { x, out }, { begin: dim - size, size }) };
  },
});

export default defineBench({
  op: "slice",
  cases: [sliceCase(1, 8192, 4096), sliceCase(512, 8192, 4096), sliceCase(16384, 256, 64)],
});
