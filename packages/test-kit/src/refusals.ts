// What a refused call must say, and in which order of several mistakes.
import type { Device } from "@mlxts/core";
import { expect, it } from "vitest";

export type Loose = Record<string, unknown>;
type LooseOp = (encoder: ReturnType<Device["encoder"]>, inputs: Loose, options: Loose) => unknown;
export interface Mistake {
  inputs?: Loose;
  options?: Loose;
  message: string;
  kind?: "TypeError";
  /** Says something else beside another mistake. */
  alone?: true;
}

/** What a call says that has `mistakes`; a message without an op's name is this op's. */
export function refuses(
  device: Device,
  op: unknown,
  good: { inputs: Loose; options: Loose },
  ...mistakes: Mistake[]
): void {
  const [first] = mistakes as [Mistake];
  const merged = (what: "inputs" | "options") =>
    Object.assign({}, good[what], ...mistakes.map((mistake) => mistake[what] ?? {}).reverse()) as Loose;
  const encoder = device.encoder();
  const before = device.counters;
  let caught: unknown;
  try {
    (op as LooseOp)(encoder, merged("inputs"), merged("options"));
  } catch (error) {
    caught = error;
  }
  const { name } = (op as { op: { name: string } }).op;
  expect((caught as Error | undefined)?.message).toBe(`${name}: ${first.message}`);
  expect(caught).toMatchObject({ name: first.kind ?? "RangeError", code: "InvalidArgument" });
  expect(device.counters).toEqual(before);
  expect(encoder.finish().dispatches).toBe(0);
}

/** Every mistake alone, and every two of them: the earlier is reported. */
export function inOrder(
  device: Device,
  op: unknown,
  good: { inputs: Loose; options: Loose },
  mistakes: readonly Mistake[],
): void {
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
