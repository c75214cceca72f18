import { DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench } from "@mlxts/core/testing";
import { dequantize } from "../src/index.ts";
import { quantizedZeros } from "./zeros.ts";

const [ROWS, COLS] = [1024, 4096];

const dequantizeCase = (bits: 2 | 4 | 8, outDtype: FloatDtype): BenchCase => ({
  name: `[${ROWS}, ${COLS}], ${bits} bits to ${outDtype}`,
  bytes: ROWS * COLS * (bits / 8 + 4 / 64 + DTYPES[outDtype].bytesPerElement),
  flops: 2 * ROWS * COLS,
  setup(device) {
    const q = quantizedZeros(device, ROWS, COLS, bits);
    const out = device.tensor(outDtype, [ROWS, COLS]);
    return { encode: (encoder) => void dequantize(encoder, { q, out }, { outDtype }) };
  },
});

export default defineBench({
  op: "dequantize",
  cases: [dequantizeCase(4, "bf16"), dequantizeCase(4, "f32"), dequantizeCase(8, "bf16"), dequantizeCase(2, "bf16")],
});
