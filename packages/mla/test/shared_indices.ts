// Ops of this package whose inputs decide addresses, for tests in which these change while the ops run.
import type { Attack } from "@mlxts/test-kit/flipped_indices";
import { mlaAttention, mlaCacheAppend, mlaPrefill, ropeYarn } from "../src/index.ts";

const N = 32;
const [L, R, ROPE, CAPACITY] = [16, 128, 32, 64];
const FAR = [0x7fffffff, -0x80000000, -1];
const all = (value: number, count = N) => new Array<number>(count).fill(value);

export const attacks: Record<string, Attack> = {
  mlaCacheAppend: {
    right: [all(0), all(CAPACITY - L), all(5)],
    wrong: [...FAR, CAPACITY, CAPACITY + 1000, -100, 2 * CAPACITY],
    encode(encoder, start, output) {
      const { device } = encoder;
      mlaCacheAppend(encoder, {
        latent: device.tensor("f32", [N, L, R]),
        kPe: device.tensor("f32", [N, L, ROPE]),
        start,
        latentCache: output("f32", [N, CAPACITY, R]),
        kPeCache: output("f32", [N, CAPACITY, ROPE]),
      });
    },
  },
  ropeYarn: {
    right: [all(0), all(CAPACITY - L), all(5)],
    wrong: [...FAR, CAPACITY, 1000, -100],
    encode(encoder, positions, output) {
      const { device } = encoder;
      ropeYarn(encoder, {
        x: device.tensor("f32", [N, L, 8, ROPE]),
        positions,
        table: device.tensor("f32", [CAPACITY, 2, ROPE / 2]),
        out: output("f32", [N, L, 8, ROPE]),
      });
    },
  },
  mlaAttention: {
    right: [all(L), all(CAPACITY), all(L + 11)],
    wrong: [...FAR, CAPACITY + 1, 4 * CAPACITY, 1000, 0],
    encode(encoder, lengths, output) {
      const { device } = encoder;
      mlaAttention(
        encoder,
        {
          queries: device.tensor("f32", [N, L, 4, R]),
          qPe: device.tensor("f32", [N, L, 4, ROPE]),
          latentCache: device.tensor("f32", [N, CAPACITY, R]),
          kPeCache: device.tensor("f32", [N, CAPACITY, ROPE]),
          lengths,
          vc: output("f32", [N, L, 4, R]),
        },
        { softmaxScale: 1 },
      );
    },
  },
  mlaPrefill: {
    right: [all(L), all(CAPACITY), all(L + 11)],
    wrong: [...FAR, CAPACITY + 1, 4 * CAPACITY, 1000, 0],
    encode(encoder, lengths, output) {
      const { device } = encoder;
      mlaPrefill(
        encoder,
        {
          q: device.tensor("f32", [N, L, 2, 16]),
          qPe: device.tensor("f32", [N, L, 2, ROPE]),
          kvB: device.tensor("f32", [2 * 32, R]),
          latentCache: output("f32", [N, CAPACITY, R]),
          kPeCache: output("f32", [N, CAPACITY, ROPE]),
          lengths,
          out: output("f32", [N, L, 2, 16]),
        },
        { nope: 16, softmaxScale: 1, form: "materialized", scratchBytes: 1 << 18 },
      );
    },
  },
};
