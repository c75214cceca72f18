import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { quantize } from "../src/index.ts";

const [ROWS, COLS] = [1024, 4096];

const quantizeCase = (bits: 4 | 8, variant: "cpu" | "gpu"): BenchCase => ({
  name: `[${ROWS}, ${COLS}] bf16, ${bits} bits, ${variant}`,
  bytes: ROWS * COLS * (2 + bits / 8 + 4 / 64),
  // Extremes, one division and the rounding of each element.
  flops: 5 * ROWS * COLS,
  setup(device) {
    const w = device.tensor("bf16", [ROWS, COLS], new Random(1).normals(ROWS * COLS, 0.02));
    const weight = device.tensor("u32", [ROWS, (COLS * bits) / 32]);
    const scales = device.tensor("bf16", [ROWS, COLS / 64]);
    const biases = device.tensor("bf16", [ROWS, COLS / 64]);
    return {
      encode: (encoder) => void quantize(encoder, { w, weight, scales, biases }, { bits, groupSize: 64, variant }),
    };
  },
});

export default defineBench({
  op: "quantize",
  cases: [quantizeCase(4, "cpu"), quantizeCase(4, "gpu"), quantizeCase(8, "cpu")],
});
