// Products of one x with several matrices have the bits of products one by one.
import { FLOATS, type FloatDtype, type Tensor } from "@mlxts/core";
import { changeLimits, Random, sameBytes } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { gateProductsKernel } from "../src/gate_products.ts";
import { multiQuantizedMatmul, type Quantized, quantizedMatmul, quantizedMatmulSwiglu } from "../src/index.ts";
import { randomQuantized } from "./groups.ts";

interface Setting {
  cols: number;
  bits: 4 | 8;
  groupSize: 32 | 64 | 128;
  x: FloatDtype;
  scales: FloatDtype;
  outDtype: FloatDtype;
  approximate?: "int8-activations";
}

describe.each(DEVICES)("on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  const random = new Random(5);
  let seed = 0;

  const matrix = (rows: number, { cols, bits, groupSize, scales }: Setting): Quantized => {
    const made = randomQuantized(1, rows, cols, { bits, groupSize }, ++seed);
    return {
      weight: device.tensor("u32", [rows, (cols * bits) / 32], made.weight),
      scales: device.tensor(scales, [rows, cols / groupSize], made.scales),
      biases: device.tensor(scales, [rows, cols / groupSize], made.biases),
      bits,
      groupSize,
      mode: "affine",
    };
  };
  const input = (m: number, { cols, x }: Setting) =>
    device.tensor(x, [m, cols], random.normals(m * cols, 1 / Math.sqrt(cols)));

  async function check(m: number, rows: readonly [number, number, number, number], setting: Setting) {
    const { outDtype, approximate } = setting;
    const options = { outDtype, approximate };
    const x = input(m, setting);
    const [a, b, c, d] = rows.map((count) => matrix(count, setting)) as [Quantized, Quantized, Quantized, Quantized];
    const up = matrix(rows[0], setting);
    const encoder = device.encoder();
    const product = (q: Quantized) => quantizedMatmul(encoder, { x, q }, options);
    const two = multiQuantizedMatmul(encoder, { x, a, b }, options);
    const three = multiQuantizedMatmul(encoder, { x, a: b, b: c, c: a, outC: true }, options);
    const four = multiQuantizedMatmul(encoder, { x, a, b, c, d, outC: true, outD: true }, options);
    const [pa, pb, pc, pd] = [a, b, c, d].map(product) as [Tensor, Tensor, Tensor, Tensor];
    const fused = quantizedMatmulSwiglu(encoder, { x, gate: a, up }, options);
    const ups = product(up);
    const out = device.tensor(outDtype, pa.shape);
    encoder.dispatch(gateProductsKernel, {
      op: "swiglu",
      variant: outDtype,
      buffers: { gates: pa, ups, out },
      params: {},
      sizes: { size: out.size },
    });
    await encoder.commit();
    const pairs: [string, Tensor, Tensor][] = [
      ["two, a", two.outA, pa],
      ["two, b", two.outB, pb],
      ["three, a", three.outA, pb],
      ["three, b", three.outB, pc],
      ["three, c", three.outC, pa],
      ["four, a", four.outA, pa],
      ["four, b", four.outB, pb],
      ["four, c", four.outC, pc],
      ["four, d", four.outD, pd],
      ["gated", fused, out],
    ];
    for (const [name, one, several] of pairs)
      expect(
        sameBytes(await one.read(), await several.read()),
        `${name}: M ${m}, rows ${rows}, ${JSON.stringify(setting)}`,
      ).toBe(true);
  }

  it("for every number of rows of x", async () => {
    for (const bits of [4, 8] as const)
      for (const x of FLOATS)
        for (const m of [1, 2, 3, 4, 5, 6, 7, 8, 9, 20])
          await check(m, [37, 16, 5, 33], { cols: 192, bits, groupSize: 64, x, scales: "bf16", outDtype: x });
  });

  it.skipIf(device.gpu)("with activations in bytes", async () => {
    const approximate = "int8-activations";
    for (const bits of [4, 8] as const)
      for (const m of [1, 2, 3, 5, 8, 9, 20])
        await check(m, [37, 16, 5, 33], {
          ...{ cols: 192, bits, groupSize: 64, x: "bf16", scales: "bf16", outDtype: "f32", approximate },
        });
  });

  it("for every size", async () => {
    for (const groupSize of [32, 64, 128] as const)
      for (const groups of [1, 3, 5])
        for (const m of [1, 3])
          for (const rows of [
            [1, 2, 3, 4],
            [15, 17, 16, 1],
            [64, 31, 100, 8],
          ] as const)
            await check(m, rows, {
              cols: groups * groupSize,
              bits: 4,
              groupSize,
              x: "bf16",
              scales: "f16",
              outDtype: "bf16",
            });
  });

  it.skipIf(device.gpu)("where few rows of x fit a threadgroup", async () => {
    const { maxThreadgroupBytes } = device.limits;
    const setting = { bits: 4, groupSize: 64, x: "f32", scales: "f32", outDtype: "f32" } as const;
    for (const bytes of [250_000, 90_000, 40_000, 36_000]) {
      changeLimits(device, { maxThreadgroupBytes: bytes });
      for (const m of [1, 3, 8, 9]) await check(m, [17, 3, 16, 1], { cols: 4096, ...setting });
    }
    changeLimits(device, { maxThreadgroupBytes });
  });

  it("for more rows of W than come from memory one after the other", async () => {
    const setting = { cols: 64, bits: 4, groupSize: 32, x: "bf16", scales: "bf16", outDtype: "bf16" } as const;
    for (const rows of [1023, 1024, 1025, 2100]) for (const m of [1, 8]) await check(m, [rows, 16, 5, 1], setting);
  });

  it("for every dtype", async () => {
    for (const x of FLOATS)
      for (const scales of FLOATS)
        for (const outDtype of FLOATS)
          for (const m of [2, 10])
            await check(m, [20, 7, 18, 3], { cols: 128, bits: 8, groupSize: 32, x, scales, outDtype });
  });
});
