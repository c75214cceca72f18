import { type Device, DTYPES, type FloatDtype, type Tensor } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { matmul, matmulSwiglu, swiglu } from "../src/index.ts";

/** Matrices that differ, larger together than the caches: what a model goes through. */
const COPIES = 8;

function pairs(device: Device, rows: number, cols: number): { gate: Tensor; up: Tensor }[] {
  const few = new Random(1).normals(8191, 1 / Math.sqrt(cols));
  const data = Float32Array.from({ length: rows * cols }, (_, i) => few[i % few.length] as number);
  const matrix = () => device.tensor("bf16", [rows, cols], data);
  return Array.from({ length: COPIES }, () => ({ gate: matrix(), up: matrix() }));
}

function unit(m: number, rows: number, cols: number, dtype: FloatDtype, how: "joint" | "chain"): BenchCase {
  return {
    name: `${m}×${cols} ${dtype}, two of ${rows}×${cols} bf16${how === "chain" ? ", as three ops" : ""}`,
    bytes: 2 * rows * cols * 2 + (how === "chain" ? 5 : 1) * m * rows * DTYPES[dtype].bytesPerElement,
    flops: 4 * m * rows * cols,
    setup(device) {
      const x = device.tensor(dtype, [m, cols], new Random(2).normals(m * cols));
      const weights = pairs(device, rows, cols);
      const product = () => device.tensor(dtype, [m, rows]);
      const [gates, ups, out] = [product(), product(), product()];
      let next = 0;
      return {
        encode: (encoder) => {
          const { gate, up } = weights[next++ % COPIES] as { gate: Tensor; up: Tensor };
          if (how === "joint") {
            matmulSwiglu(encoder, { x, gate, up, out });
            return;
          }
          matmul(encoder, { x, weight: gate, out: gates });
          matmul(encoder, { x, weight: up, out: ups });
          swiglu(encoder, { gate: gates, up: ups, out });
        },
      };
    },
  };
}

const SETTINGS: readonly [number, number, number, FloatDtype][] = [
  [1, 3584, 1024, "bf16"],
  [1, 3584, 1024, "f32"],
  [4, 3584, 1024, "bf16"],
  [512, 3584, 1024, "bf16"],
];

export default defineBench({
  op: "matmulSwiglu",
  cases: SETTINGS.flatMap((setting) => [unit(...setting, "joint"), unit(...setting, "chain")]),
});
