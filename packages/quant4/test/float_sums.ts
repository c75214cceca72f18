// A program: products of bf16 x as the environment has them computed, one line of JSON. MLXTS_FLOAT_SUMS is read when the
// library of kernels is loaded, so that each setting needs a process.
import { Device } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { quantizedMatmul } from "../src/index.ts";
import { randomQuantized } from "./groups.ts";

const [ROWS, COLS, M] = [67, 640, 23];

/** Rows of x by kind: their sums of products are as large as can be, or of either sign, or have small numbers beside large ones. */
function rowsOfX(): Float64Array {
  const random = new Random(11);
  const x = random.normals(M * COLS);
  const kinds: ((v: number, c: number) => number)[] = [
    (v) => v,
    () => 255,
    () => -255,
    (v) => Math.abs(v) + 3,
    (v) => -Math.abs(v) - 3,
    (v, c) => (c % 32 === 5 ? 1000 : v),
    (_, c) => (c % 2 === 0 ? 255 : -255),
    () => 0,
    (_, c) => (c < COLS / 2 ? 0 : 2 ** -40),
    (v, c) => v * 2 ** ((c >> 5) - 10),
  ];
  return x.map((v, i) => (kinds[Math.floor(i / COLS) % kinds.length] as (v: number, c: number) => number)(v, i % COLS));
}

using device = Device.open("cpu");
const x = device.tensor("bf16", [M, COLS], rowsOfX());
const products: number[][] = [];
for (const groupSize of [32, 64, 128] as const)
  for (const dtype of ["bf16", "f32"] as const)
    for (const options of [{}, { approximate: "int8-activations" }] as const) {
      const { weight, scales, biases } = randomQuantized(1, ROWS, COLS, { bits: 4, groupSize }, 12);
      // The largest codes all along some rows.
      weight.fill(0xffffffff, 0, (3 * COLS) / 8);
      const groups = [ROWS, COLS / groupSize];
      const q = {
        weight: device.tensor("u32", [ROWS, COLS / 8], weight),
        scales: device.tensor(dtype, groups, scales),
        biases: device.tensor(dtype, groups, biases),
        bits: 4,
        groupSize,
        mode: "affine",
      } as const;
      const encoder = device.encoder();
      const out = quantizedMatmul(encoder, { x, q }, options);
      await encoder.commit();
      products.push([...(await out.readNumbers())]);
    }
console.log(JSON.stringify(products));
