// Refusals of the ops that part, rotate and keep the rows of tokens.
import { Device, type Dtype, type Tensor } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { ORDERS } from "@mlxts/test-kit/devices";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { mlaCacheAppend, mlaSplit, ropeYarn, ropeYarnPair } from "../src/index.ts";

const random = new Random(24);
const device = Device.open();
afterAll(() => device.dispose());
const t = (shape: number[], dtype: Dtype = "f32") => device.tensor(dtype, shape);

describe("mlaSplit", () => {
  const both = t([2, 3, 4, 4]);
  refusesEach(
    device,
    mlaSplit,
    { inputs: { q: t([2, 3, 4, 12]), kv: t([2, 3, 20]) }, options: { rope: 4 } },
    {
      "no rope": { options: { rope: undefined }, message: "`rope` must be a number, got undefined", kind: "TypeError" },
      "rope of nothing": { options: { rope: 0 }, message: "`rope` must be an integer ≥ 1, got 0" },
      "nothing but rope in q": {
        options: { rope: 12 },
        message: "`rope` must be less than the 12 columns of `q`, got 12",
      },
      "nothing but rope in kv": {
        inputs: { kv: t([2, 3, 4]) },
        message: "`rope` must be less than the 4 columns of `kv`, got 4",
      },
      "other tokens": { inputs: { kv: t([2, 4, 20]) }, message: "`kv` must have shape [2, 3, 20], got [2, 4, 20]" },
      "another dtype": { inputs: { kv: t([2, 3, 20], "bf16") }, message: "`kv` must have dtype f32, got bf16" },
      "an output of another shape": {
        inputs: { kPe: t([2, 3, 5]) },
        message: "`kPe` must have shape [2, 3, 4], got [2, 3, 5]",
      },
      "one output for two parts": {
        inputs: { q: t([2, 3, 4, 8]), qNope: both, qPe: both },
        message: "`qPe` must not overlap `qNope`, got overlapping views",
      },
    },
  );
});

describe("ropeYarnPair", () => {
  refusesEach(
    device,
    ropeYarnPair,
    {
      inputs: { q: t([2, 3, 4, 12]), k: t([2, 3, 1, 10]), positions: t([2, 3], "i32"), table: t([9, 2, 4]) },
      options: { firstQ: 4, firstK: 2 },
    },
    {
      "no k": { inputs: { k: undefined }, message: "`k` must be a Tensor, got undefined", kind: "TypeError" },
      "k of other tokens": {
        inputs: { k: t([2, 4, 1, 10]) },
        message: "`k` must have shape [2, 3, 1, 10], got [2, 4, 1, 10]",
      },
      "k of another dtype": { inputs: { k: t([2, 3, 1, 10], "bf16") }, message: "`k` must have dtype f32, got bf16" },
      "a start beyond the columns of q": {
        options: { firstQ: 5 },
        message: "`firstQ` must leave 8 columns of the 12 of `q`, got 5",
      },
      "a start beyond the columns of k": {
        options: { firstK: 3 },
        message: "`firstK` must leave 8 columns of the 10 of `k`, got 3",
      },
      "a sequence longer than the table": {
        inputs: { table: t([2, 2, 4]) },
        message: "`table` must have a row for each of the 3 tokens of a sequence, got 2",
      },
      "an output of another shape": {
        inputs: { outK: t([2, 3, 1, 10]) },
        message: "`outK` must have shape [2, 3, 1, 8], got [2, 3, 1, 10]",
      },
    },
  );
});

describe("ropeYarn", () => {
  refusesEach(
    device,
    ropeYarn,
    {
      inputs: { x: t([2, 3, 4, 12]), positions: t([2, 3], "i32"), table: t([9, 2, 4]) },
      options: { first: 4 },
    },
    {
      "a start beyond the columns": {
        options: { first: 5 },
        message: "`first` must leave 8 columns of the 12 of `x`, got 5",
      },
      "a start before the columns": { options: { first: -1 }, message: "`first` must be an integer ≥ 0, got -1" },
      "an unknown pairing": {
        options: { pairing: "both" },
        message: "`pairing` must be one of interleaved, half, got both",
      },
      "positions of other tokens": {
        inputs: { positions: t([2, 4], "i32") },
        message: "`positions` must have shape [2, 3], got [2, 4]",
      },
      "positions of other sequences": {
        inputs: { positions: t([3], "i32") },
        message: "`positions` must have shape [2], got [3]",
      },
      "positions of another dtype": {
        inputs: { positions: t([2, 3], "u32") },
        message: "`positions` must have dtype i32, got u32",
      },
      "a table without sines": {
        inputs: { table: t([9, 1, 4]) },
        message: "`table` must have shape [9, 2, 4], got [9, 1, 4]",
      },
      "a table of another dtype": {
        inputs: { table: t([9, 2, 4], "bf16") },
        message: "`table` must have dtype f32, got bf16",
      },
      "a table that is too short": {
        inputs: { table: t([2, 2, 4]) },
        message: "`table` must have a row for each of the 3 tokens of a sequence, got 2",
      },
      "an output of another shape": {
        inputs: { out: t([2, 3, 4, 12]) },
        message: "`out` must have shape [2, 3, 4, 8], got [2, 3, 4, 12]",
      },
    },
  );
});

