import { Device } from "@mlxts/core";
import { afterAll, describe, expect, it } from "vitest";
import { quantize } from "../src/index.ts";
import type { Variant } from "../src/reference.ts";

const device = Device.open();
afterAll(() => device.dispose());

const words = (text: string) => text.split(" ").map((word) => Number.parseInt(word, 16));
const group = (value: (i: number) => number) => Float32Array.from({ length: 32 }, (_, i) => value(i));
const vectors: [
  name: string,
  data: Float32Array,
  bits: 4 | 8,
  scale: number,
  bias: number,
  cpu: string,
  gpu?: string,
  gpuScale?: number,
][] = [
  [
    "(i−16)/16",
    group((i) => (i - 16) / 16),
    4,
    0x3e000000,
    -1,
    "43222100 87666544 cbaaa988 ffeeedcc",
    "43322110 87766554 cbbaa998 fffeeddc",
  ],
  [
    "(i−16)/16",
    group((i) => (i - 16) / 16),
    8,
    0x3bf83e10,
    -1,
    "19100800 3a322921 5b524a42 7c746b63 9d948c84 beb6ada5 dfd6cec6 fff8efe7",
  ],
  [
    "((7i mod 32)−10)/8",
    group((i) => (((7 * i) % 32) - 10) / 8),
    4,
    0xbe866666,
    2.625,
    "7ad158bf ae259c03 e269c047 36ad148b",
  ],
  [
    "−1−i/32",
    group((i) => -1 - i / 32),
    4,
    0x3d866666,
    -1.96875,
    "bccddeef 8899aaab 44556677 00112233",
    "66667777 44455555 22233334 00011112",
    0x3e066666,
  ],
  ["1+i/32", group((i) => 1 + i / 32), 4, 0xbd866666, 1.96875, "bccddeef 8899aaab 44556677 00112233"],
  ["0.5", group(() => 0.5), 4, 0xb3d6bf95, 0.5, "0 0 0 0"],
  ["zeros", group(() => 0), 4, 0xb3d6bf95, 0, "0 0 0 0"],
  ["one −3", group((i) => (i === 5 ? -3 : (i - 16) / 64)), 4, 0x3e5b6db7, -3, "dd0ddddd eeeeeedd feeeeeee ffffffff"],
];

async function quantized(data: Float32Array, bits: 4 | 8, variant: Variant) {
  const encoder = device.encoder();
  const made = quantize(encoder, { w: device.tensor("f32", [1, 32], data) }, { bits, groupSize: 32, variant });
  await encoder.commit();
  const scale = new Uint32Array((await made.scales.read()).buffer)[0];
  return { words: [...((await made.weight.read()) as Uint32Array)], scale, bias: (await made.biases.readNumbers())[0] };
}

describe("the vectors of the contract", () => {
  for (const [name, data, bits, scale, bias, cpu, gpu, gpuScale] of vectors) {
    it(`${name}, ${bits} bits`, async () => {
      expect(await quantized(data, bits, "cpu")).toEqual({ words: words(cpu), scale, bias });
    });
    if (gpu !== undefined)
      it(`${name}, ${bits} bits, gpu`, async () => {
        expect(await quantized(data, bits, "gpu")).toEqual({ words: words(gpu), scale: gpuScale ?? scale, bias });
      });
  }
});
