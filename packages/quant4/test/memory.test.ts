import { type Dtype, Tensor } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";
import { dequantize, quantizedEmbedding, quantizedMatmul } from "../src/index.ts";
import { decodeExactly, dequantizeReference, productReference } from "../src/reference.ts";
import { randomQuantized } from "./groups.ts";

describe.each(DEVICES)("memory, on %s", (_, open) => {
  const device = open();
  afterAll(() => device.dispose());
  /** Elements of 16 bits before a tensor: odd where the device can bind that. */
  const before = device.limits.bufferOffsetAlignment > 2 ? 2 : 3;

  it("is read at odd group offsets, and only where it belongs to the op", async () => {
    const [rows, cols] = [5, 96];
    const { weight, scales, biases } = randomQuantized(1, rows, cols, { bits: 4, groupSize: 32 }, 4);
    const nan = (n: number) => new Array<number>(n).fill(Number.NaN);
    const surrounded = (data: Float64Array) =>
      device
        .tensor("bf16", [data.length + before + 2], [...nan(before), ...data, ...nan(2)])
        .view(before, [rows, cols / 32]);
    const q = {
      weight: device.tensor("u32", [weight.length + 1], [7, ...weight]).view(1, [rows, cols / 8]),
      scales: surrounded(scales),
      biases: surrounded(biases),
      bits: 4,
      groupSize: 32,
      mode: "affine",
    } as const;
    const w = decodeExactly(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), q);
    for (const transpose of [true, false])
      for (const m of [1, 12]) {
        const inner = transpose ? cols : rows;
        const x = device.tensor("f32", [m * inner + 2], [...nan(1), ...new Random(m).normals(m * inner), ...nan(1)]);
        const encoder = device.encoder();
        const out = quantizedMatmul(encoder, { x: x.view(1, [m, inner]), q }, { transpose });
        await encoder.commit();
        const expected = productReference((await x.readNumbers()).subarray(1, m * inner + 1), w, rows, cols, transpose);
        const got = await out.readNumbers();
        for (const [i, value] of expected.entries()) expect(got[i]).toBeCloseTo(value, 3);
      }
    const encoder = device.encoder();
    const ids = device.tensor("u32", [4], [9, 4, 0, 4]).view(1, [3]);
    const decoded = dequantize(encoder, { q }, { outDtype: "f32" });
    const embedded = quantizedEmbedding(encoder, { ids, q }, { outDtype: "f32" });
    await encoder.commit();
    const exact = dequantizeReference(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), q);
    expect(await decoded.readNumbers()).toEqual(exact);
    const rowOf = (id: number) => [...exact.subarray(id * cols, (id + 1) * cols)];
    expect([...(await embedded.readNumbers())]).toEqual([4, 0, 4].flatMap(rowOf));
  });

  it.each<[dtype: Dtype, byteOffset: number, unit: number]>([
    ["u32", 2, 4],
    ["u32", 1, 4],
    ["f32", 2, 4],
    ["f16", 1, 2],
    ["bf16", 3, 2],
  ])("%s cannot start at byte %i", (dtype, byteOffset, unit) => {
    const { buffer } = device.tensor("u32", [16]);
    const at = (offset: number) => new Tensor(buffer, dtype, [3, 2], { byteOffset: offset });
    expect(at(unit).byteOffset).toBe(unit);
    expect(() => at(byteOffset)).toThrow(
      expect.objectContaining({
        code: "InvalidArgument",
        message: `Tensor: \`byteOffset\` must be a multiple of ${unit} for ${dtype}, got ${byteOffset}`,
      }),
    );
  });

  it("a NaN scale stays in its row", async () => {
    const [rows, cols] = [70, 192];
    const { weight, scales, biases } = randomQuantized(1, rows, cols, { bits: 4, groupSize: 64 }, 5);
    scales[10 * 3 + 2] = Number.NaN;
    const q = {
      weight: device.tensor("u32", [rows, cols / 8], weight),
      scales: device.tensor("bf16", [rows, 3], scales),
      biases: device.tensor("bf16", [rows, 3], biases),
      bits: 4,
      groupSize: 64,
      mode: "affine",
    } as const;
    for (const dtype of ["f32", "bf16"] as const)
      for (const m of [1, 3, 8, 20]) {
        const encoder = device.encoder();
        const out = quantizedMatmul(encoder, {
          x: device.tensor(dtype, [m, cols], new Random(1).normals(m * cols)),
          q,
        });
        await encoder.commit();
        const bad = [...(await out.readNumbers())].flatMap((v, i) => (Number.isNaN(v) ? [i % rows] : []));
        expect(bad).toEqual(new Array(m).fill(10));
      }
  });
});
