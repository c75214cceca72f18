import { type Device, DTYPES, type FloatDtype, type Tensor } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { gatherMatmul, gatherMatmulSwiglu, swiglu } from "../src/index.ts";

const [EXPERTS, TOP_K, ROWS, COLS] = [128, 8, 512, 2048];

/** Experts of a layer, more than the caches hold. */
function experts(device: Device): Tensor {
  const few = new Random(1).normals(8191, 1 / Math.sqrt(COLS));
  const stack = device.tensor("bf16", [EXPERTS, ROWS, COLS]);
  const matrix = new Float32Array(ROWS * COLS);
  for (let e = 0; e < EXPERTS; e++) {
    for (let i = 0; i < matrix.length; i++) matrix[i] = few[(i + e * 13) % few.length] as number;
    stack.view(e * matrix.length, [matrix.length]).write(matrix);
  }
  return stack;
}

/** The experts of a token change from call to call, as from layer to layer. */
function unit(tokens: number, dtype: FloatDtype, how: "joint" | "chain"): BenchCase {
  const turns = Math.floor(EXPERTS / (tokens * TOP_K));
  const outBytes = tokens * TOP_K * ROWS * DTYPES[dtype].bytesPerElement;
  return {
    name: `${tokens}×${COLS} ${dtype}, ${TOP_K} of ${EXPERTS} pairs of ${ROWS}×${COLS} bf16${how === "chain" ? ", as three ops" : ""}`,
    bytes: 4 * tokens * TOP_K * ROWS * COLS + (how === "chain" ? 5 : 1) * outBytes,
    flops: 4 * tokens * TOP_K * ROWS * COLS,
    setup(device) {
      const x = device.tensor(dtype, [tokens, 1, 1, COLS], new Random(2).normals(tokens * COLS));
      const [gate, up] = [experts(device), experts(device)];
      const choices = Array.from({ length: turns }, (_, turn) =>
        device.tensor(
          "u32",
          [tokens, TOP_K],
          Array.from({ length: tokens * TOP_K }, (_, i) => ((turn * tokens * TOP_K + i) * 53) % EXPERTS),
        ),
      );
      const product = () => device.tensor(dtype, [tokens, TOP_K, 1, ROWS]);
      const [gates, ups, out] = [product(), product(), product()];
      let next = 0;
      return {
        encode: (encoder) => {
          const rhsIndices = choices[next++ % turns] as (typeof choices)[number];
          if (how === "joint") {
            gatherMatmulSwiglu(encoder, { x, gate, up, rhsIndices, out });
            return;
          }
          gatherMatmul(encoder, { x, weight: gate, rhsIndices, out: gates });
          gatherMatmul(encoder, { x, weight: up, rhsIndices, out: ups });
          swiglu(encoder, { gate: gates, up: ups, out });
        },
      };
    },
  };
}

export default defineBench({
  op: "gatherMatmulSwiglu",
  cases: (["bf16", "f32"] as const).flatMap((dtype) => [unit(1, dtype, "joint"), unit(1, dtype, "chain")]),
});
