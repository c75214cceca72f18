import { Device, type Dtype, type Tensor } from "@mlxts/core";
import { Random } from "@mlxts/core/testing";
import { ORDERS } from "@mlxts/test-kit/devices";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { mlaCacheAppend, mlaOut, mlaQPrime, mlaSplit, ropeYarn } from "../src/index.ts";

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

const overlapped = t([2, 3, 4, 64]);
/** A quantized matrix of zeros. */
const quantized = (
  lead: number[],
  cols: number,
  { bits = 4, groupSize = 32, ...parts }: Record<string, unknown> = {},
) => ({
  weight: t([...lead, (cols * (bits as number)) / 32], "u32"),
  scales: t([...lead, cols / (groupSize as number)], "bf16"),
  biases: t([...lead, cols / (groupSize as number)], "bf16"),
  bits,
  groupSize,
  ...parts,
});

describe("mlaQPrime", () => {
  refusesEach(
    device,
    mlaQPrime,
    { inputs: { q: t([2, 3, 4, 12]), kvB: t([4 * 15, 20]) }, options: { nope: 8 } },
    {
      "no weight": {
        inputs: { kvB: undefined },
        message: "`kvB` must be given, or `embedQ`, got undefined",
        kind: "TypeError",
      },
      "both weights": { inputs: { embedQ: t([4, 20, 8]) }, message: "`embedQ` must not be given with `kvB`, got both" },
      "a number for a weight": {
        inputs: { kvB: 1 },
        message: "`kvB` must be a Tensor or an object with weight, scales, biases, got 1",
        kind: "TypeError",
      },
      "values of MLX": {
        inputs: { kvB: undefined, unembedOut: t([4, 7, 20]) },
        message: "`unembedOut` must be one of q, kvB, embedQ, out, got an unknown tensor name",
        kind: "TypeError",
      },
      "embedQ of other heads": {
        inputs: { kvB: undefined, embedQ: t([3, 20, 8]) },
        message: "`embedQ` must have shape [4, 20, 8], got [3, 20, 8]",
      },
      "embedQ of another width": {
        inputs: { kvB: undefined, embedQ: t([4, 20, 9]) },
        message: "`embedQ` must have shape [4, 20, 8], got [4, 20, 9]",
      },
      "quantized rows that heads cannot share": {
        inputs: { kvB: quantized([61], 64) },
        message: "`kvB` must have the same number of rows for each of the 4 heads, got 61",
      },
      "quantized embedQ of another width": {
        inputs: { q: t([2, 3, 4, 32]), kvB: undefined, embedQ: quantized([4, 20], 32) },
        message: "`embedQ` must have shape [4, R, 8], got [4, 20, 32]",
      },
      "a stack for kv_b": {
        inputs: { kvB: quantized([4, 15], 64) },
        message: "`kvB` must have shape [Hrows, R], got [4, 15, 64]",
      },
      "groups that do not divide the columns": {
        inputs: { kvB: { ...quantized([60], 64), groupSize: 128 } },
        message:
          "`kvB.weight` must have a last dimension that is a multiple of 16 (groupSize 128, 4 bits), got [60, 8]",
      },
      "scales of another shape": {
        inputs: { kvB: quantized([60], 64, { scales: t([60, 1], "bf16") }) },
        message: "`kvB.scales` must have shape [60, 2] (groupSize 32, 4 bits), got [60, 1]",
      },
      "biases of another dtype": {
        inputs: { kvB: quantized([60], 64, { biases: t([60, 2], "f16") }) },
        message: "`kvB.biases` must have dtype bf16, got f16",
      },
      "no biases": {
        inputs: { kvB: quantized([60], 64, { biases: undefined }) },
        message: "`kvB.biases` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "codes over the result": {
        inputs: {
          kvB: quantized([60], 64, { scales: overlapped.view(0, [60, 2]), biases: t([60, 2]) }),
          out: overlapped,
        },
        message: "`out` must not overlap `kvB.scales`, got overlapping views",
      },
      "no columns": { options: { nope: 0 }, message: "`nope` must be an integer ≥ 1, got 0" },
      "more columns than q has": {
        options: { nope: 13 },
        message: "`nope` must be at most the 12 columns of `q`, got 13",
      },
      "no rows left for values": {
        inputs: { kvB: t([4 * 8, 20]) },
        message: "`nope` must be less than the 8 rows that `kvB` has for a head, got 8",
      },
      "rows that heads cannot share": {
        inputs: { kvB: t([61, 20]) },
        message: "`kvB` must have the same number of rows for each of the 4 heads, got 61",
      },
      "a weight of integers": {
        inputs: { kvB: t([60, 20], "u32") },
        message: "`kvB` must have dtype f32 or f16 or bf16, got u32",
      },
      "an output of another dtype": {
        inputs: { out: t([2, 3, 4, 20], "bf16") },
        message: "`out` must have dtype f32, got bf16",
      },
      "an output of another shape": {
        inputs: { out: t([2, 3, 4, 21]) },
        message: "`out` must have shape [2, 3, 4, 20], got [2, 3, 4, 21]",
      },
    },
  );
});

