// Ops of this package whose inputs decide addresses, for attacks by somebody who writes them meanwhile.
import type { CommandEncoder, Device, Tensor } from "@mlxts/core";
import type { Attack } from "@mlxts/test-kit/flipped_indices";
import { gatherQuantizedMatmul, gatherQuantizedMatmulSwiglu, quantizedEmbedding } from "../src/index.ts";

const [TOKENS, ROWS, COLUMNS] = [64, 100, 128];
const all = (value: number) => new Array<number>(TOKENS).fill(value);

const EXPERTS = 16;
const FAR = [0x7fffffff, -0x80000000, -1];
const experts = (device: Device): Parameters<typeof gatherQuantizedMatmul>[1]["q"] => ({
  weight: device.tensor("u32", [EXPERTS, 80, COLUMNS / 8]),
  scales: device.tensor("f32", [EXPERTS, 80, COLUMNS / 64]),
  biases: device.tensor("f32", [EXPERTS, 80, COLUMNS / 64]),
  bits: 4,
  groupSize: 64,
  mode: "affine",
});
/** 32 pairs for each of the first half of the experts, in their order. */
const PAIRS = 256;
const counting = Array.from({ length: PAIRS }, (_, pair) => pair);
const evenOffsets = Array.from({ length: EXPERTS + 1 }, (_, e) => Math.min(32 * e, PAIRS));
const i32 = (device: Device, data: number[]) => device.tensor("i32", [data.length], data);
const gather =
  (m: number, tensors: (indices: Tensor<"i32">) => object, gated = false): Attack["encode"] =>
  (encoder: CommandEncoder, indices, output) => {
    const { device } = encoder;
    const x = device.tensor("bf16", [PAIRS, m, COLUMNS]);
    const out = output("f32", [PAIRS, m, 80]);
    const all = {
      x,
      rhsIndices: i32(
        device,
        counting.map((pair) => pair >> 5),
      ),
      out,
    };
    const given = { ...all, ...tensors(indices) };
    const options = { outDtype: "f32" } as const;
    if (gated) gatherQuantizedMatmulSwiglu(encoder, { ...given, gate: experts(device), up: experts(device) }, options);
    else gatherQuantizedMatmul(encoder, { ...given, q: experts(device) }, options);
  };

export const attacks: Record<string, Attack> = {
  quantizedEmbedding: {
    right: [all(0), all(ROWS - 1)],
    wrong: [0x7fffffff, -0x80000000, -1, ROWS, 1000],
    encode(encoder, ids, output) {
      const { device } = encoder;
      const weight = device.tensor("u32", [ROWS, COLUMNS / 8]);
      const [scales, biases] = [0, 1].map(() => device.tensor("f32", [ROWS, COLUMNS / 64]));
      const q = { weight, scales, biases, bits: 4, groupSize: 64 } as Parameters<typeof quantizedEmbedding>[1]["q"];
      quantizedEmbedding(encoder, { ids, q, out: output("f32", [TOKENS, COLUMNS]) });
    },
  },
  "gatherQuantizedMatmul, indices": {
    right: [counting.map(() => 0), counting.map(() => EXPERTS - 1)],
    wrong: [...FAR, EXPERTS],
    encode: gather(1, (rhsIndices) => ({ rhsIndices })),
  },
  "gatherQuantizedMatmul, matrices of x": {
    right: [counting, [...counting].reverse()],
    wrong: [...FAR, PAIRS],
    encode: gather(12, (lhsIndices) => ({ lhsIndices })),
  },
  "gatherQuantizedMatmul, offsets and order": {
    right: [[...evenOffsets, ...counting]],
    wrong: [...FAR, PAIRS + 1, 0, 100],
    encode: gather(1, (both) => ({
      offsets: both.view(0, [evenOffsets.length]),
      order: both.view(evenOffsets.length, [PAIRS]),
    })),
  },
  "gatherQuantizedMatmulSwiglu, indices": {
    right: [counting.map(() => 0), counting.map(() => EXPERTS - 1)],
    wrong: [...FAR, EXPERTS],
    encode: gather(1, (rhsIndices) => ({ rhsIndices }), true),
  },
  "gatherQuantizedMatmulSwiglu, matrices of x": {
    right: [counting, [...counting].reverse()],
    wrong: [...FAR, PAIRS],
    encode: gather(3, (lhsIndices) => ({ lhsIndices }), true),
  },
  "gatherQuantizedMatmulSwiglu, offsets and order": {
    right: [[...evenOffsets, ...counting]],
    wrong: [...FAR, PAIRS + 1, 0, 100],
    encode: gather(
      1,
      (both) => ({
        offsets: both.view(0, [evenOffsets.length]),
        order: both.view(evenOffsets.length, [PAIRS]),
      }),
      true,
    ),
  },
};
