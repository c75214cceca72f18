import { type BenchCase, defineBench } from "@mlxts/core/testing";
import { slice, split } from "../src/index.ts";

/** Two halves of each row: `split`, or the slices that it takes the place of. */
const halves = (rows: number, dim: number, slices: boolean): BenchCase => ({
  name: `[${rows}, ${dim}] to two halves bf16${slices ? ", by two slices" : ""}`,
  bytes: 4 * rows * dim,
  flops: 0,
  setup(device) {
    const x = device.tensor("bf16", [rows, dim]);
    const [outA, outB] = [device.tensor("bf16", [rows, dim / 2]), device.tensor("bf16", [rows, dim / 2])];
    const [a, b] = [
      { begin: 0, size: dim / 2 },
      { begin: dim / 2, size: dim / 2 },
    ];
    return {
      encode(encoder) {
        if (slices) {
          slice(encoder, { x, out: outA }, a);
          slice(encoder, { x, out: outB }, b);
        } else {
          split(encoder, { x, outA, outB }, { beginA: a.begin, sizeA: a.size, beginB: b.begin, sizeB: b.size });
        }
      },
    };
  },
});

const SHAPES = [
  [2, 16],
  [16, 512],
  [8192, 512],
] as const;

export default defineBench({
  op: "split",
  cases: SHAPES.flatMap(([rows, dim]) => [halves(rows, dim, false), halves(rows, dim, true)]),
});