describe("widths of codes that MLX has and these ops do not take", () => {
  it.each([2, 3, 5, 6])("%i bits", (bits) => {
    const kvB = { ...quantized([60], 64), bits } as never;
    expect(() => mlaQPrime(device.encoder(), { q: t([2, 3, 4, 12]), kvB }, { nope: 8 })).toThrow(
      expect.objectContaining({
        code: "UnsupportedDtype",
        message: `mlaQPrime: a width of ${bits} bits is not supported — bits 4, 8 are`,
      }),
    );
  });
});

describe("mlaOut", () => {
  const vc = t([2, 3, 4, 20]);
  refusesEach(
    device,
    mlaOut,
    { inputs: { vc, kvB: t([4 * 15, 20]) }, options: { v: 7 } },
    {
      "no weight": {
        inputs: { kvB: undefined },
        message: "`kvB` must be given, or `unembedOut`, got undefined",
        kind: "TypeError",
      },
      "both weights": {
        inputs: { unembedOut: t([4, 7, 20]) },
        message: "`unembedOut` must not be given with `kvB`, got both",
      },
      "unembedOut of another width": {
        inputs: { kvB: undefined, unembedOut: t([4, 8, 20]) },
        message: "`unembedOut` must have shape [4, 7, 20], got [4, 8, 20]",
      },
      "quantized latents of another width": {
        inputs: { kvB: undefined, unembedOut: quantized([4, 7], 32) },
        message: "`unembedOut` must have shape [4, 7, 20], got [4, 7, 32]",
      },
      "no columns": { options: { v: undefined }, message: "`v` must be a number, got undefined", kind: "TypeError" },
      "no rows left for keys": {
        options: { v: 15 },
        message: "`v` must be less than the 15 rows that `kvB` has for a head, got 15",
      },
      "rows that heads cannot share": {
        inputs: { kvB: t([61, 20]) },
        message: "`kvB` must have the same number of rows for each of the 4 heads, got 61",
      },
      "another rank": { inputs: { kvB: t([60, 21]) }, message: "`kvB` must have shape [60, 20], got [60, 21]" },
      "latents of another dtype": {
        inputs: { vc: t([2, 3, 4, 20], "bf16") },
        message: "`vc` must have dtype f32, got bf16",
      },
      "an unknown dtype": {
        options: { outDtype: "u32" },
        message: "`outDtype` must be one of f32, f16, bf16, got u32",
      },
      "an output of another dtype": {
        inputs: { out: t([2, 3, 4, 7], "bf16") },
        message: "`out` must have dtype f32, got bf16",
      },
      "an output over its input": {
        inputs: { vc, kvB: t([4 * 25, 20]), out: vc },
        options: { v: 20 },
        message: "`out` must not overlap `vc`, got overlapping views",
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
