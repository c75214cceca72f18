// The chunked form in 16 bits against its reference with the same roundings: but for ties that flip they are the same,
// so that roundings in another place or order show.
import { roundTo } from "@mlxts/core";
import { compare, roundedInputs } from "@mlxts/core/testing";
import { DEVICES } from "@mlxts/test-kit/devices";
import { describe, expect, it } from "vitest";
import { gatedDeltaRule } from "../src/index.ts";
import * as reference from "../src/reference_chunk.ts";
import { type Fault, faultyRule } from "./faulty_rule.ts";
import { optionsOf, type RuleCall } from "./rule_calls.ts";
import { dataOf, F1, F2, normEps, type RuleOptions, type RuleSetting, ruleCase, shapeOf } from "./rule_cases.ts";

type Half = "bf16" | "f16";
/** Of the output, rounded, and of the final state. In f16 all but the rarest ties cost an eighth of what they do in bf16. */
const BARS = { bf16: { o: 4e-4, finalState: 2e-4 }, f16: { o: 1e-4, finalState: 5e-5 } } as const;

const SMALL: RuleSetting = { ...F2, T: 150, Hk: 1, H: 2, K: 64, V: 64 };
const SETTINGS: Record<string, RuleSetting> = {
  F1,
  F2,
  packed: { ...SMALL, packed: [0, 15, 15, 100, 150] },
  "packed, other conventions": {
    ...SMALL,
    Hk: 2,
    H: 4,
    packed: [0, 64, 128, 150],
    options: { gate: "neg-ln", gqa: "tiled", stateLayout: "kv" },
  },
  masked: { ...SMALL, B: 2, H: 1, masked: true },
  channels: { ...SMALL, channels: true },
  "channels, other gates": { ...SMALL, gate: "sigmoid", channels: true },
  "channels, packed": { ...SMALL, channels: true, Hk: 2, packed: [0, 15, 15, 100, 150], options: { gqa: "tiled" } },
};

function numbersOf(setting: RuleSetting, act: Half) {
  const testCase = ruleCase(setting);
  const references = Object.entries(roundedInputs(testCase, act)).map(([name, r]) => [name, r.reference] as const);
  const numbers = Object.fromEntries(references);
  const options = testCase.options as unknown as RuleOptions;
  return { testCase, shape: { ...shapeOf(numbers), BT: 64 }, inputs: dataOf(numbers), options };
}

const known = new Map<string, ReturnType<typeof reference.chunkPipelineReference>>();
function expected(setting: RuleSetting, act: Half) {
  const key = `${act} ${JSON.stringify(setting)}`;
  const { shape, inputs, options } = numbersOf(setting, act);
  const result = known.get(key) ?? reference.chunkPipelineReference(shape, inputs, options, (x) => roundTo(act, x));
  known.set(key, result);
  return result;
}

const rounded = (x: Float64Array, act: Half) => x.map((value) => roundTo(act, value));

for (const [name, open] of DEVICES)
  describe(`the chunk path against its reference with roundings on ${name}`, () => {
    for (const [fixture, setting] of Object.entries(SETTINGS))
      for (const act of ["bf16", "f16"] as const)
        it(`${act} ${fixture}`, async () => {
          using device = open();
          const { testCase } = numbersOf(setting, act);
          const given = Object.entries(roundedInputs(testCase, act)).map(
            ([input, { dtype, shape, raw }]) => [input, device.tensor(dtype, shape, raw as Uint16Array)] as const,
          );
          const encoder = device.encoder();
          const call = { ...Object.fromEntries(given), finalState: true } as unknown as RuleCall;
          const out = gatedDeltaRule(encoder, call, optionsOf(testCase, { path: "chunk", chunkLength: 64 }));
          await encoder.commit();
          const { o, finalState } = expected(setting, act);
          const ratios = {
            o: compare(await out.o.readNumbers(), rounded(o, act)).ratio,
            finalState: compare((await out.finalState?.readNumbers()) ?? [], finalState).ratio,
          };
          for (const output of ["o", "finalState"] as const)
            expect(ratios[output], output).toBeLessThanOrEqual(BARS[act][output]);
        });
  });

/** Whether the outputs of a mistake are beyond the bars by a factor of 1.2. */
function seen(out: { o: Float64Array; finalState: Float64Array }, setting: RuleSetting, act: Half): boolean {
  const { o, finalState } = expected(setting, act);
  return (
    compare(rounded(out.o, act), rounded(o, act)).ratio > 1.2 * BARS[act].o ||
    compare(out.finalState, finalState).ratio > 1.2 * BARS[act].finalState
  );
}

describe("beyond the bars are", () => {
  for (const act of ["bf16", "f16"] as const)
    for (const fault of [
      undefined,
      "gate, then round d, then gate",
      "gated copy rounded twice",
      "gated copy not rounded",
      "state rounded before w Sᵀ",
      "X in bf16",
      "beta after the dot",
      "scores not rounded",
      "h in f32",
    ] satisfies (Fault | undefined)[])
      it(`${act}: ${fault ?? "(not the right ones)"}`, () => {
        const { shape, inputs, options } = numbersOf(SMALL, act);
        const round = (x: number) => roundTo(act, x);
        const { BT, ...dims } = shape;
        const { scale } = options;
        const out = faultyRule(dims, inputs, { BT, scale, normEps: normEps(options), round, fault });
        expect(seen(out, SMALL, act)).toBe(fault !== undefined);
      });

  /** Of the pipeline's stages those that are wrong. */
  const MISTAKES: Record<string, "A" | "X" | "wu" | "state" | "output" | undefined> = {
    "(not the right ones)": undefined,
    "beta after the dot": "A",
    "X in 16 bits": "X",
    "w and u of vectors that are not rounded": "wu",
    "keys not rounded after the gate": "state",
    "scores not rounded": "output",
  };
  for (const act of ["bf16", "f16"] as const)
    for (const [mistake, wrong] of Object.entries(MISTAKES))
      it(`${act}, a gate for each channel: ${mistake}`, () => {
        const setting = SETTINGS.channels as RuleSetting;
        const { shape, inputs, options } = numbersOf(setting, act);
        const { qUnit: q, kUnit: k, G } = expected(setting, act);
        const round = (x: number) => roundTo(act, x);
        const identity = (x: number) => x;
        const { v, beta, initialState } = inputs;
        const ones = beta.map(() => 1);
        const dots = reference.chunkKktReference(shape, k, wrong === "A" ? ones : beta, G, round);
        const A = wrong === "A" ? dots.map((x, i) => x * (beta[Math.floor(i / shape.BT)] as number)) : dots;
        const X = reference.chunkInverseReference(shape, A).map(wrong === "X" ? round : identity);
        const exact = reference.chunkWuReference(shape, k, v, beta, G, X, wrong === "wu" ? identity : round);
        const [w, u] = [exact.w.map(round), exact.u.map(round)];
        const states = reference.chunkStateReference(
          shape,
          k,
          w,
          u,
          G,
          initialState,
          wrong === "state" ? identity : round,
        );
        const [h, vNew] = [states.h.map(round), states.vNew.map(round)];
        const { scale } = options;
        const o = reference.chunkOutputReference(
          shape,
          q,
          k,
          vNew,
          h,
          G,
          { scale },
          wrong === "output" ? identity : round,
        );
        expect(seen({ o, finalState: states.finalState }, setting, act)).toBe(wrong !== undefined);
      });
});
