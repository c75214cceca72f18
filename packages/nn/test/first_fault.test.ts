// Of several wrong values the message names the first in the data, whichever thread meets one first: the same on every
// device and under every schedule.
import type { Device } from "@mlxts/core";
import { ORDERS } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { embedding, kvCacheAppend, sdpa } from "../src/index.ts";

/** Positions that different simdgroups check, that one simdgroup checks, and that one lane checks in turn. */
const WRONG = [[[1700, 900, 1999]], [[34, 33, 40]], [[69, 37, 5]]];

describe.each(ORDERS)("the first fault on %s", (_, open) => {
  const wrongly = (count: number, wrong: readonly number[], right: number) => {
    const values = new Int32Array(count).fill(right);
    for (const at of wrong) values[at] = 1000 + at;
    return values;
  };

  it.each(WRONG)("of embedding: %j", async (wrong) => {
    using device: Device = open();
    const ids = device.tensor("i32", [2000], wrongly(2000, wrong, 1));
    const encoder = device.encoder();
    embedding(encoder, { ids, weight: device.tensor("f32", [5, 300]) });
    const first = Math.min(...wrong);
    await expect(encoder.commit()).rejects.toThrow(
      `embedding: \`ids\` must be from 0 to 4, got ${1000 + first} at position ${first}`,
    );
  });

  it.each(WRONG)("of kvCacheAppend: %j", async (wrong) => {
    using device: Device = open();
    const start = device.tensor("i32", [2000], wrongly(2000, wrong, 0));
    const rows = () => device.tensor("f32", [2000, 1, 2, 4]);
    const cache = () => device.tensor("f32", [2000, 2, 6, 4]);
    const encoder = device.encoder();
    kvCacheAppend(encoder, { k: rows(), v: rows(), start, kCache: cache(), vCache: cache() });
    const first = Math.min(...wrong);
    await expect(encoder.commit()).rejects.toThrow(`got ${1000 + first} at sequence ${first}`);
  });

  // Of few rows, and of so many that the keys go by pieces.
  it.each(WRONG.flatMap(([wrong]) => [6, 2048].map((capacity) => [wrong as number[], capacity] as const)))(
    "of sdpa: %j, %d keys",
    async (given, capacity) => {
      using device: Device = open();
      const [batch, wrong] = capacity === 6 ? [2000, given] : [70, given.filter((at) => at < 70)];
      if (wrong.length === 0) return;
      const lengths = device.tensor("i32", [batch], wrongly(batch, [], 1));
      lengths.write(wrongly(batch, wrong, 1).map((length) => (length > 1 ? length + 2000 : length)));
      const cache = () => device.tensor("f32", [batch, 1, capacity, 4]);
      const encoder = device.encoder();
      const q = device.tensor("f32", [batch, 1, 2, 4]);
      sdpa(encoder, { q, kCache: cache(), vCache: cache(), lengths }, { scale: 1 });
      const first = Math.min(...wrong);
      await expect(encoder.commit()).rejects.toThrow(`got ${3000 + first} at sequence ${first}`);
    },
  );
});
