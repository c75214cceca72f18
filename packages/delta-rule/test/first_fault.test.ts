// Of several wrong values the message names the first in the data, whichever thread meets one first: the same on every
// device and under every schedule.
import type { CommandEncoder, Device } from "@mlxts/core";
import { ORDERS } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { causalConv1d, chunkCumsum, convRollback, gatedDeltaRollback, gatedDeltaRuleRecurrent } from "../src/index.ts";

/** Positions that no simdgroup shares, that one does, and that one lane looks at one after the other. */
const WRONG = [[[170, 90]], [[34, 33, 40]], [[69, 37, 5]]];
const SEQUENCES = 200;

describe.each(ORDERS)("the first fault on %s", (_, open) => {
  type Encode = (encoder: CommandEncoder, device: Device, positions: ReturnType<Device["tensor"]>) => unknown;

  const packed: [string, Encode][] = [
    [
      "chunkCumsum",
      (encoder, device, cuSeqlens) =>
        chunkCumsum(encoder, { g: device.tensor("f32", [1, SEQUENCES, 4]), cuSeqlens }, { chunkLength: 16 }),
    ],
    [
      "causalConv1d",
      (encoder, device, cuSeqlens) =>
        causalConv1d(encoder, {
          x: device.tensor("f32", [1, SEQUENCES, 40]),
          weight: device.tensor("f32", [40, 4]),
          cuSeqlens,
        }),
    ],
    [
      "gatedDeltaRuleRecurrent",
      (encoder, device, cuSeqlens) => {
        const heads = (...shape: number[]) => device.tensor("f32", [1, SEQUENCES, ...shape]);
        const given = { q: heads(2, 16), k: heads(2, 16), v: heads(4, 8), g: heads(4), beta: heads(4), cuSeqlens };
        gatedDeltaRuleRecurrent(encoder, given, { scale: 1 });
      },
    ],
  ];
  for (const [name, encode] of packed)
    it.each(WRONG)(`of ${name}'s cuSeqlens: %j`, async (wrong) => {
      using device: Device = open();
      const cuSeqlens = Int32Array.from({ length: SEQUENCES + 1 }, (_, i) => i);
      for (const at of wrong) cuSeqlens[at] = 1000 + at;
      const encoder = device.encoder();
      encode(encoder, device, device.tensor("i32", [SEQUENCES + 1], cuSeqlens));
      const first = Math.min(...wrong);
      await expect(encoder.commit()).rejects.toThrow(`got ${1000 + first} at position ${first}`);
    });

  const rejecting: [string, Encode][] = [
    [
      "gatedDeltaRollback",
      (encoder, device, rejected) => {
        const f32 = (...shape: number[]) => device.tensor("f32", [SEQUENCES, ...shape]);
        gatedDeltaRollback(encoder, {
          logState: f32(4, 8, 16),
          logKeys: f32(3, 2, 16),
          logDeltas: f32(3, 4, 8),
          logGates: f32(3, 4),
          rejected,
          finalState: f32(4, 8, 16),
        });
      },
    ],
    [
      "convRollback",
      (encoder, device, rejected) =>
        convRollback(encoder, { history: device.tensor("f32", [SEQUENCES, 6, 40]), rejected }, { kernelSize: 4 }),
    ],
  ];
  for (const [name, encode] of rejecting)
    it.each(WRONG)(`of ${name}'s rejected: %j`, async (wrong) => {
      using device: Device = open();
      const rejected = new Int32Array(SEQUENCES);
      for (const at of wrong) rejected[at] = 1000 + at;
      const encoder = device.encoder();
      encode(encoder, device, device.tensor("i32", [SEQUENCES], rejected));
      const first = Math.min(...wrong);
      await expect(encoder.commit()).rejects.toThrow(`got ${1000 + first} at sequence ${first}`);
    });

  it.each<[string, Record<"g" | "beta", Record<number, number>>, string]>([
    [
      "tokens far apart, of different kinds",
      { g: { [1700 * 4]: 0.5, [1999 * 4 + 3]: 3 }, beta: { [900 * 4 + 2]: -2, [1200 * 4]: -1 } },
      "`beta` must be at least 0, got -2 at token 900, head 2",
    ],
    [
      "heads of one token, of different kinds",
      { g: { 43: 0.25 }, beta: { 42: 9, 41: 8 } },
      "`beta` must keep beta · |k|² at most 2, got 8 at token 10, head 1",
    ],
    [
      "tokens of one lane",
      { g: { 100: 0.25, 68: 0.5, 36: 0.75 }, beta: {} },
      "`g` must be a decay of at most 1, got 0.75 at token 9, head 0",
    ],
  ])("of what lets the state grow: %s", async (_, wrong, message) => {
    using device: Device = open({ validate: true });
    const [T, H, K] = [2000, 4, 16];
    const values = (at: Record<number, number>, right: number) => {
      const all = new Float32Array(T * H).fill(right);
      for (const [i, value] of Object.entries(at)) all[Number(i)] = value;
      return device.tensor("f32", [1, T, H], all);
    };
    const k = Float32Array.from({ length: T * 2 * K }, (_, i) => (i % 4 === 3 ? 0.5 : 0));
    const encoder = device.encoder();
    gatedDeltaRuleRecurrent(
      encoder,
      {
        q: device.tensor("f32", [1, T, 2, K], k),
        k: device.tensor("f32", [1, T, 2, K], k),
        v: device.tensor("f32", [1, T, H, 1]),
        g: values(wrong.g, 0),
        beta: values(wrong.beta, 1),
      },
      { scale: 1 },
    );
    await expect(encoder.commit()).rejects.toThrow(message);
  });
});
