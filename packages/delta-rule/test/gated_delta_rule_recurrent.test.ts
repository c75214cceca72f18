import { encodeNumbers, FLOATS } from "@mlxts/core";
import { type Case, sameBytes } from "@mlxts/core/testing";
import { expect, it } from "vitest";
import { DEVICES } from "../../../scripts/test-devices.ts";
import { testSuite } from "../../../scripts/test-suite.ts";
import { gatedDeltaRuleRecurrent } from "../src/index.ts";
import { BASE, suite } from "./gated_delta_rule_recurrent.suite.ts";
import { ruleCase } from "./rule_cases.ts";

testSuite(suite);

for (const [name, open] of DEVICES)
  for (const act of FLOATS)
    it(`gatedDeltaRuleRecurrent ${act} on ${name}: token by token gives the bits of one call`, async () => {
      using device = open();
      const { inputs } = ruleCase({ ...BASE, T: 13, V: 37 }, 9);
      const given = (name: string, begin = 0, end = 13) => {
        const { dtype, shape, data } = inputs[name] as Case["inputs"][string];
        const row = shape.slice(2).reduce((x, y) => x * y, 1);
        const concrete = dtype === "act" ? act : "f32";
        const raw = encodeNumbers(concrete, data).slice(begin * row, end * row);
        return device.tensor(concrete, [1, end - begin, ...shape.slice(2)], raw as Float32Array);
      };
      const at = (begin: number, end: number) => ({
        q: given("q", begin, end),
        k: given("k", begin, end),
        v: given("v", begin, end),
        g: given("g", begin, end),
        beta: given("beta", begin, end),
      });
      const state = () => device.tensor("f32", [1, 4, 37, 64], inputs.initialState?.data);
      const options = { scale: 0.125, qkNorm: "sum-eps" } as const;
      const encoder = device.encoder();
      const whole = gatedDeltaRuleRecurrent(
        encoder,
        { ...at(0, 13), initialState: state(), finalState: true },
        options,
      );
      await encoder.commit();
      const o = await whole.o.read();
      const carried = state();
      for (let t = 0; t < 13; t++) {
        const step = device.encoder();
        const result = gatedDeltaRuleRecurrent(
          step,
          { ...at(t, t + 1), initialState: carried, finalState: carried },
          options,
        );
        await step.commit();
        expect(sameBytes(await result.o.read(), o.slice(t * 4 * 37, (t + 1) * 4 * 37))).toBe(true);
      }
      expect(sameBytes(await carried.read(), (await whole.finalState?.read()) as Float32Array)).toBe(true);
    });
