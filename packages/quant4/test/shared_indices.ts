// Ops of this package whose inputs decide addresses, for attacks by somebody who writes them meanwhile.
import type { Attack } from "@mlxts/test-kit/flipped_indices";
import { quantizedEmbedding } from "../src/index.ts";

const [TOKENS, ROWS, COLUMNS] = [64, 100, 128];
const all = (value: number) => new Array<number>(TOKENS).fill(value);

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
};
