import { type Device, DTYPES, type FloatDtype } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { gateProductsKernel } from "../src/gate_products.ts";
import { gatherQuantizedMatmul, gatherQuantizedMatmulSwiglu, type Quantized } from "../src/index.ts";

/** Experts as Qwen3-Next has them. */
const [EXPERTS, TOP, ROWS, COLS] = [512, 10, 512, 2048];
const EXPERT_BYTES = ROWS * COLS * (4 / 8 + 4 / 64);

/** Experts of a layer, more than the caches hold. */
function experts(device: Device, seed: number): Quantized {
  const random = new Random(seed);
  const words = Uint32Array.from({ length: (ROWS * COLS) / 8 }, () => random.below(2 ** 32));
  const weight = device.tensor("u32", [EXPERTS, ROWS, COLS / 8]);
  for (let e = 0; e < EXPERTS; e++) weight.buffer.write(words, e * words.byteLength);
  const groups = [EXPERTS, ROWS, COLS / 64];
  const few = random.uniforms(8191, -0.01, 0.01);
  const numbers = Float32Array.from({ length: EXPERTS * ROWS * (COLS / 64) }, (_, i) => few[i % few.length] as number);
  const [scales, biases] = [0, 1].map(() => device.tensor("bf16", groups, numbers)) as [
    Quantized["scales"],
    Quantized["biases"],
  ];
  return { weight, scales, biases, bits: 4, groupSize: 64, mode: "affine" };
}

/** Experts of a token change from call to call, as from layer to layer. */
function unit(tokens: number, dtype: FloatDtype, how: "joint" | "chain"): BenchCase {
  const turns = Math.floor(EXPERTS / (tokens * TOP));
  const outBytes = tokens * TOP * ROWS * DTYPES[dtype].bytesPerElement;
  return {
    name: `${tokens}×${COLS} ${dtype}, ${TOP} of ${EXPERTS} pairs of experts ${ROWS}×${COLS}${how === "chain" ? ", as three ops" : ""}`,
    bytes: 2 * tokens * TOP * EXPERT_BYTES + (how === "chain" ? 5 : 1) * outBytes,
    flops: 4 * tokens * TOP * ROWS * COLS,
    setup(device) {
      const x = device.tensor(dtype, [tokens, 1, 1, COLS], new Random(2).normals(tokens * COLS));
      const [gate, up] = [experts(device, 1), experts(device, 3)];
      const choices = Array.from({ length: turns }, (_, turn) =>
        device.tensor(
          "u32",
          [tokens, TOP],
          Array.from({ length: tokens * TOP }, (_, i) => ((turn * tokens * TOP + i) * 197) % EXPERTS),
        ),
      );
      const product = () => device.tensor(dtype, [tokens, TOP, 1, ROWS]);
      const [gates, ups, out] = [product(), product(), product()];
      let next = 0;
      return {
        encode: (encoder) => {
          const rhsIndices = choices[next++ % turns] as (typeof choices)[number];
          if (how === "joint") {
            gatherQuantizedMatmulSwiglu(encoder, { x, gate, up, rhsIndices, out });
            return;
          }
          gatherQuantizedMatmul(encoder, { x, q: gate, rhsIndices, out: gates });
          gatherQuantizedMatmul(encoder, { x, q: up, rhsIndices, out: ups });
          encoder.dispatch(gateProductsKernel, {
            op: "swiglu",
            variant: dtype,
            buffers: { gates, ups, out },
            params: {},
            sizes: { size: out.size },
          });
        },
      };
    },
  };
}

const SETTINGS: readonly [number, FloatDtype][] = [
  [1, "bf16"],
  [1, "f32"],
  [4, "bf16"],
];

export default defineBench({
  op: "gatherQuantizedMatmulSwiglu",
  cases: SETTINGS.flatMap((setting) => [unit(...setting, "joint"), unit(...setting, "chain")]),
});
