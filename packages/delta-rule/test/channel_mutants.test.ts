// Mistakes in the chunked form with a gate for each channel: each must show on a case of the rule's suite, in f32 and in
// bf16, by a factor of 1.2 over the bar; mistakes of rounding against the reference with the same roundings.
import { type FloatDtype, roundTo } from "@mlxts/core";
import { BARS, type Case, compare, roundedInputs, suiteTests, within } from "@mlxts/core/testing";
import { describe, expect, it } from "vitest";
import { gatedDeltaRuleReference } from "../src/reference.ts";
import { chunkPipelineReference } from "../src/reference_chunk.ts";
import { type ChannelFault, faultyChannels } from "./faulty_channels.ts";
import { suite } from "./gated_delta_rule.suite.ts";
import { dataOf, normEps, type RuleOptions, ruleCase, ruleReference, shapeOf } from "./rule_cases.ts";

const FAULTS = [
  "kkt without decay",
  "kkt mask inclusive",
  "kkt without beta",
  "beta on the column key",
  "factored product",
  "sub-blocks refer to their last row",
  "decay of the row's channel sum",
  "no decay in w",
  "no decay of the query",
  "scores without decay",
  "output mask strict",
  "state not decayed",
  "keys not gated",
  "vNew gated too",
  "keys gated by the first token",
  "cumsum across chunks",
  "exclusive cumsum",
  "G_last from row BT - 1",
  "last chunk not in state",
  "snapshot after update",
  "decay on value rows",
] as const satisfies ChannelFault[];

const ROUNDINGS = [
  "query with decay rounded",
  "scores not rounded",
  "gated key not rounded",
  "gated key rounded twice",
  "vNew not rounded",
  "decayed key of w not rounded",
  "state rounded before w Sᵀ",
  "beta after the dot",
  "snapshot after update",
] as const satisfies ChannelFault[];

const optionsOf = (testCase: Case) => (testCase.options ?? {}) as unknown as RuleOptions;
const work = ({ inputs: { v, k } }: Case) => (v?.data.length ?? 0) * (k?.shape[3] ?? 0);
const cases = suite.cases
  .filter(({ inputs, options, ask }) => {
    const { path, gate = "ln", gqa = "block", stateLayout = "vk" } = options as unknown as RuleOptions;
    const plain = gate === "ln" && gqa === "block" && stateLayout === "vk" && !inputs.mask && !inputs.cuSeqlens;
    return plain && path === "chunk" && inputs.g?.shape.length === 4 && Object.keys(ask ?? {}).join() === "finalState";
  })
  .sort((a, b) => work(a) - work(b))
  .filter((testCase) => work(testCase) < 2e6);

const rounding = (act: FloatDtype) => (x: number) => roundTo(act, x);
const run = (
  shape: Parameters<typeof faultyChannels>[0],
  inputs: Parameters<typeof faultyChannels>[1],
  options: RuleOptions,
  round: (x: number) => number,
  fault?: ChannelFault,
) =>
  faultyChannels(shape, inputs, {
    BT: options.chunkLength ?? 64,
    scale: options.scale,
    normEps: normEps(options),
    round,
    fault,
  });

function prepared(testCase: Case, act: FloatDtype) {
  const inputs = Object.fromEntries(
    Object.entries(roundedInputs(testCase, act)).map(([name, { reference }]) => [name, reference]),
  );
  return { shape: shapeOf(inputs), inputs: dataOf(inputs), options: optionsOf(testCase) };
}

/** Whether o and the final state are within these bars. */
function pass(
  out: { o: Float64Array; finalState: Float64Array },
  right: { o: Float64Array; finalState: Float64Array },
  bars: { o: number; S: number },
  factor = 1,
): boolean {
  return (
    within(compare(out.o, right.o), bars.o, BARS.P.spread, factor) &&
    within(compare(out.finalState, right.finalState), bars.S, BARS.P.spread, factor)
  );
}

it("the faulty form without a fault is right", () => {
  expect(cases.length).toBeGreaterThan(30);
  for (const testCase of cases) {
    const { shape, inputs, options } = prepared(testCase, "f32");
    const exact = run(shape, inputs, options, (x) => x);
    expect(pass(exact, gatedDeltaRuleReference(shape, inputs, options), { o: 1e-9, S: 1e-9 }), testCase.name).toBe(
      true,
    );
  }
});

/** Fails where no case tells the form with `fault` from the right one. */
async function seen(act: FloatDtype, fault?: ChannelFault): Promise<void> {
  const name = fault ?? "none";
  const mutant = ruleReference(`${name} ${act}`, (shape, inputs, options) =>
    run(shape, inputs, options, rounding(act), fault),
  );
  const tests = suiteTests({ ...suite, cases, dtypes: [act], mutants: { [name]: mutant } }, () => {
    throw new Error("mutants need no device");
  });
  await tests.find((test) => test.name.endsWith(`rejects the mutant: ${name}`))?.run();
}

describe.each(["f32", "bf16"] as const)("in %s the suite's cases see", (act) => {
  it("nothing in the form without a fault", () => expect(seen(act)).rejects.toThrow("no case tells"));
  for (const fault of FAULTS) it(fault, () => seen(act, fault));
});

describe("the reference with roundings sees", () => {
  const setting = { B: 1, T: 200, Hk: 1, H: 2, K: 128, V: 64, gate: "weak", state: true, channels: true } as const;
  const { shape, inputs, options } = prepared(ruleCase(setting), "bf16");
  const right = chunkPipelineReference({ ...shape, BT: 64 }, inputs, options, rounding("bf16"));
  /** The bars of the pipeline against its rounding-aware reference. */
  const bars = { o: 4e-4, S: 2e-4 };
  it("nothing in the form without a fault", () => {
    expect(pass(run(shape, inputs, options, rounding("bf16")), right, { o: 1e-9, S: 1e-9 })).toBe(true);
  });
  for (const fault of ROUNDINGS)
    it(fault, () => {
      expect(pass(run(shape, inputs, options, rounding("bf16"), fault), right, bars, 1.2)).toBe(false);
    });
});
