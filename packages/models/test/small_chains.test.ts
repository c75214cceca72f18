// Rules by which small ops become one, with the ops of all packages: fewer dispatches, the same bits.
import type { CommandEncoder, Device, Fusion, Tensor } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { moeCombine, moeFusions } from "@mlxts/moe";
import { nnFusions, slice } from "@mlxts/nn";
import { rmsNorm } from "@mlxts/norms";
import { DEVICES } from "@mlxts/test-kit/devices";
import { afterAll, describe, expect, it } from "vitest";

describe.each(DEVICES)("on %s", (_, open) => {
  const device: Device = open();
  afterAll(() => device.dispose());
  const random = new Random(37);

  /** Calls that give what is kept, without rules and with them. */
  async function compare(fuse: readonly Fusion[], calls: (encoder: CommandEncoder) => Tensor[]) {
    const run = async (rules: readonly Fusion[]) => {
      device.resetCounters();
      const encoder = device.encoder({ optimize: { fuse: rules } });
      const keep = calls(encoder);
      await encoder.commit({ keep });
      const { dispatches } = device.counters;
      return { bytes: await Promise.all(keep.map((tensor) => tensor.read())), dispatches };
    };
    const [apart, fused] = [await run([]), await run(fuse)];
    const same = fused.bytes.every((bytes, i) => sameBytes(bytes, apart.bytes[i] as typeof bytes));
    return { same, dispatches: [apart.dispatches, fused.dispatches] };
  }

  it.each(["f32", "f16", "bf16"] as const)("slices of one tensor, %s", async (dtype) => {
    for (const [count, after] of [
      [1, 1],
      [2, 1],
      [3, 1],
      [4, 1],
      [5, 2],
      [6, 2],
      [9, 3],
    ] as const) {
      const [rows, dim] = [3, 37];
      const [x, other] = [0, 1].map(() => device.tensor(dtype, [rows, dim], random.normals(rows * dim)));
      const found = await compare(nnFusions, (encoder) => [
        ...Array.from({ length: count }, (_, i) =>
          slice(encoder, { x: x as Tensor }, { begin: (3 * i) % 17, size: 1 + 2 * i }),
        ),
        slice(encoder, { x: other as Tensor }, { begin: 1, size: 2 }),
      ]);
      expect(found, `${count} slices`).toEqual({ same: true, dispatches: [count + 1, after + 1] });
    }
  });
  describe.each(["f32", "f16", "bf16"] as const)("experts of a token and a norm, %s", (dtype) => {
    const numbers = (shape: readonly number[]) => random.normals(shape.reduce((a, b) => a * b, 1));
    const tensor = (...shape: number[]) => device.tensor(dtype, shape, numbers(shape));

    it("of many sizes", async () => {
      for (const rows of [1, 3, 9])
        for (const dim of [1, 5, 33, 100, 512, 513, 1030, 2816]) {
          const topK = 1 + ((rows + dim) % 4);
          const all = { residual: tensor(rows, dim), shared: tensor(rows, dim), sharedGate: tensor(rows, 1) };
          const inputs = {
            y: tensor(rows, topK, dim),
            weights: device.tensor("f32", [rows, topK], random.uniforms(rows * topK, 0, 1)),
            ...(dim % 2 === 0 ? all : { shared: all.shared }),
          };
          const weight = rows === 3 ? device.tensor("f32", [dim], numbers([dim])) : tensor(dim);
          const options = {
            weightOffset: rows === 1 ? 1 : 0,
            rounding: dim % 3 === 0 ? "before-weight" : "once",
          } as const;
          const found = await compare(moeFusions, (encoder) => {
            const x = moeCombine(encoder, inputs);
            return [x, rmsNorm(encoder, { x, weight }, options)];
          });
          expect(found, `${rows} rows of ${dim}`).toEqual({ same: true, dispatches: [2, 1] });
        }
    });

    it("in the place of the residual, and in the order of experts", async () => {
      const [rows, topK, dim] = [6, 2, 70];
      const values = numbers([rows, dim]);
      const order = device.tensor(
        "i32",
        [rows * topK],
        Array.from({ length: rows * topK }, (_, i) => (5 * i) % (rows * topK)),
      );
      const [y, weight] = [tensor(rows, topK, dim), tensor(dim)];
      const weights = device.tensor("f32", [rows, topK], random.uniforms(rows * topK, 0, 1));
      const found = await compare(moeFusions, (encoder) => {
        const residual = device.tensor(dtype, [rows, dim], values);
        moeCombine(encoder, { y, weights, order, residual, out: residual });
        return [residual, rmsNorm(encoder, { x: residual, weight })];
      });
      expect(found).toEqual({ same: true, dispatches: [3, 2] });
    });
  });
});
