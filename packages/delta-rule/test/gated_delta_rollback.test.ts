import { type Device, FLOATS } from "@mlxts/core";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { gatedDeltaRollback } from "../src/index.ts";
import { type Bits, expectSame, piece, type Row, rowOf, run, tokenBits, VARIANTS } from "./row_calls.ts";

const LOG = ["logState", "logKeys", "logDeltas", "logGates"];

/** The state before the last `rejected` tokens of each sequence, from the log of a call. */
async function rollback(device: Device, row: Row, log: Bits, n: number, rejected: readonly number[], inPlace = false) {
  const N = rejected.length;
  const { q, v, g } = row.case.inputs as Record<"q" | "v" | "g", { shape: readonly number[] }>;
  const tensor = (name: string, shape: readonly number[]) => device.tensor("f32", shape, log[name] as Float32Array);
  const logState = tensor("logState", [N, ...row.state]);
  const inputs = {
    logState,
    logKeys: tensor("logKeys", [N, n, ...q.shape.slice(2)]),
    logDeltas: tensor("logDeltas", [N, n, ...v.shape.slice(2)]),
    logGates: tensor("logGates", [N, n, ...g.shape.slice(2)]),
    rejected: device.tensor("i32", [N], rejected),
    ...(inPlace && { finalState: logState }),
  };
  const { gate, gqa, stateLayout } = row.case.options as Parameters<typeof gatedDeltaRollback>[2] & object;
  const options = Object.fromEntries(Object.entries({ gate, gqa, stateLayout }).filter(([, value]) => value));
  const encoder = device.encoder();
  const result = gatedDeltaRollback(encoder, inputs, options);
  await encoder.commit();
  return await result.read();
}

for (const [name, open] of DEVICES)
  describe(`gatedDeltaRollback on ${name}`, () => {
    for (const [index, [variant, setting]] of Object.entries(VARIANTS).entries()) {
      const act = FLOATS[index % FLOATS.length] as (typeof FLOATS)[number];

      it(`${variant}, ${act}: taken back and run again is never having run`, async () => {
        using device = open();
        const row = rowOf(setting, act);
        const plain = await run(device, row);
        // The log of the whole row, of all of it, and of more than there is.
        for (const n of [5, row.T, row.T + 3]) {
          const whole = await run(device, row, { options: { lastTokens: n }, ask: LOG });
          for (let m = 0; m <= n; m++) {
            const stays = Math.max(row.T - m, 0);
            const state = await rollback(device, row, whole, n, [m], m % 2 === 1);
            const ended = stays > 0 ? await run(device, row, { end: stays }) : { finalState: row.initialState };
            expectSame(`state ${m} of ${n} tokens back`, state, ended.finalState);
            if (stays === row.T) continue;
            const again = await run(device, row, { begin: stays, state });
            expectSame(`o of ${m} tokens again`, again.o, tokenBits(plain.o, row.T, stays, row.T));
            expectSame(`state after ${m} tokens again`, again.finalState, plain.finalState);
          }
        }
      });

      if (!setting.masked)
        it(`${variant}, ${act}: each packed sequence takes back its own`, async () => {
          using device = open();
          const [cu, n] = [[0, 0, 6, 8, 13, 13], 4];
          const N = cu.length - 1;
          const row = rowOf(setting, act, N);
          const log = await run(device, row, { cu, options: { lastTokens: n }, ask: LOG });
          for (const rejected of [
            [0, 0, 0, 0, 0],
            [4, 4, 4, 4, 4],
            [1, 3, 1, 2, 0],
          ]) {
            const states = await rollback(device, row, log, n, rejected);
            for (const [s, m] of rejected.entries()) {
              const [begin, end] = cu.slice(s, s + 2) as [number, number];
              const state = piece(row.initialState, s, N);
              const stays = Math.max(end - m, begin);
              const ended = stays > begin ? await run(device, row, { begin, end: stays, state }) : undefined;
              expectSame(`sequence ${s}, ${m} back`, piece(states, s, N), ended ? ended.finalState : state);
            }
          }
        });
    }

    it.each([
      [[0, 5, 0], "got 5 at sequence 1"],
      [[-1, 4, 0], "got -1 at sequence 0"],
      [[0, 0, 0x7fffffff], "got 2147483647 at sequence 2"],
      [Array.from({ length: 70 }, (_, s) => (s === 66 ? 9 : 4)), "got 9 at sequence 66"],
    ])("refuses %s and writes nothing", async (rejected, got) => {
      using device = open();
      const N = rejected.length;
      const numbers = (...shape: number[]) =>
        device.tensor(
          "f32",
          shape,
          Float32Array.from({ length: shape.reduce((x, y) => x * y, 1) }, (_, i) => i % 5),
        );
      const [n, Hk, H, K, V] = [4, 1, 2, 8, 18];
      const finalState = device.tensor("f32", [N, H, V, K], new Float32Array(N * H * V * K).fill(7));
      const encoder = device.encoder();
      gatedDeltaRollback(encoder, {
        logState: numbers(N, H, V, K),
        logKeys: numbers(N, n, Hk, K),
        logDeltas: numbers(N, n, H, V),
        logGates: numbers(N, n, H),
        rejected: device.tensor("i32", [N], rejected),
        finalState,
      });
      const message = `gatedDeltaRollback: \`rejected\` must be at least 0 and at most the 4 tokens of the log, ${got}`;
      await expect(encoder.commit()).rejects.toThrow(message);
      expect(finalState.typedArray().every((x) => x === 7)).toBe(true);
    });
  });
