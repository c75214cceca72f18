// Of several wrong values the message names the first in the data, whichever thread meets one first: the same on every
// device and under every schedule.
import type { Device } from "@mlxts/core";
import { ORDERS } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { quantize, quantizedEmbedding } from "../src/index.ts";

describe.each(ORDERS)("the first fault on %s", (_, open) => {
  it.each<[where: string, wrong: Record<number, number>, message: string]>([
    [
      "rows far apart",
      { [1700 * 256 + 3]: Number.POSITIVE_INFINITY, [900 * 256 + 20]: Number.NaN, [1999 * 256]: Number.NaN },
      "got NaN at index 230420 (row 900, column 20)",
    ],
    [
      "groups of one row",
      { [7 * 256 + 200]: Number.NaN, [7 * 256 + 30]: Number.NEGATIVE_INFINITY },
      "got -Infinity at index 1822 (row 7, column 30)",
    ],
    [
      "columns of one group",
      { [7 * 256 + 35]: Number.NaN, [7 * 256 + 34]: Number.POSITIVE_INFINITY },
      "got Infinity at index 1826 (row 7, column 34)",
    ],
  ])("of quantize: %s", async (_, wrong, message) => {
    using device: Device = open();
    const data = new Float32Array(2000 * 256);
    for (const [at, value] of Object.entries(wrong)) data[Number(at)] = value;
    const encoder = device.encoder();
    quantize(encoder, { w: device.tensor("f32", [2000, 256], data) });
    await expect(encoder.commit()).rejects.toThrow(`quantize: \`w\` must be finite, ${message}`);
  });

  it.each([[[1700, 900, 1999]], [[33, 34, 40]], [[64, 32]]])("of quantizedEmbedding: %j", async (wrong) => {
    using device: Device = open();
    const ids = new Int32Array(2000);
    for (const at of wrong) ids[at] = 1000 + at;
    const q = {
      weight: device.tensor("u32", [6, 16]),
      scales: device.tensor("bf16", [6, 2]),
      biases: device.tensor("bf16", [6, 2]),
      bits: 4,
      groupSize: 64,
      mode: "affine",
    } as const;
    const encoder = device.encoder();
    quantizedEmbedding(encoder, { ids: device.tensor("i32", [2000], ids), q });
    const first = Math.min(...wrong);
    await expect(encoder.commit()).rejects.toThrow(
      `quantizedEmbedding: \`ids\` must be from 0 to 5, got ${1000 + first} at index ${first}`,
    );
  });
});
