import { roundTo } from "@mlxts/core";
import { BARS, type Comparison, compare, roundedInputs, within } from "@mlxts/core/testing";
import { describe, expect, it } from "vitest";
import { gatedDeltaRuleReference, type RuleInputs, type RuleShape } from "../src/reference.ts";
import { chunkPipelineReference } from "../src/reference_chunk.ts";
import { type Fault, faultyRule, faultySequence, type SequentialFault } from "./faulty_rule.ts";
import { FIXTURES, normEps, type RuleOptions, type RuleSetting, ruleCase, shapeOf } from "./rule_cases.ts";

type FixtureName = keyof typeof FIXTURES;

interface Fixture {
  shape: RuleShape;
  inputs: RuleInputs;
  options: RuleOptions;
}
interface Result {
  o: Float64Array;
  finalState: Float64Array;
}

const bf16 = (x: number) => roundTo("bf16", x);
const identity = (x: number) => x;

function fixture(setting: RuleSetting): Fixture {
  const testCase = ruleCase(setting);
  const rounded = roundedInputs(testCase, "bf16");
  const references = Object.fromEntries(Object.entries(rounded).map(([name, { reference }]) => [name, reference]));
  return {
    shape: shapeOf(references),
    inputs: Object.fromEntries(
      Object.entries(references).map(([name, { data }]) => [name, data]),
    ) as unknown as RuleInputs,
    options: testCase.options as unknown as RuleOptions,
  };
}

const fixtures = Object.fromEntries(
  Object.entries(FIXTURES).map(([name, setting]) => [name, fixture(setting)]),
) as Record<FixtureName, Fixture>;

const once = <T>(make: (name: FixtureName) => T) => {
  const known = new Map<FixtureName, T>();
  return (name: FixtureName): T => {
    const value = known.get(name) ?? make(name);
    known.set(name, value);
    return value;
  };
};
const truth = once((name) => {
  const { shape, inputs, options } = fixtures[name];
  return gatedDeltaRuleReference(shape, inputs, options);
});
const rounded = once((name): Result => {
  const { shape, inputs, options } = fixtures[name];
  return chunkPipelineReference({ ...shape, BT: 64 }, inputs, options, bf16);
});

function run(name: FixtureName, fault: Fault | undefined, round = bf16): Result {
  const { shape, inputs, options } = fixtures[name];
  return faultyRule(shape, inputs, { BT: 64, scale: options.scale, normEps: normEps(options), round, fault });
}

function runSequence(name: FixtureName, fault: SequentialFault | undefined): Result {
  const { shape, inputs, options } = fixtures[name];
  return faultySequence(shape, inputs, { scale: options.scale, normEps: normEps(options), fault });
}

/** Which outputs give a wrong result away, by a factor of 1.2 over the bar: "o", "S", "oS" or "". */
function visible(result: Result, reference: Result, bars: { o: number; S: number }): string {
  const fails = (c: Comparison, bar: number) => !within(c, bar, BARS.P.spread, 1.2);
  return `${fails(compare(result.o, reference.o), bars.o) ? "o" : ""}${
    fails(compare(result.finalState, reference.finalState), bars.S) ? "S" : ""
  }`;
}
const barsOf = (errorClass: "P" | "H", act: "f32" | "bf16") => ({ o: BARS[errorClass][act], S: BARS[errorClass][act] });
const CLASS_P = barsOf("P", "bf16");
const CLASS_H = barsOf("H", "bf16");
/** Against the pipeline in f64 with the same roundings. */
const CLASS_Q = { o: 4e-4, S: 2e-4 };

describe("the faulty rule without a fault", () => {
  for (const name of Object.keys(FIXTURES) as FixtureName[])
    it(`is right: ${name}`, () => {
      const exact = run(name, undefined, identity);
      expect(visible(exact, truth(name), { o: 1e-9, S: 1e-9 })).toBe("");
      expect(visible(run(name, undefined), rounded(name), { o: 1e-9, S: 1e-9 })).toBe("");
      expect(visible(runSequence(name, undefined), truth(name), { o: 1e-9, S: 1e-9 })).toBe("");
      expect(visible(run(name, undefined), truth(name), name === "repeated keys" ? CLASS_H : CLASS_P)).toBe("");
    });
});

