// Mistakes in what a call may ask for beside the plain rule: each must show on a case of the rule's suite for each
// path, and on one of the recurrent op's, in f32 and in bf16, by a factor of 1.2 over the bar.
import type { FloatDtype } from "@mlxts/core";
import { type Case, compare, roundedInputs, suiteTests, within } from "@mlxts/core/testing";
import { describe, expect, it } from "vitest";
import { gatedDeltaRuleReference, type RuleResults } from "../src/reference.ts";
import { type FeatureFault, faultyFeatures } from "./faulty_features.ts";
import { suite as chunked } from "./gated_delta_rule.suite.ts";
import { suite as recurrent } from "./gated_delta_rule_recurrent.suite.ts";
import { dataOf, type RuleFunction, type RuleOptions, ruleReference, shapeOf } from "./rule_cases.ts";

/** Multiply-adds of the state. */
const work = ({ inputs: { v, k } }: Case) => (v?.data.length ?? 0) * (k?.shape[3] ?? 0);
const small = (testCase: Case) => work(testCase) < 1e6;
const optionsOf = (testCase: Case) => (testCase.options ?? {}) as unknown as RuleOptions;
const asks = (name: string) => (testCase: Case) => testCase.ask?.[name] !== undefined;
const given = (name: string) => (testCase: Case) => testCase.inputs[name] !== undefined;
const withNorm = (norm: RuleOptions["qkNorm"]) => (testCase: Case) =>
  optionsOf(testCase).qkNorm === norm && testCase.name.includes("keyNorm:");
const withGate =
  (...gates: RuleOptions["gate"][]) =>
  (testCase: Case) =>
    gates.includes(optionsOf(testCase).gate ?? "ln");
const withMap = (gqa: RuleOptions["gqa"]) => (testCase: Case) =>
  (optionsOf(testCase).gqa ?? "block") === gqa && (testCase.inputs.k?.shape[2] ?? 1) > 1;
const channels = ({ inputs }: Case) => inputs.g?.shape.length === 4;
const all =
  (...needs: ((testCase: Case) => boolean)[]) =>
  (testCase: Case) =>
    needs.every((need) => need(testCase));

/** Where each mistake can show; a mistake with no such case, or that no such case sees, fails. */
const FAULTS: Record<FeatureFault, (testCase: Case) => boolean> = {
  "initial state in the other layout": given("initialState"),
  "final state in the other layout": asks("finalState"),
  "snapshots in the other layout": asks("snapshots"),
  "last states in the other layout": asks("lastStates"),
  "log state in the other layout": asks("logState"),
  "mean-eps for sum-eps": all(withNorm("sum-eps"), ({ name }) => name.includes("keyNorm:0.01")),
  "sum-eps for mean-eps": withNorm("mean-eps"),
  "mean-eps without the root of K": withNorm("mean-eps"),
  "max-eps for sum-eps": withNorm("sum-eps"),
  "sum-eps for max-eps": withNorm("max-eps"),
  "eps outside of the root": withNorm("sum-eps"),
  "block for tiled": withMap("tiled"),
  "tiled for block": withMap("block"),
  "gate read as ln": withGate("log2", "linear", "neg-ln"),
  "ln read as log2": withGate("ln"),
  "logarithm of a decay of 0": all(withGate("linear"), (testCase) => !channels(testCase)),
  "state leaks between sequences": given("cuSeqlens"),
  "initial state of the first sequence for all": all(given("cuSeqlens"), given("initialState")),
  "empty sequences end with zeros": all(given("cuSeqlens"), given("initialState")),
  "final state of the last sequence for all": given("cuSeqlens"),
  "sequences end a token late": given("cuSeqlens"),
  "mask zeroes o but updates the state": given("mask"),
  "skipped tokens decay the state": given("mask"),
  "o of skipped tokens is read from the state": given("mask"),
  "mask of the first row for all": given("mask"),
  "only 1 is kept by the mask": given("mask"),
  "snapshots a boundary late": asks("snapshots"),
  "snapshots a boundary early": asks("snapshots"),
  "snapshots before their last token": asks("snapshots"),
  "snapshots counted from the row's beginning": all(asks("snapshots"), given("cuSeqlens")),
  "snapshots placed by the row's tokens": all(asks("snapshots"), given("cuSeqlens")),
  "last states oldest first": asks("lastStates"),
  "last states a token early": asks("lastStates"),
  "initial state in all older slots": asks("lastStates"),
  "no initial state among the last states": asks("lastStates"),
  "log keys not normalized": asks("logKeys"),
  "log keys rounded": asks("logKeys"),
  "log deltas without beta": asks("logDeltas"),
  "log deltas of the undecayed prediction": asks("logDeltas"),
  "log gates summed up": asks("logGates"),
  "log gates as ln": all(asks("logGates"), withGate("log2", "linear", "neg-ln")),
  "log state at the end": asks("logState"),
  "log state a token late": asks("logState"),
  "log entries from the left": asks("logKeys"),
  "absent entries decay to zero": all(asks("logGates"), withGate("linear")),
  "gates of channels transposed": channels,
  "one channel's gate for all": channels,
  "gates of channels on value rows": channels,
};

/** Of each path the cases, as the two must not rely on each other's. */
const PATHS = [
  ["chunk path", chunked.cases.filter((testCase) => optionsOf(testCase).path === "chunk")],
  ["recurrent path", chunked.cases.filter((testCase) => optionsOf(testCase).path === "recurrent")],
  ["recurrent op", recurrent.cases],
] as const;

/** That some case of the suite tells the mutant from the right op. */
async function caught(cases: Case[], act: FloatDtype, name: string, mutant: RuleFunction) {
  const reference = ruleReference(name, mutant);
  const tests = suiteTests({ ...chunked, cases, dtypes: [act], mutants: { [name]: reference } }, () => {
    throw new Error("mutants need no device");
  });
  await tests.find((test) => test.name.endsWith(`rejects the mutant: ${name}`))?.run();
}

describe.each(PATHS)("the cases of the %s", (_, ofPath) => {
  // Small ones first: a mistake that one of them shows needs no other.
  const cases = ofPath.filter(small).sort((a, b) => work(a) - work(b));

  it("do not tell the faulty form without a fault from the reference", () => {
    for (const testCase of cases.filter((each) => work(each) < 2e5)) {
      const inputs = Object.fromEntries(
        Object.entries(roundedInputs(testCase, "f32")).map(([name, { reference }]) => [name, reference]),
      );
      const [shape, data, options] = [shapeOf(inputs), dataOf(inputs), optionsOf(testCase)];
      const right = gatedDeltaRuleReference(shape, data, options);
      for (const [output, out] of Object.entries(faultyFeatures(undefined)(shape, data, options)))
        expect(
          within(compare(out, right[output as keyof RuleResults] as Float64Array), 1e-12, 1e3),
          testCase.name,
        ).toBe(true);
    }
  });

  for (const [fault, needs] of Object.entries(FAULTS) as [FeatureFault, (testCase: Case) => boolean][])
    for (const act of ["f32", "bf16"] as const)
      it(`${act}: ${fault}`, () => caught(cases.filter(needs), act, fault, faultyFeatures(fault)));
});
