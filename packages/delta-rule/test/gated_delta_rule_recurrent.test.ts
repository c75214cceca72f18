import { cpuLevels, Device, encodeNumbers, FLOATS } from "@mlxts/core";
import { type Case, type Suite, sameBytes } from "@mlxts/core/testing";
import { expect, it } from "vitest";
import { testSuite } from "../../../scripts/test-suite.ts";
import { gatedDeltaRuleRecurrent } from "../src/index.ts";
import { FIXTURES, type RuleSetting, ruleCase, sequentialReference } from "./rule_cases.ts";

const BASE: RuleSetting = { B: 1, T: 5, Hk: 2, H: 4, K: 64, V: 32, state: true };

const cases: Case[] = [
  ...Object.values<RuleSetting>(FIXTURES).map((fixture) => ruleCase(fixture)),
  ...[1, 2, 15, 16, 17, 31, 33, 64, 65].map((T) => ruleCase({ ...BASE, T })),
  ...[1, 3, 8, 12, 20, 96, 100, 128, 192, 250, 256].map((K) => ruleCase({ ...BASE, K })),
  ...[1, 2, 3, 5, 31, 33, 64, 100, 128, 200].map((V) => ruleCase({ ...BASE, V, T: V < 8 ? 60 : 3 })),
  ...[
    [1, 1],
    [2, 2],
    [2, 8],
    [1, 8],
    [16, 16],
    [16, 48],
    [24, 24],
  ].map(([Hk, H]) => ruleCase({ ...BASE, T: 2, Hk: Hk as number, H: H as number })),
  ruleCase({ ...BASE, B: 3 }),
  ruleCase({ ...BASE, B: 3, state: false }),
  ...(["none", "weak", "strong", "rare", "all -50", "half -50", "one -1000"] as const).map((gate) =>
    ruleCase({ ...BASE, T: 70, gate }),
  ),
  ...(["half", "all"] as const).flatMap((repeated) =>
    [0.99, 1.9].map((beta) => ruleCase({ ...BASE, T: 70, repeated, beta })),
  ),
  ruleCase({ ...BASE, qkNorm: "none" }),
  ...[0.003, 0.01].map((keyNorm) => ruleCase({ ...BASE, keyNorm, T: 20 })),
  ruleCase({ ...BASE, keyNorm: 0.01, T: 20, options: { qkNormEps: 1e-3 } }),
];

const suite: Suite = {
  op: gatedDeltaRuleRecurrent,
  errorClass: "P",
  reference: sequentialReference,
  cases: [
    ...cases,
    { ...ruleCase({ ...BASE, T: 1 }, 5), inPlace: { finalState: "initialState" } },
    { ...ruleCase({ ...BASE, T: 9, V: 33 }, 6), inPlace: { finalState: "initialState" } },
    { ...ruleCase({ ...BASE, T: 9, V: 33 }, 7), ask: {} },
    { ...ruleCase({ ...BASE, T: 9, state: false }, 8), ask: {} },
  ],
};

testSuite(suite);

for (const level of cpuLevels())
  for (const act of FLOATS)
    it(`gatedDeltaRuleRecurrent ${act} on cpu ${level}: token by token gives the bits of one call`, async () => {
      using device = Device.open("cpu", { level });
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
