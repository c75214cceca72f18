// The rotations of queries and of the key of a latent become one call with the same bits.
import type { FloatDtype } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { mlaFusions, ropeYarn } from "@mlxts/mla";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { bits } from "./fixtures.ts";

const [NOPE, ROPE, RANK] = [24, 18, 40];

describe.each(DEVICES)("on %s", (_, open) => {
  it.each(["f32", "f16", "bf16"] as const)("%s", async (dtype: FloatDtype) => {
    using device = open();
    const random = new Random(5);
    const make = (...shape: number[]) => device.tensor(dtype, shape, random.normals(shape.reduce((a, b) => a * b, 1)));
    for (const pairing of ["interleaved", "half"] as const)
      for (const tokens of [1, 3]) {
        const q = make(tokens, 1, 5, NOPE + ROPE);
        const k = make(tokens, 1, 1, RANK + ROPE);
        const positions = device.tensor("i32", [tokens], [3, 0, 7].slice(0, tokens));
        const [table, other] = [1, 2].map((seed) =>
          device.tensor("f32", [8, 2, ROPE / 2], new Random(seed).normals(8 * ROPE)),
        );
        const run = async (fuse: typeof mlaFusions, tableOfK = table) => {
          device.resetCounters();
          const encoder = device.encoder({ optimize: { fuse } });
          const keep = [
            ropeYarn(encoder, { x: q, positions, table: table as NonNullable<typeof table> }, { first: NOPE, pairing }),
            ropeYarn(
              encoder,
              { x: k, positions, table: tableOfK as NonNullable<typeof table> },
              { first: RANK, pairing },
            ),
          ];
          await encoder.commit({ keep });
          const { dispatches } = device.counters;
          return { dispatches, bits: keep.map((t) => bits(t.readSync())) };
        };
        const [plain, fused, apart] = [await run([]), await run(mlaFusions), await run(mlaFusions, other)];
        expect(fused.bits).toEqual(plain.bits);
        expect([plain, fused, apart].map(({ dispatches }) => dispatches)).toEqual([2, 1, 2]);
      }
  });
});
