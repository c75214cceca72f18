// Joint products with quantized matrices have the bits of the ops that they join, alone and where rules make them.
import type { CommandEncoder, Device, FloatDtype, Tensor } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { swiglu } from "@mlxts/nn";
import { type Quantized, quant4Fusions, quantizedMatmul, quantizedMatmulSwiglu } from "@mlxts/quant4";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";

const DTYPES: readonly FloatDtype[] = ["f32", "f16", "bf16"];
const COLS = 128;

describe.each(DEVICES)("on %s", (_, open) => {
  const device: Device = open();
  afterAll(() => device.dispose());
  const random = new Random(43);
  const tensor = (dtype: FloatDtype, shape: number[], scale = 1) =>
    device.tensor(
      dtype,
      shape,
      random.normals(
        shape.reduce((a, b) => a * b, 1),
        scale,
      ),
    );
  const matrix = (rows: number, bits: 4 | 8 = 4, groupSize: 32 | 64 = 64, scales: FloatDtype = "bf16"): Quantized => ({
    weight: device.tensor("u32", [rows, (COLS * bits) / 32], random.integers((rows * COLS * bits) / 32, 2 ** 32)),
    scales: tensor(scales, [rows, COLS / groupSize], 0.01),
    biases: tensor(scales, [rows, COLS / groupSize], 0.05),
    ...({ bits, groupSize, mode: "affine" } as const),
  });

  it.each(DTYPES)("gated products are those of swiglu, x %s", async (dtype) => {
    const [gate, up] = [matrix(70), matrix(70)];
    for (const outDtype of DTYPES)
      for (const rows of [1, 2, 3, 8, 9, 20]) {
        const x = tensor(dtype, [rows, COLS]);
        const encoder = device.encoder();
        const [a, b] = [gate, up].map((q) => quantizedMatmul(encoder, { x, q }, { outDtype })) as [Tensor, Tensor];
        const unit = swiglu(encoder, { gate: a, up: b });
        const gated = quantizedMatmulSwiglu(encoder, { x, gate, up }, { outDtype });
        await encoder.commit();
        expect(sameBytes(await gated.read(), await unit.read()), `${rows} rows in ${outDtype}`).toBe(true);
      }
  });

  /** Records twice, once with the rules: the same bytes; gives the ops that were dispatched. */
  async function fused(record: (encoder: CommandEncoder) => Tensor[]): Promise<string[]> {
    const runs = [];
    for (const fuse of [[], quant4Fusions]) {
      const encoder = device.encoder({ optimize: { fuse, reorder: false } });
      const keep = record(encoder);
      const { dispatches = [] } = await encoder.commit({ keep, profile: true });
      const bytes = await Promise.all(keep.map((each) => each.read()));
      runs.push({ bytes, ops: dispatches.map(({ label }) => label.split("/")[0] as string) });
    }
    const [plain, joint] = runs as [(typeof runs)[number], (typeof runs)[number]];
    for (const [i, bytes] of joint.bytes.entries()) expect(sameBytes(bytes, plain.bytes[i] as never)).toBe(true);
    return joint.ops;
  }
  const [x, other, many] = [tensor("bf16", [2, COLS]), tensor("bf16", [2, COLS]), tensor("bf16", [20, COLS])];
  const [a, b, c, d, e] = [3, 70, 33, 16, 70].map((rows) => matrix(rows)) as [
    Quantized,
    Quantized,
    Quantized,
    Quantized,
    Quantized,
  ];
  const eightBits = matrix(9, 8);
  const smallGroups = matrix(9, 4, 32);
  const otherScales = matrix(9, 4, 64, "f16");
  const bias = tensor("f32", [70]);
  const wide = tensor("bf16", [2, 70]);
  const times = (encoder: CommandEncoder, q: Quantized, outDtype?: FloatDtype) =>
    quantizedMatmul(encoder, { x, q }, { outDtype });
  const alone = ["quantizedMatmul", "quantizedMatmul"];

  it.each<[what: string, ops: string[], record: (encoder: CommandEncoder) => Tensor[]]>([
    ["two", ["multiQuantizedMatmul"], (to) => [times(to, a), times(to, b)]],
    ["three", ["multiQuantizedMatmul"], (to) => [times(to, a), times(to, b), times(to, c)]],
    ["four", ["multiQuantizedMatmul"], (to) => [a, b, c, d].map((q) => times(to, q))],
    ["five", ["quantizedMatmul", "multiQuantizedMatmul"], (to) => [a, b, c, d, e].map((q) => times(to, q))],
    ["gate and up", ["quantizedMatmulSwiglu"], (to) => [swiglu(to, { gate: times(to, b), up: times(to, e) })]],
    [
      "up first",
      ["quantizedMatmulSwiglu"],
      (to) => {
        const up = times(to, e);
        return [swiglu(to, { gate: times(to, b), up })];
      },
    ],
    [
      "two beside gate and up",
      ["quantizedMatmulSwiglu", "multiQuantizedMatmul"],
      (to) => [times(to, c), swiglu(to, { gate: times(to, b), up: times(to, e) }), times(to, a)],
    ],
    [
      "a product that is read elsewhere",
      ["multiQuantizedMatmul", "swiglu"],
      (to) => {
        const gate = times(to, b);
        return [swiglu(to, { gate, up: times(to, e) }), gate];
      },
    ],
    ["of another x", alone, (to) => [times(to, a), quantizedMatmul(to, { x: other, q: b })]],
    ["in another dtype", alone, (to) => [times(to, a), times(to, b, "f32")]],
    ["with a bias", alone, (to) => [times(to, a), quantizedMatmul(to, { x, q: b, bias })]],
    ["of other bits", alone, (to) => [times(to, a), times(to, eightBits)]],
    ["in other groups", alone, (to) => [times(to, a), times(to, smallGroups)]],
    ["with other scales", alone, (to) => [times(to, a), times(to, otherScales)]],
    ["with many rows", alone, (to) => [a, b].map((q) => quantizedMatmul(to, { x: many, q }))],
    [
      "of many rows, gate and up",
      [...alone, "swiglu"],
      (to) => {
        const [gate, up] = [b, e].map((q) => quantizedMatmul(to, { x: many, q })) as [Tensor, Tensor];
        return [swiglu(to, { gate, up })];
      },
    ],
    ["without transpose", alone, (to) => [b, e].map((q) => quantizedMatmul(to, { x: wide, q }, { transpose: false }))],
  ])("rules join products: %s", async (_name, ops, record) => {
    expect((await fused(record)).sort()).toEqual([...ops].sort());
  });
});
