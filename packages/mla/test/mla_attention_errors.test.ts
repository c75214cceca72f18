import { Device, type Dtype } from "@mlxts/core";
import { ORDERS } from "@mlxts/test-kit/devices";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { mlaAttention, mlaDecode, mlaPrefill } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());
const t = (shape: number[], dtype: Dtype = "f32") => device.tensor(dtype, shape);

describe("mlaAttention", () => {
  const queries = t([2, 3, 4, 20]);
  refusesEach(
    device,
    mlaAttention,
    {
      inputs: {
        queries,
        qPe: t([2, 3, 4, 6]),
        latentCache: t([2, 9, 20]),
        kPeCache: t([2, 9, 6]),
        lengths: t([2], "i32"),
      },
      options: { softmaxScale: 0.1 },
    },
    {
      "no scale": {
        options: { softmaxScale: undefined },
        message: "`softmaxScale` must be a number, got undefined",
        kind: "TypeError",
      },
      "a scale of nothing": {
        options: { softmaxScale: 0 },
        message: "`softmaxScale` must be a finite number > 0, got 0",
      },
      "an infinite scale": {
        options: { softmaxScale: Number.POSITIVE_INFINITY },
        message: "`softmaxScale` must be a finite number > 0, got Infinity",
      },
      "queries that are not f32": {
        inputs: { queries: t([2, 3, 4, 20], "bf16") },
        message: "`queries` must have dtype f32, got bf16",
      },
      "other heads": {
        inputs: { qPe: t([2, 3, 5, 6]) },
        message: "`qPe` must have shape [2, 3, 4, 6], got [2, 3, 5, 6]",
      },
      "latents of another width": {
        inputs: { latentCache: t([2, 9, 21]) },
        message: "`latentCache` must have shape [2, 9, 20], got [2, 9, 21]",
      },
      "caches of two dtypes": {
        inputs: { kPeCache: t([2, 9, 6], "f16") },
        message: "`kPeCache` must have dtype f32, got f16",
      },
      "caches of two capacities": {
        inputs: { kPeCache: t([2, 8, 6]) },
        message: "`kPeCache` must have shape [2, 9, 6], got [2, 8, 6]",
      },
      "more tokens than rows": {
        inputs: { latentCache: t([2, 2, 20]), kPeCache: t([2, 2, 6]) },
        message: "`queries` must have at most the cache's 2 rows, got 3",
      },
      "lengths of another dtype": {
        inputs: { lengths: t([2], "u32") },
        message: "`lengths` must have dtype i32, got u32",
      },
      "a mask of other tokens": {
        inputs: { treeMask: t([4, 1], "u32") },
        message: "`treeMask` must have shape [3, 1], got [4, 1]",
      },
      "a result over the queries": {
        inputs: { vc: queries },
        message: "`vc` must not overlap `queries`, got overlapping views",
      },
    },
  );
});

describe.each([
  ["mlaDecode", mlaDecode],
  ["mlaPrefill", mlaPrefill],
] as const)("%s", (_, op) => {
  refusesEach(
    device,
    op,
    {
      inputs: {
        q: t([2, 3, 4, 10]),
        qPe: t([2, 3, 4, 6]),
        latent: t([2, 3, 20]),
        kPe: t([2, 3, 6]),
        kvB: t([4 * 15, 20]),
        latentCache: t([2, 9, 20]),
        kPeCache: t([2, 9, 6]),
        lengths: t([2], "i32"),
      },
      options: { nope: 8, softmaxScale: 0.1 },
    },
    {
      "no weight": {
        inputs: { kvB: undefined },
        message: "`kvB` must be given, or `embedQ` and `unembedOut`, got undefined",
        kind: "TypeError",
      },
      "half of MLX's weights": {
        inputs: { kvB: undefined, embedQ: t([4, 20, 8]) },
        message: "`unembedOut` must be given with `embedQ`, got undefined",
        kind: "TypeError",
      },
      "the other half": {
        inputs: { kvB: undefined, unembedOut: t([4, 7, 20]) },
        message: "`embedQ` must be given with `unembedOut`, got undefined",
        kind: "TypeError",
      },
      "too many weights": {
        inputs: { embedQ: t([4, 20, 8]), unembedOut: t([4, 7, 20]) },
        message: "`embedQ` must not be given with `kvB`, got both",
      },
      "values of another width of latents": {
        inputs: { kvB: undefined, embedQ: t([4, 20, 8]), unembedOut: t([4, 7, 21]) },
        message: "`unembedOut` must have shape [4, 7, 20], got [4, 7, 21]",
      },
      "no cache": {
        inputs: { kPeCache: undefined },
        message: "`kPeCache` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "latents without keys": {
        inputs: { kPe: undefined },
        message: "`kPe` must be given with `latent`, got undefined",
      },
      "keys without latents": {
        inputs: { latent: undefined },
        message: "`latent` must be given with `kPe`, got undefined",
      },
      "more columns than q has": {
        options: { nope: 11 },
        message: "`nope` must be at most the 10 columns of `q`, got 11",
      },
      "rows that heads cannot share": {
        inputs: { kvB: t([61, 20]) },
        message: "`kvB` must have the same number of rows for each of the 4 heads, got 61",
      },
      "more tokens than rows": {
        inputs: { latentCache: t([2, 2, 20]), kPeCache: t([2, 2, 6]) },
        message: "`q` must have at most the cache's 2 rows, got 3",
      },
      "no scale": {
        options: { softmaxScale: undefined },
        message: "`softmaxScale` must be a number, got undefined",
        kind: "TypeError",
      },
      "queries of two dtypes": {
        inputs: { qPe: t([2, 3, 4, 6], "f16") },
        message: "`qPe` must have dtype f32, got f16",
      },
      "a result of another shape": {
        inputs: { out: t([2, 3, 4, 8]) },
        message: "`out` must have shape [2, 3, 4, 7], got [2, 3, 4, 8]",
      },
    },
  );
});

