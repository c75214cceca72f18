// Calls of the recurrent op on parts of a case, for tests that compare bits.
import { type Device, encodeNumbers, type FloatDtype, type RawArray, type Tensor } from "@mlxts/core";
import { type Case, sameBytes } from "@mlxts/core/testing";
import { gatedDeltaRuleRecurrent } from "../src/index.ts";
import type { RuleOptions } from "../src/options.ts";
import { type RuleSetting, ruleCase } from "./rule_cases.ts";

export type Bits = Record<string, RawArray>;

/** A case of one row of tokens. */
export interface Row {
  case: Case;
  act: FloatDtype;
  T: number;
  /** Shape of a sequence's state, without the number of sequences. */
  state: readonly number[];
  initialState: RawArray;
}

export function rowOf(setting: Omit<RuleSetting, "B" | "state" | "packed">, act: FloatDtype, sequences = 1): Row {
  const { H, K, V, T, options } = setting;
  const made = ruleCase({ ...setting, B: 1, state: true }, 71);
  const state = [H, ...(options?.stateLayout === "kv" ? [K, V] : [V, K])];
  const size = sequences * H * K * V;
  const given = made.inputs.initialState?.data as Float64Array;
  // Another number for each sequence, and zeros of either sign.
  const initialState = Float32Array.from({ length: size }, (_, i) =>
    i % 97 === 5 ? -0 : (given[i % given.length] as number) + Math.floor(i / given.length),
  );
  return { case: made, act, T, state, initialState };
}

/** Tokens begin … end − 1 of a row as tensors of one row. */
export function tokensOf(device: Device, row: Row, begin = 0, end = row.T): Record<string, Tensor> {
  const entries = Object.entries(row.case.inputs).filter(([name]) => name !== "initialState");
  return Object.fromEntries(
    entries.map(([name, { dtype, shape, data }]) => {
      const concrete = dtype === "act" ? row.act : dtype;
      const size = data.length / row.T;
      const raw = encodeNumbers(concrete, data).slice(begin * size, end * size) as RawArray;
      return [name, device.tensor(concrete, [1, end - begin, ...shape.slice(2)], raw as Float32Array)];
    }),
  );
}

export interface Part {
  begin?: number;
  end?: number;
  /** Default: that of the row. */
  state?: RawArray;
  /** Where packed sequences begin and end. */
  cu?: readonly number[];
  options?: Partial<RuleOptions>;
  ask?: readonly string[];
}

/** Runs the recurrent op on a part of a row; what it wrote. */
export async function run(device: Device, row: Row, part: Part = {}): Promise<Bits> {
  const { begin = 0, end = row.T, state = row.initialState, cu, options, ask = [] } = part;
  const N = cu ? cu.length - 1 : 1;
  const inputs = {
    ...tokensOf(device, row, begin, end),
    initialState: device.tensor("f32", [N, ...row.state], state as Float32Array),
    ...(cu && { cuSeqlens: device.tensor("i32", [N + 1], cu) }),
    ...Object.fromEntries(["finalState", ...ask].map((name) => [name, true])),
  };
  const encoder = device.encoder();
  const results = gatedDeltaRuleRecurrent(
    encoder,
    inputs as unknown as Parameters<typeof gatedDeltaRuleRecurrent>[1],
    { ...row.case.options, ...options } as Parameters<typeof gatedDeltaRuleRecurrent>[2],
  );
  await encoder.commit();
  const bits: Bits = {};
  for (const [name, tensor] of Object.entries(results)) if (tensor) bits[name] = await (tensor as Tensor).read();
  return bits;
}

/** Part `index` of `count` equal ones. */
export function piece(array: RawArray | undefined, index: number, count: number): RawArray {
  const { length } = array as RawArray;
  return (array as RawArray).slice((index * length) / count, ((index + 1) * length) / count) as RawArray;
}

/** Elements of tokens begin … end − 1 of a row's output. */
export const tokenBits = (o: RawArray | undefined, T: number, begin: number, end: number): RawArray =>
  (o as RawArray).slice(((o as RawArray).length / T) * begin, ((o as RawArray).length / T) * end) as RawArray;

/** Fails where bits differ, with the name of what they are. */
export function expectSame(what: string, a: RawArray | undefined, b: RawArray | undefined): void {
  if (!a || !b || a.length === 0 || !sameBytes(a, b)) throw new Error(`bits differ: ${what}`);
}

const SMALL = { T: 13, Hk: 1, H: 2, K: 40, V: 18 };

/** Every convention, with one gate a head and one a channel, masked and not. */
export const VARIANTS: Record<string, Parameters<typeof rowOf>[0]> = {
  "as it comes": { ...SMALL, V: 37 },
  masked: { ...SMALL, masked: true },
  "log2, tiled, kv": { ...SMALL, Hk: 2, H: 4, options: { gate: "log2", gqa: "tiled", stateLayout: "kv" } },
  "linear, masked, mean-eps": { ...SMALL, masked: true, qkNorm: "mean-eps", options: { gate: "linear" } },
  "neg-ln, max-eps": { ...SMALL, Hk: 2, H: 6, K: 65, qkNorm: "max-eps", options: { gate: "neg-ln" } },
  channels: { ...SMALL, channels: true, gate: "strong" },
  "channels, log2, masked, kv": {
    ...SMALL,
    channels: true,
    masked: true,
    K: 33,
    V: 35,
    options: { gate: "log2", stateLayout: "kv" },
  },
  "channels, linear, tiled": { ...SMALL, Hk: 2, H: 4, channels: true, options: { gate: "linear", gqa: "tiled" } },
  "channels, neg-ln, masked": { ...SMALL, channels: true, masked: true, qkNorm: "none", options: { gate: "neg-ln" } },
};
