// Refusals of weights of heads, dense and quantized.
import { Device, type Dtype } from "@mlxts/core";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { mlaOut, mlaQPrime } from "../src/index.ts";

const device = Device.open();
afterAll(() => device.dispose());
const t = (shape: number[], dtype: Dtype = "f32") => device.tensor(dtype, shape);
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