describe("mlaCacheAppend", () => {
  const latent = t([1, 5, 8]);
  refusesEach(
    device,
    mlaCacheAppend,
    {
      inputs: {
        latent,
        kPe: t([1, 5, 4]),
        start: t([1], "i32"),
        latentCache: t([1, 64, 8]),
        kPeCache: t([1, 64, 4]),
      },
      options: {},
    },
    {
      "no cache": {
        inputs: { latentCache: undefined },
        message: "`latentCache` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "no cache of keys": {
        inputs: { kPeCache: undefined },
        message: "`kPeCache` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "a cache of another dtype": {
        inputs: { kPeCache: t([1, 64, 4], "bf16") },
        message: "`kPeCache` must have dtype f32, got bf16",
      },
      "keys of another dtype": {
        inputs: { kPe: t([1, 5, 4], "f16") },
        message: "`kPe` must have dtype f32, got f16",
      },
      "caches of different capacity": {
        inputs: { kPeCache: t([1, 63, 4]) },
        message: "`kPeCache` must have shape [1, 64, 4], got [1, 63, 4]",
      },
      "a cache of other latents": {
        inputs: { latentCache: t([1, 64, 9]) },
        message: "`latentCache` must have shape [1, 64, 8], got [1, 64, 9]",
      },
      "more rows than capacity": {
        inputs: { latentCache: t([1, 4, 8]), kPeCache: t([1, 4, 4]) },
        message: "`latent` must have at most the cache's 4 rows, got 5",
      },
      "start of another length": {
        inputs: { start: t([2], "i32") },
        message: "`start` must have shape [1], got [2]",
      },
      "a cache over the latents": {
        inputs: { latentCache: latent, kPeCache: t([1, 5, 4]) },
        message: "`latentCache` must not overlap `latent`, got overlapping views",
      },
    },
  );
});

describe.each(ORDERS)("wrong numbers in the data on %s", (_, open) => {
  const append = (device: Device, start: number[]) => {
    const N = start.length;
    const inputs = {
      latent: device.tensor("f32", [N, 5, 4], random.normals(N * 20)),
      kPe: device.tensor("f32", [N, 5, 2], random.normals(N * 10)),
      start: device.tensor("i32", [N], start),
      latentCache: device.tensor("f32", [N, 64, 4]),
      kPeCache: device.tensor("f32", [N, 64, 2]),
    };
    const encoder = device.encoder();
    mlaCacheAppend(encoder, inputs);
    return { run: () => encoder.commit(), caches: [inputs.latentCache, inputs.kPeCache], inputs };
  };
  const zeros = (tensors: Tensor[]) => tensors.every((tensor) => tensor.typedArray().every((v) => Number(v) === 0));

  it.each([
    [60, "60"],
    [-1, "-1"],
    [0x7fffffff, "2147483647"],
    [-0x80000000, "-2147483648"],
  ])("an append fails on start %s and writes nothing", async (bad, shown) => {
    using device: Device = open();
    const { run, caches } = append(device, [3, bad, 0]);
    await expect(run()).rejects.toThrow(
      `mlaCacheAppend: \`start\` must be at least 0 and leave room for 5 rows in a cache of 64, got ${shown} at sequence 1`,
    );
    expect(zeros(caches)).toBe(true);
  });

  it("an append finds a wrong start behind many right ones", async () => {
    using device: Device = open();
    const { run, caches } = append(
      device,
      Array.from({ length: 70 }, (_, n) => (n > 64 ? n : 59)),
    );
    await expect(run()).rejects.toThrow("got 65 at sequence 65");
    expect(zeros(caches)).toBe(true);
  });

  it("an append takes the last rows", async () => {
    using device: Device = open();
    const { run, caches, inputs } = append(device, [59]);
    await run();
    const [latents] = caches as [Tensor];
    expect((await latents.readNumbers()).slice(59 * 4)).toEqual(await inputs.latent.readNumbers());
  });

  const rotate = (device: Device, positions: number[], shape: [number, number?]) => {
    const [N, L = 3] = shape;
    const out = device.tensor("f32", [N, L, 2, 4], new Float32Array(N * L * 8).fill(-7));
    const encoder = device.encoder();
    ropeYarn(encoder, {
      x: device.tensor("f32", [N, L, 2, 4]),
      positions: device.tensor("i32", shape as number[], positions),
      table: device.tensor("f32", [10, 2, 2]),
      out,
    });
    return { run: () => encoder.commit(), untouched: () => out.typedArray().every((v) => Number(v) === -7) };
  };

  it.each([[[70, 99, 45]], [[34, 33, 40]], [[69, 37, 5]]])("positions of tokens: the first of %j", async (wrong) => {
    using device: Device = open();
    const given = Array.from({ length: 100 }, (_, i) => (wrong.includes(i) ? 1000 + i : 9));
    const { run, untouched } = rotate(device, given, [50, 2]);
    const first = Math.min(...wrong);
    await expect(run()).rejects.toThrow(
      `ropeYarn: \`positions\` must be from 0 to 9, got ${1000 + first} at token ${first}`,
    );
    expect(untouched()).toBe(true);
  });

  it.each([8, -1])("positions of sequences: %d", async (wrong) => {
    using device: Device = open();
    const given = Array.from({ length: 40 }, (_, n) => (n === 36 ? wrong : 7));
    const { run, untouched } = rotate(device, given, [40]);
    await expect(run()).rejects.toThrow(`ropeYarn: \`positions\` must be from 0 to 7, got ${wrong} at sequence 36`);
    expect(untouched()).toBe(true);
  });
});
