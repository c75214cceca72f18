import { Device } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { sdpa } from "../src/index.ts";

const random = new Random(3);

describe("sdpa", () => {
  const device = Device.open();
  afterAll(() => device.dispose());

  const make = (lengths: number[], T = 3, H = 4, capacity = 20) => {
    const B = lengths.length;
    const cache = () => device.tensor("f32", [B, 2, capacity, 8], random.normals(B * 2 * capacity * 8));
    return {
      q: device.tensor("f32", [B, T, H, 8], random.normals(B * T * H * 8)),
      kCache: cache(),
      vCache: cache(),
      lengths: device.tensor("i32", [B], lengths),
    };
  };
  const given = make([10]);
  refusesEach(
    device,
    sdpa,
    { inputs: given, options: {} },
    {
      "no cache": {
        inputs: { vCache: undefined },
        message: "`vCache` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "heads that the cache's do not divide": {
        inputs: { q: device.tensor("f32", [1, 3, 5, 8]) },
        message: "`q` must have a number of heads that the cache's 2 divides, got 5",
      },
      "more rows than capacity": {
        inputs: { q: device.tensor("f32", [1, 21, 4, 8]) },
        message: "`q` must have at most the cache's 20 rows, got 21",
      },
      "a scale of 0": { options: { scale: 0 }, message: "`scale` must be a finite number > 0, got 0" },
      "a scale that is no number": {
        options: { scale: Number.NaN },
        message: "`scale` must be a finite number > 0, got NaN",
      },
      "causal of another kind": {
        options: { causal: "yes" },
        message: "`causal` must be a boolean, got yes",
        kind: "TypeError",
      },
      "queries of three dimensions": {
        inputs: { q: device.tensor("f32", [3, 4, 8]) },
        message: "`q` must have shape [1, T, H, 8], got [3, 4, 8]",
      },
      integers: {
        inputs: { q: device.tensor("i32", [1, 3, 4, 8]) },
        message: "`q` must have dtype f32 or f16 or bf16, got i32",
      },
      "caches of two dtypes": {
        inputs: { vCache: device.tensor("bf16", [1, 2, 20, 8]) },
        message: "`vCache` must have dtype f32, got bf16",
      },
      "caches of two shapes": {
        inputs: { vCache: device.tensor("f32", [1, 2, 21, 8]) },
        message: "`vCache` must have shape [1, 2, 20, 8], got [1, 2, 21, 8]",
      },
      "another head size in the cache": {
        inputs: { kCache: device.tensor("f32", [1, 2, 20, 7]) },
        message: "`kCache` must have shape [1, 2, 20, 8], got [1, 2, 20, 7]",
      },
      "lengths of another dtype": {
        inputs: { lengths: device.tensor("u32", [1]) },
        message: "`lengths` must have dtype i32, got u32",
      },
      "lengths of another number": {
        inputs: { lengths: device.tensor("i32", [2]) },
        message: "`lengths` must have shape [1], got [2]",
      },
      "an output of another dtype": {
        inputs: { out: device.tensor("f16", [1, 3, 4, 8]) },
        message: "`out` must have dtype f32, got f16",
      },
      "an output that is q": { inputs: { out: given.q }, message: "`out` must not overlap `q`, got overlapping views" },
    },
  );

  it.each([
    [3, [10, -1, 21], true, "`lengths` must be from 0 to 20, got -1 at sequence 1"],
    [3, [10, 21, -1], false, "`lengths` must be from 0 to 20, got 21 at sequence 1"],
    [3, [3, 20, 2], true, "`lengths` must be at least the 3 new rows, got 2 at sequence 2"],
    [1, [1, 0], true, "`lengths` must be at least the 1 new rows, got 0 at sequence 1"],
    [20, [20, 40], true, "`lengths` must be from 0 to 20, got 40 at sequence 1"],
    [20, [20, 19], true, "`lengths` must be at least the 20 new rows, got 19 at sequence 1"],
  ])("fails with T %i and lengths %j, causal %j", async (T, lengths, causal, message) => {
    // Few rows go through pieces, 20 · 8 / 2 through tiles.
    const encoder = device.encoder();
    sdpa(encoder, make(lengths, T, T === 20 ? 8 : 4), { causal });
    await expect(encoder.commit()).rejects.toThrow(message);
  });

  it.each([1, 3, 20])("gives a sequence the same bits in any company, T %i", async (T) => {
    const run = async (tensors: ReturnType<typeof make>) => {
      const encoder = device.encoder();
      const out = sdpa(encoder, tensors);
      await encoder.commit();
      return out.read();
    };
    const company = make([20, 700, 300], T, 8, 700);
    const all = await run(company);
    const alone = await run({
      q: company.q.slice(2, 3),
      kCache: company.kCache.slice(2, 3),
      vCache: company.vCache.slice(2, 3),
      lengths: company.lengths.slice(2, 3),
    } as typeof company);
    expect(alone).toEqual(all.slice(2 * alone.length));
  });

  it("follows lengths and caches that change between replays", async () => {
    const tensors = make([1], 1, 4, 300);
    const encoder = device.encoder();
    const out = sdpa(encoder, tensors);
    const recording = encoder.finish();
    for (const length of [200, 7, 300]) {
      tensors.lengths.write([length]);
      await recording.replay();
      const fresh = device.encoder();
      const expected = sdpa(fresh, { ...tensors, out: device.tensor("f32", [1, 1, 4, 8]) });
      await fresh.commit();
      expect(await out.read()).toEqual(await expected.read());
    }
    recording.dispose();
  });
});
