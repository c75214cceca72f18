import { encodeNumbers, FLOATS } from "@mlxts/core";
import { Random, sameBytes } from "@mlxts/core/testing";
import { expect, it } from "vitest";
import { DEVICES } from "../../../scripts/test-devices.ts";
import { testSuite } from "../../../scripts/test-suite.ts";
import { causalConv1d } from "../src/index.ts";
import { suite } from "./causal_conv1d.suite.ts";

const random = new Random(13);

testSuite(suite);

const DIMS = { T: 37, C: 45, W: 4 };

for (const [name, open] of DEVICES)
  for (const act of FLOATS)
    for (const state of [act, "f32"] as const)
      it(`causalConv1d ${act} on ${name}: any cut of T gives the same bits, state ${state}`, async () => {
        const { T, C, W } = DIMS;
        using device = open();
        const x = encodeNumbers(act, random.normals(T * C)) as Uint16Array;
        const weight = device.tensor(act, [C, W], random.normals(C * W));
        const bias = device.tensor(act, [C], random.normals(C));
        const whole = device.encoder();
        const expected = causalConv1d(
          whole,
          { x: device.tensor(act, [1, T, C], x), weight, bias, newState: device.tensor(state, [1, W - 1, C]) },
          { activation: "silu" },
        );
        await whole.commit();
        const y = await expected.y.read();
        for (const cuts of [
          [1, 1, 1, 1, 33],
          [2, 3, 5, 27],
          [36, 1],
          [7, 30],
        ]) {
          const carried = device.tensor(state, [1, W - 1, C]);
          let begin = 0;
          for (const length of cuts) {
            const encoder = device.encoder();
            const piece = device.tensor(act, [1, length, C], x.slice(begin * C, (begin + length) * C));
            const result = causalConv1d(
              encoder,
              { x: piece, weight, bias, ...(begin > 0 && { state: carried }), newState: carried },
              { activation: "silu" },
            );
            await encoder.commit();
            expect(sameBytes(await result.y.read(), y.slice(begin * C, (begin + length) * C))).toBe(true);
            begin += length;
          }
          expect(sameBytes(await carried.read(), (await expected.newState?.read()) as Uint16Array)).toBe(true);
        }
      });
