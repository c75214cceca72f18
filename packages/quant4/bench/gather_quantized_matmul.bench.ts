import { mlxPeer } from "@mlxts/bench/mlx";
import type { CommandEncoder, Device, Tensor } from "@mlxts/core";
import { type BenchCase, defineBench, Random } from "@mlxts/core/testing";
import { pairOrderOn } from "@mlxts/test-kit/gathered_pairs";
import { gatherQuantizedMatmul, type Quantized } from "../src/index.ts";

const [EXPERTS, TOP, ROWS, COLS] = [128, 8, 768, 2048];
const EXPERT_BYTES = ROWS * COLS * (4 / 8 + 4 / 64);

/** Experts of a layer, 113 MB: more than the caches hold. */
function experts(device: Device): Quantized {
  const random = new Random(1);
  const words = Uint32Array.from({ length: (ROWS * COLS) / 8 }, () => random.below(2 ** 32));
  const weight = device.tensor("u32", [EXPERTS, ROWS, COLS / 8]);
  for (let e = 0; e < EXPERTS; e++)
    weight.buffer.write(
      words.map((word) => word ^ Math.imul(e, 0x9e3779b9)),
      e * words.byteLength,
    );
  const groups = [EXPERTS, ROWS, COLS / 64];
  const count = EXPERTS * ROWS * (COLS / 64);
  return {
    weight,
    scales: device.tensor("bf16", groups, random.uniforms(count, -0.01, 0.01)),
    biases: device.tensor("bf16", groups, random.uniforms(count, -0.05, 0.05)),
    bits: 4,
    groupSize: 64,
    mode: "affine",
  };
}

/** Different experts for each token: those of its row of a random order of all, `turn` rows further in each turn. */
function choose(tokens: number, turn: number): number[] {
  const random = new Random(7);
  const all = Array.from({ length: EXPERTS }, (_, e) => ({ e, at: random.uniform() })).sort((a, b) => a.at - b.at);
  return Array.from({ length: tokens * TOP }, (_, i) => all[(i + turn * TOP) % EXPERTS]?.e as number);
}

interface Choice {
  rhsIndices: Tensor<"u32">;
  order?: Tensor<"i32">;
  offsets?: Tensor<"i32">;
}

function choice(device: Device, tokens: number, turn: number, ordered: boolean): Choice {
  const chosen = choose(tokens, turn);
  const rhsIndices = device.tensor("u32", [tokens, TOP], Uint32Array.from(chosen));
  return { rhsIndices, ...(ordered && pairOrderOn(device, chosen, EXPERTS)) };
}

/** Experts of a token change from call to call, as from layer to layer. */
function experiment(tokens: number, dtype: "f32" | "bf16", ordered: boolean): BenchCase {
  const turns = Math.max(1, EXPERTS / (tokens * TOP));
  return {
    name: `${tokens}×${COLS}, ${TOP} of ${EXPERTS} experts ${ROWS}×${COLS}, x ${dtype}${ordered ? ", ordered" : ""}`,
    bytes: Math.min(tokens * TOP, EXPERTS) * EXPERT_BYTES,
    flops: 2 * tokens * TOP * ROWS * COLS,
    products: `${dtype} with codes`,
    gpuPeers: [
      mlxPeer({ kind: "experts", tokens, chosen: TOP, experts: EXPERTS, rows: ROWS, cols: COLS, ordered, dtype }),
    ],
    setup(device: Device) {
      const x = device.tensor(dtype, [tokens, 1, 1, COLS], new Random(2).normals(tokens * COLS));
      const q = experts(device);
      const choices = Array.from({ length: turns }, (_, turn) => choice(device, tokens, turn, ordered));
      const out = device.tensor(dtype, [tokens, TOP, 1, ROWS]);
      let next = 0;
      return {
        encode(encoder: CommandEncoder) {
          gatherQuantizedMatmul(encoder, { x, q, ...(choices[next++ % turns] as Choice), out });
        },
      };
    },
  };
}

/** All tokens choose the same expert, as a badly trained router has it. */
function skewed(tokens: number, dtype: "f32" | "bf16"): BenchCase {
  return {
    name: `${tokens}×${COLS}, all to one of ${EXPERTS} experts ${ROWS}×${COLS}, x ${dtype}, ordered`,
    bytes: EXPERT_BYTES,
    flops: 2 * tokens * ROWS * COLS,
    products: `${dtype} with codes`,
    setup(device: Device) {
      const chosen = Array<number>(tokens).fill(77);
      const x = device.tensor(dtype, [tokens, 1, 1, COLS], new Random(2).normals(tokens * COLS));
      const q = experts(device);
      const choices = {
        rhsIndices: device.tensor("u32", [tokens, 1], chosen),
        ...pairOrderOn(device, chosen, EXPERTS),
      };
      const out = device.tensor(dtype, [tokens, 1, 1, ROWS]);
      return { encode: (encoder) => void gatherQuantizedMatmul(encoder, { x, q, ...choices, out }) };
    },
  };
}

export default defineBench({
  op: "gatherQuantizedMatmul",
  cases: (["bf16", "f32"] as const).flatMap((dtype) => [
    experiment(1, dtype, false),
    experiment(1, dtype, true),
    experiment(4, dtype, false),
    experiment(16, dtype, true),
    experiment(64, dtype, true),
    experiment(512, dtype, true),
    skewed(512, dtype),
  ]),
});