describe("forms of mlaPrefill", () => {
  refusesEach(
    device,
    mlaPrefill,
    {
      inputs: {
        q: t([2, 3, 4, 10]),
        qPe: t([2, 3, 4, 6]),
        kvB: t([4 * 15, 20]),
        latentCache: t([2, 9, 20]),
        kPeCache: t([2, 9, 6]),
        lengths: t([2], "i32"),
      },
      options: { nope: 8, softmaxScale: 0.1, form: "materialized" },
    },
    {
      "an unknown form": {
        options: { form: "unfolded" },
        message: "`form` must be one of auto, folded, materialized, got unfolded",
      },
      "a tree for decompressed keys": {
        inputs: { treeMask: t([3, 1], "u32") },
        message: "`form` must be auto or folded where `treeMask` is given, got materialized",
      },
      "no room": {
        options: { scratchBytes: 0 },
        message: "`scratchBytes` must be an integer ≥ 1 and ≤ 9007199254740991, got 0",
      },
      "more room than numbers count": {
        options: { scratchBytes: 1e18 },
        message: "`scratchBytes` must be an integer ≥ 1 and ≤ 9007199254740991, got 1000000000000000000",
      },
    },
  );
});

describe.each(ORDERS)("wrong lengths on %s", (_, open) => {
  const attend = (device: Device, lengths: number[], tree: boolean, causal: boolean) => {
    const N = lengths.length;
    const encoder = device.encoder();
    const vc = device.tensor("f32", [N, 3, 1, 4], new Float32Array(N * 12).fill(-7));
    mlaAttention(
      encoder,
      {
        queries: device.tensor("f32", [N, 3, 1, 4]),
        qPe: device.tensor("f32", [N, 3, 1, 2]),
        latentCache: device.tensor("f32", [N, 9, 4]),
        kPeCache: device.tensor("f32", [N, 9, 2]),
        lengths: device.tensor("i32", [N], lengths),
        treeMask: tree ? device.tensor("u32", [3, 1]) : undefined,
        vc,
      },
      { softmaxScale: 1, causal },
    );
    return encoder.commit();
  };

  it.each([
    [10, "from 0 to 9, got 10"],
    [-1, "from 0 to 9, got -1"],
    [2, "at least the 3 new rows, got 2"],
  ])("a length of %d", async (wrong, text) => {
    using device: Device = open();
    const lengths = Array.from({ length: 70 }, (_, n) => (n === 65 || n === 68 ? wrong : 5));
    const message = `mlaAttention: \`lengths\` must be ${text} at sequence 65`;
    await expect(attend(device, lengths, false, true)).rejects.toThrow(message);
    await expect(attend(device, lengths, true, false)).rejects.toThrow(message);
  });

  it("lengths that are right", async () => {
    using device: Device = open();
    await attend(device, [0, 2, 9], false, false);
    await attend(device, [3, 9], true, true);
  });

  it.each([2, 10, -1, -0x80000000])("a step at length %d appends nothing", async (wrong) => {
    for (const [op, options] of [
      [mlaDecode, {}],
      [mlaPrefill, { form: "materialized" }],
    ] as const)
      await step(op, options, wrong);
  });

  it.each([2, 10, -1])("decompressed keys of a length of %d", async (wrong) => {
    using device: Device = open();
    const encoder = device.encoder();
    const out = device.tensor("f32", [3, 3, 2, 3], new Float32Array(54).fill(-7));
    mlaPrefill(
      encoder,
      {
        q: device.tensor("f32", [3, 3, 2, 4]),
        qPe: device.tensor("f32", [3, 3, 2, 2]),
        kvB: device.tensor("f32", [14, 4]),
        lengths: device.tensor("i32", [3], [5, 9, wrong]),
        latentCache: device.tensor("f32", [3, 9, 4]),
        kPeCache: device.tensor("f32", [3, 9, 2]),
        out,
      },
      { nope: 4, softmaxScale: 1, form: "materialized" },
    );
    const text = wrong === 2 ? "at least the 3 new rows" : "from 0 to 9";
    await expect(encoder.commit()).rejects.toThrow(
      `mlaPrefill: \`lengths\` must be ${text}, got ${wrong} at sequence 2`,
    );
    expect(out.typedArray().every((v) => Number(v) === -7)).toBe(true);
  });

  const step = async (op: typeof mlaDecode | typeof mlaPrefill, options: { form?: "materialized" }, wrong: number) => {
    using device: Device = open();
    const caches = { latentCache: device.tensor("f32", [3, 9, 4]), kPeCache: device.tensor("f32", [3, 9, 2]) };
    const encoder = device.encoder();
    op(
      encoder,
      {
        q: device.tensor("f32", [3, 3, 2, 4]),
        qPe: device.tensor("f32", [3, 3, 2, 2]),
        latent: device.tensor("f32", [3, 3, 4], new Float32Array(36).fill(1)),
        kPe: device.tensor("f32", [3, 3, 2], new Float32Array(18).fill(1)),
        kvB: device.tensor("f32", [14, 4]),
        lengths: device.tensor("i32", [3], [5, wrong, 9]),
        ...caches,
      },
      { nope: 4, softmaxScale: 1, ...options },
    );
    await expect(encoder.commit()).rejects.toThrow(
      `${op.op.name}: \`lengths\` must be from the 3 new rows to 9, got ${wrong} at sequence 1`,
    );
    for (const cache of Object.values(caches)) expect(cache.typedArray().every((v) => Number(v) === 0)).toBe(true);
  };
});
