// Rules by which small ops become one, with the ops of all packages: fewer dispatches, the same bits.
import type { CommandEncoder, Device, Fusion, Tensor } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { nnFusions, slice } from "@mlxts/nn";
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
});
