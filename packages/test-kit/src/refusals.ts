// What wrong calls must say, in the tables that packages' errors tests are made of.
import type { CommandEncoder, Device } from "@mlxts/core";
import { expect, it } from "vitest";

export type Loose = Record<string, unknown>;
type LooseOp = (encoder: CommandEncoder, inputs: Loose, options: Loose) => unknown;

const KINDS = {
  RangeError: { name: "RangeError", code: "InvalidArgument" },
  TypeError: { name: "TypeError", code: "InvalidArgument" },
  UnsupportedDtype: { name: "MlxtsError", code: "UnsupportedDtype" },
} as const;
export type RefusalKind = keyof typeof KINDS;

/** Fails unless a call throws this message, of this kind; with a device, unless it changes no counter of the device. */
export function expectRefusal(
  call: () => unknown,
  message: string,
  kind: RefusalKind = "RangeError",
  device?: Device,
): void {
  const before = device?.counters;
  let caught: unknown;
  try {
    call();
  } catch (error) {
    caught = error;
  }
  expect((caught as Error | undefined)?.message).toBe(message);
  expect(caught).toMatchObject(KINDS[kind]);
  expect(device?.counters).toEqual(before);
}

export type WrongCall = readonly [name: string, call: () => unknown, message: string, kind?: RefusalKind];

/** A test for each wrong call. */
export function refusalTests(calls: readonly WrongCall[]): void {
  for (const [name, call, message, kind] of calls) it(name, () => expectRefusal(call, message, kind));
}

/** A good call of an op; a mistake changes some of it. */
export interface GoodCall {
  inputs: Loose;
  options: Loose;
}

export interface Mistake {
  inputs?: Loose;
  options?: Loose;
  /** Without the op's name. */
  message: string;
  kind?: RefusalKind;
  /** Says something else beside another mistake. */
  alone?: true;
}

/** Fails unless a call with `mistakes` reports the first of them, before anything is encoded or allocated. */
export function refuses(device: Device, op: unknown, good: GoodCall, ...mistakes: Mistake[]): void {
  const [first] = mistakes as [Mistake];
  const merged = (what: "inputs" | "options") =>
    Object.assign({}, good[what], ...mistakes.map((mistake) => mistake[what] ?? {}).reverse()) as Loose;
  const encoder = device.encoder();
  const { name } = (op as { op: { name: string } }).op;
  const call = () => (op as LooseOp)(encoder, merged("inputs"), merged("options"));
  expectRefusal(call, `${name}: ${first.message}`, first.kind, device);
  expect(encoder.finish().dispatches).toBe(0);
}

/** A test for each mistake, under a name that says what is wrong. */
export function refusesEach(device: Device, op: unknown, good: GoodCall, mistakes: Record<string, Mistake>): void {
  for (const [name, mistake] of Object.entries(mistakes))
    it(`refuses ${name}`, () => refuses(device, op, good, mistake));
}

/** A test for each mistake alone, and one for every two of them: the earlier is reported. */
export function refusesInOrder(device: Device, op: unknown, good: GoodCall, mistakes: readonly Mistake[]): void {
  for (const mistake of mistakes) it(mistake.message, () => refuses(device, op, good, mistake));
  it("the first of two", () => {
    const others = mistakes.filter(({ alone }) => !alone);
    for (const [i, first] of others.entries()) {
      // What the earlier one says again is no second mistake.
      const said = (mistake: Mistake) => Object.keys({ ...mistake.inputs, ...mistake.options });
      for (const second of others.slice(i + 1))
        if (!said(second).some((name) => said(first).includes(name))) refuses(device, op, good, first, second);
    }
  });
}