/** Where each mistake must show: outputs on F1 and on F2, or on a fixture of its own. */
const FAULTS: Partial<Record<Fault, [f1: string, f2: string] | FixtureName>> = {
  "cumsum across chunks": ["o", "oS"],
  "exclusive cumsum": ["oS", "oS"],
  "no cumsum": ["oS", "oS"],
  "kkt mask inclusive": ["oS", "oS"],
  "output mask strict": ["o", "o"],
  "kkt without beta": ["oS", "oS"],
  "beta on the column key": ["oS", "oS"],
  "kkt without decay": ["oS", "oS"],
  "inverse is I - A": ["", "oS"],
  "vNew stored gated": ["o", "o"],
  "u used for vNew": ["o", "o"],
  "v used for vNew": ["o", "o"],
  "no decay in w": ["oS", "oS"],
  "state not decayed": ["oS", "oS"],
  "state not gated": ["oS", "oS"],
  "snapshot after update": ["o", "o"],
  "tiled head map": ["oS", "oS"],
  "h0 ignored": ["o", "oS"],
  "h0 transposed": ["o", "oS"],
  "final state transposed": ["S", "S"],
  "no scale": ["o", "o"],
  "scale twice": ["o", "o"],
  "q not normalized": ["o", "o"],
  "k not normalized": ["o", "o"],
  "last chunk not in state": ["S", "S"],
  "G_last from row BT - 1": ["S", "S"],
  "junk in rows of the tail": ["S", "S"],
  "log2 read as ln": ["oS", "oS"],
  "mean-eps": "short keys",
  "max-eps": "small keys",
  "product-form inverse in f32": "repeated keys",
  "exp before mask": "strong decay",
  "mask by sign of the exponent": "no decay",
  "per-batch stride from key heads": "batch",
  "undecayed prediction": ["oS", "oS"],
};

describe.each(["bf16", "f32"] as const)("in %s class P sees", (act) => {
  const round = act === "f32" ? Math.fround : bf16;
  const [classP, classH] = [barsOf("P", act), barsOf("H", act)];
  it("nothing in the rule without a fault", () => {
    for (const name of Object.keys(FIXTURES) as FixtureName[])
      expect(visible(run(name, undefined, round), truth(name), name === "repeated keys" ? classH : classP)).toBe("");
  });
  for (const [fault, where] of Object.entries(FAULTS) as [Fault, [string, string] | FixtureName][])
    it(fault, () => {
      if (typeof where === "string")
        return expect(
          visible(run(where, fault, round), truth(where), where === "repeated keys" ? classH : classP),
        ).not.toBe("");
      const seen = [
        visible(run("F1", fault, round), truth("F1"), classP),
        visible(run("F2", fault, round), truth("F2"), classP),
      ];
      for (const [i, outputs] of where.entries())
        for (const output of outputs) expect(seen[i], `F${i + 1}`).toContain(output);
    });
  for (const [fault, f1, f2] of [
    ["no delta term", "oS", "oS"],
    ["query before update", "o", "o"],
    ["decay after update", "oS", "oS"],
  ] as const)
    it(fault, () => {
      const seen = [runSequence("F1", fault), runSequence("F2", fault)].map((result, i) =>
        visible(result, truth(i === 0 ? "F1" : "F2"), classP),
      );
      for (const output of f1) expect(seen[0], "F1").toContain(output);
      for (const output of f2) expect(seen[1], "F2").toContain(output);
    });
});

it("the undecayed prediction is the same mistake in both forms", () => {
  const [chunked, sequential] = [
    run("F2", "undecayed prediction", identity),
    runSequence("F2", "undecayed prediction"),
  ];
  expect(visible(chunked, sequential, { o: 1e-9, S: 1e-9 })).toBe("");
});

describe("the reference with roundings sees", () => {
  for (const fault of [
    "gate, then round d, then gate",
    "gated copy rounded twice",
    "gated copy not rounded",
    "state rounded before w Sᵀ",
    "X in bf16",
    "beta after the dot",
    "scores not rounded",
    "h in f32",
  ] satisfies Fault[])
    it(fault, () => expect(visible(run("F2", fault), rounded("F2"), CLASS_Q)).not.toBe(""));
});

it("X in bf16 is seen on repeated keys where all else is f32", () => {
  const bars = { o: BARS.H.f32, S: BARS.H.f32 };
  expect(visible(run("repeated keys", undefined, Math.fround), truth("repeated keys"), bars)).toBe("");
  expect(visible(run("repeated keys", "X in bf16", Math.fround), truth("repeated keys"), bars)).toBe("oS");
});
