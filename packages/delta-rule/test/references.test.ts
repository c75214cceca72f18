// The references against each other: the rule token by token, in chunks without rounding, and rolled back from its log.
import { roundedInputs } from "@mlxts/core/testing";
import { describe, expect, it } from "vitest";
import { gatedDeltaRollbackReference, gatedDeltaRuleReference, type RuleLog } from "../src/reference.ts";
import { chunkPipelineReference } from "../src/reference_chunk.ts";
import { dataOf, type RuleOptions, type RuleSetting, ruleCase, shapeOf } from "./rule_cases.ts";

const BASE: RuleSetting = { B: 1, T: 45, Hk: 2, H: 4, K: 8, V: 5, state: true };
const log = { lastTokens: 7, snapshotEvery: 16 };
const PACKED = [0, 0, 15, 15, 37, 45, 45];

const SETTINGS: RuleSetting[] = [
  BASE,
  { ...BASE, B: 2, state: false },
  { ...BASE, packed: PACKED },
  { ...BASE, packed: PACKED, channels: true, options: { stateLayout: "kv", gqa: "tiled" } },
  { ...BASE, B: 2, masked: true },
  { ...BASE, B: 2, masked: true, channels: true, options: { gate: "linear" } },
  ...(["none", "weak", "strong", "all -50", "half -50", "one -1000"] as const).flatMap((gate) =>
    [true, false].map((channels) => ({ ...BASE, gate, channels })),
  ),
  ...(["log2", "linear", "neg-ln"] as const).map((gate) => ({ ...BASE, options: { gate } })),
  ...(["none", "sum-eps", "mean-eps", "max-eps"] as const).map((qkNorm) => ({ ...BASE, qkNorm, keyNorm: 0.003 })),
  { ...BASE, options: { gqa: "tiled" } },
  { ...BASE, options: { stateLayout: "kv" } },
  { ...BASE, gate: "weak", repeated: "all", beta: 1.9 },
];

function both(setting: RuleSetting, BT: number) {
  const testCase = ruleCase(setting);
  const rounded = roundedInputs(testCase, "f32");
  const numbers = Object.fromEntries(Object.entries(rounded).map(([name, { reference }]) => [name, reference]));
  const options = { ...testCase.options, ...log } as unknown as RuleOptions;
  const [shape, inputs] = [shapeOf(numbers), dataOf(numbers)];
  const sequential = gatedDeltaRuleReference(shape, inputs, options);
  const chunked = chunkPipelineReference({ ...shape, BT }, inputs, options, (x) => x);
  return { shape, inputs, options, sequential, chunked };
}

/** Relative to the largest number; NaN only where both have it. */
function expectEqual(a: Float64Array | undefined, b: Float64Array | undefined, what: string) {
  const [x, y] = [a as Float64Array, b as Float64Array];
  expect(x.length, what).toBe(y.length);
  const largest = y.reduce((most, value) => Math.max(most, Math.abs(value) || 0), 1e-30);
  const wrong = x.findIndex((value, i) => {
    const other = y[i] as number;
    return Number.isNaN(other) ? !Number.isNaN(value) : !(Math.abs(value - other) <= 1e-12 * largest);
  });
  expect(wrong, what).toBe(-1);
}

describe("the chunked form without rounding is the sequential rule", () => {
  for (const setting of SETTINGS)
    for (const BT of [8, 16])
      it(`${JSON.stringify(setting)} BT ${BT}`, () => {
        const { sequential, chunked } = both(setting, BT);
        for (const output of ["o", "finalState", "snapshots"] as const)
          expectEqual(chunked[output], sequential[output], output);
        expect(sequential.o.every(Number.isFinite)).toBe(true);
        expect(sequential.finalState.every(Number.isFinite)).toBe(true);
      });
});

describe("the log and the last states", () => {
  for (const setting of SETTINGS)
    it(JSON.stringify(setting), () => {
      const { shape, inputs, options, sequential, chunked } = both(setting, 16);
      const { B, T, H, K, V } = shape;
      const n = log.lastTokens;
      const bounds = setting.packed ?? Array.from({ length: B + 1 }, (_, b) => b * T);
      const N = bounds.length - 1;
      const { lastStates = new Float64Array(), logDeltas = new Float64Array() } = sequential;
      const size = H * V * K;
      for (let rejected = 0; rejected < n; rejected++) {
        const back = gatedDeltaRollbackReference(
          { ...shape, N, n },
          sequential as unknown as RuleLog,
          new Array(N).fill(rejected),
          options,
        );
        for (let s = 0; s < N; s++) {
          const tokens = (bounds[s + 1] as number) - (bounds[s] as number);
          const state = back.subarray(s * size, (s + 1) * size);
          const slot = (s * n + rejected) * size;
          const slotState = lastStates.subarray(slot, slot + size);
          if (rejected <= tokens) expectEqual(state, slotState, `${rejected} of sequence ${s}`);
          else {
            expect(slotState.every((x) => x === 0)).toBe(true);
            const initial = inputs.initialState?.subarray(s * size, (s + 1) * size) ?? new Float64Array(size);
            expectEqual(state, initial, `more than its ${tokens} tokens of sequence ${s}`);
          }
        }
      }
      expectEqual(
        Float64Array.from(
          { length: N * size },
          (_, i) => lastStates[Math.floor(i / size) * n * size + (i % size)] ?? 0,
        ),
        sequential.finalState,
        "slot 0",
      );
      // The corrections are what the chunked form calls vNew.
      for (let s = 0; s < N; s++)
        for (let back = 1; back <= n; back++) {
          const t = (bounds[s + 1] as number) - back;
          const at = (s * n + n - back) * H * V;
          const deltas = logDeltas.subarray(at, at + H * V);
          if (t < (bounds[s] as number)) expect(deltas.every((x) => x === 0)).toBe(true);
          else expectEqual(deltas, chunked.vNew.subarray(t * H * V, (t + 1) * H * V), `token ${t}`);
        }
    });
});

it("every setting gives something to compare", () => {
  for (const setting of SETTINGS) {
    const { sequential } = both(setting, 16);
    for (const [name, output] of Object.entries(sequential) as [string, Float64Array][])
      if (name !== "logGates" || setting.gate !== "none")
        expect(output.some((x) => x !== 0 && Number.isFinite(x))).toBe(true);
  }
});
