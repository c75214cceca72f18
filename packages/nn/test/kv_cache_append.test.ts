import { Device } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { kvCacheAppend } from "../src/index.ts";

const random = new Random(12);

describe("kvCacheAppend", () => {
  const device = Device.open();
  afterAll(() => device.dispose());
  const make = (start: number[], T = 5, capacity = 64) => {
    const B = start.length;
    const cache = () => device.tensor("f32", [B, 2, capacity, 4]);
    const k = device.tensor("f32", [B, T, 2, 4], random.normals(B * T * 8));
    return { k, v: k, start: device.tensor("i32", [B], start), kCache: cache(), vCache: cache() };
  };

  it.each([
    [60, "60"],
    [-1, "-1"],
    [0x7fffffff, "2147483647"],
    [-0x80000000, "-2147483648"],
  ])("fails on start %s and writes nothing", async (bad, shown) => {
    const tensors = make([3, bad, 0]);
    const encoder = device.encoder();
    kvCacheAppend(encoder, tensors);
    await expect(encoder.commit()).rejects.toThrow(
      `\`start\` must be at least 0 and leave room for 5 rows in a cache of 64, got ${shown} at sequence 1`,
    );
    expect(tensors.kCache.typedArray().every((v) => v === 0)).toBe(true);
    expect(tensors.vCache.typedArray().every((v) => v === 0)).toBe(true);
  });

  it("finds a wrong start behind many right ones", async () => {
    const tensors = make(Array.from({ length: 70 }, (_, b) => (b === 65 ? 61 : 2)));
    const encoder = device.encoder();
    kvCacheAppend(encoder, tensors);
    await expect(encoder.commit()).rejects.toThrow("got 61 at sequence 65");
    expect(tensors.kCache.typedArray().every((v) => v === 0)).toBe(true);
    expect(tensors.vCache.typedArray().every((v) => v === 0)).toBe(true);
  });

  it("returns the caches it was given", async () => {
    const tensors = make([59]);
    const encoder = device.encoder();
    const out = kvCacheAppend(encoder, tensors);
    await encoder.commit();
    expect(out.kCache).toBe(tensors.kCache);
    expect(out.vCache).toBe(tensors.vCache);
    expect((await out.kCache.readNumbers()).slice(59 * 4, 60 * 4)).toEqual((await tensors.k.readNumbers()).slice(0, 4));
  });

  it("appends again when a recording is replayed with another start", async () => {
    const tensors = make([0], 1, 4);
    const encoder = device.encoder();
    kvCacheAppend(encoder, tensors);
    const recording = encoder.finish();
    for (const start of [2, 1]) {
      tensors.start.write([start]);
      await recording.replay();
    }
    recording.dispose();
    const row = [...(await tensors.k.read()).slice(0, 4)];
    const zeros = [0, 0, 0, 0];
    expect([...(await tensors.kCache.read()).slice(0, 16)]).toEqual([...zeros, ...row, ...row, ...zeros]);
  });

  const given = make([0]);
  refusesEach(
    device,
    kvCacheAppend,
    { inputs: given, options: {} },
    {
      "no cache": {
        inputs: { kCache: undefined },
        message: "`kCache` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "value cache of another dtype": {
        inputs: { vCache: device.tensor("bf16", [1, 2, 64, 4]) },
        message: "`vCache` must have dtype f32, got bf16",
      },
      "values of another dtype": {
        inputs: { v: device.tensor("f16", [1, 5, 2, 4]) },
        message: "`v` must have dtype f32, got f16",
      },
      "caches of different capacity": {
        inputs: { vCache: device.tensor("f32", [1, 2, 63, 4]) },
        message: "`vCache` must have shape [1, 2, 64, 4], got [1, 2, 63, 4]",
      },
      "more rows than capacity": {
        inputs: { kCache: device.tensor("f32", [1, 2, 4, 4]), vCache: device.tensor("f32", [1, 2, 4, 4]) },
        message: "`k` must have at most the cache's 4 rows, got 5",
      },
      "start of another length": {
        inputs: { start: device.tensor("i32", [2]) },
        message: "`start` must have shape [1], got [2]",
      },
      "one cache for both": {
        inputs: { vCache: given.kCache },
        message: "`vCache` must not overlap `kCache`, got overlapping views",
      },
      "a cache that overlaps the keys": {
        inputs: {
          kCache: device.tensor("f32", [1, 2, 5, 4]),
          vCache: (given.k as never as { reshape(s: number[]): unknown }).reshape([1, 2, 5, 4]),
        },
        message: "`vCache` must not overlap `k`, got overlapping views",
      },
    },
  );
});
