// Calls of the rule on tokens, sequences and states of a case, for tests that compare bits.
import { type Device, encodeNumbers, type FloatDtype, type RawArray, type Tensor } from "@mlxts/core";
import type { Case, CaseInput } from "@mlxts/core/testing";
import { sameBytes } from "@mlxts/core/testing";
import { gatedDeltaRule } from "../src/index.ts";
import { type RuleSetting, ruleCase } from "./rule_cases.ts";

export type RuleCall = Parameters<typeof gatedDeltaRule>[1];
export type Options = Parameters<typeof gatedDeltaRule>[2];
type PerToken = Pick<RuleCall, "q" | "k" | "v" | "g" | "beta" | "mask">;

const SMALL: RuleSetting = { B: 1, T: 100, Hk: 2, H: 4, K: 24, V: 20, state: true };

/** What the tensors of a call may be like. */
export const KINDS = {
  "a gate for each head": SMALL,
  "a gate for each channel": { ...SMALL, channels: true },
  "other conventions": { ...SMALL, options: { gate: "linear", gqa: "tiled", stateLayout: "kv" } },
  "other conventions, a gate for each channel": {
    ...SMALL,
    channels: true,
    options: { gate: "log2", gqa: "tiled", stateLayout: "kv" },
  },
} satisfies Record<string, RuleSetting>;

export const PATHS = [
  { path: "recurrent", chunkLength: 16 },
  { path: "chunk", chunkLength: 16 },
  { path: "chunk", chunkLength: 32 },
] as const;

export const optionsOf = (testCase: Case, more: Partial<Options>): Options =>
  ({ ...testCase.options, ...more }) as unknown as Options;

const concrete = (dtype: CaseInput["dtype"], act: FloatDtype) => (dtype === "act" ? act : dtype);

/** A case's tensors of a token each, from token `begin` of its one row to `end`. */
export function tokensOf(device: Device, testCase: Case, act: FloatDtype, begin = 0, end = Infinity): PerToken {
  const names = ["q", "k", "v", "g", "beta", "mask"].filter((name) => testCase.inputs[name]);
  return Object.fromEntries(
    names.map((name) => {
      const { dtype, shape, data } = testCase.inputs[name] as CaseInput;
      const [, T, ...rest] = shape as [number, number, ...number[]];
      const row = data.length / T;
      const last = Math.min(end, T);
      const raw = encodeNumbers(concrete(dtype, act), data).slice(begin * row, last * row);
      return [name, device.tensor(concrete(dtype, act), [1, last - begin, ...rest], raw as Float32Array)];
    }),
  ) as unknown as PerToken;
}

/** The initial states of sequences `begin` … `end` − 1. */
export function statesOf(device: Device, testCase: Case, begin = 0, end = Infinity): Tensor {
  const { shape, data } = testCase.inputs.initialState as CaseInput;
  const [N, ...rest] = shape as [number, ...number[]];
  const size = data.length / N;
  const last = Math.min(end, N);
  const raw = encodeNumbers("f32", data).slice(begin * size, last * size);
  return device.tensor("f32", [last - begin, ...rest], raw as Float32Array);
}

export const stateOf = (device: Device, like: Tensor, raw: RawArray): Tensor =>
  device.tensor("f32", like.shape, raw as Float32Array);

export type Bits = Record<string, RawArray>;

/** What a call gives, on the host. */
export async function rule(device: Device, inputs: RuleCall, options: Options): Promise<Bits> {
  const encoder = device.encoder();
  const outputs = gatedDeltaRule(encoder, inputs, options);
  await encoder.commit();
  const bits: Bits = {};
  for (const [name, tensor] of Object.entries(outputs)) if (tensor) bits[name] = await (tensor as Tensor).read();
  return bits;
}

/** Everything that a call can give. */
export const EVERYTHING = {
  finalState: true,
  snapshots: true,
  lastStates: true,
  logState: true,
  logKeys: true,
  logDeltas: true,
  logGates: true,
} as const;

/** Part `index` of so many equal ones. */
export function part(raw: RawArray | undefined, index: number, of: number, count = 1): RawArray {
  const { length } = raw as RawArray;
  return (raw as RawArray).slice((index * length) / of, ((index + count) * length) / of);
}

export const equal = (a: RawArray | undefined, b: RawArray | undefined): boolean =>
  sameBytes(a as RawArray, b as RawArray);

export const kindCase = (kind: keyof typeof KINDS, more: Partial<RuleSetting> = {}): Case =>
  ruleCase({ ...(KINDS[kind] as RuleSetting), ...more });
