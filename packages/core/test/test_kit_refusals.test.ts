import { type CommandEncoder, Device } from "@mlxts/core";
import { expectRefusal, type GoodCall, type Mistake, refuses } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { increment } from "./kernels/probe.ts";

const device = Device.open("cpu", { threads: 1 });
afterAll(() => device.dispose());

const wrong = (message: string) => () => {
  throw Object.assign(new RangeError(message), { code: "InvalidArgument" });
};

describe("expectRefusal", () => {
  it("passes where the call says what is expected", () => {
    expectRefusal(wrong("too large"), "too large", "RangeError", device);
  });

  it.each([
    ["the call succeeds", () => {}],
    ["the message is another one", wrong("too small")],
    [
      "the error has no code",
      () => {
        throw new RangeError("too large");
      },
    ],
    [
      "the error is of another kind",
      () => {
        throw Object.assign(new TypeError("too large"), { code: "InvalidArgument" });
      },
    ],
    [
      "a counter of the device changes",
      () => {
        device.tensor("f32", [1]);
        wrong("too large")();
      },
    ],
  ])("fails where %s", (_, call) => {
    expect(() => expectRefusal(call, "too large", "RangeError", device)).toThrow(/^expected /);
  });
});

describe("refuses", () => {
  const good: GoodCall = { inputs: { out: device.tensor("u32", [8]) }, options: { rows: 1, columns: 1 } };
  const rows: Mistake = { options: { rows: -1 }, message: "rows" };
  const columns: Mistake = { options: { columns: -1 }, message: "columns" };
  const encode = (encoder: CommandEncoder) =>
    increment(encoder, { x: good.inputs.out as never, out: good.inputs.out as never });
  /** An op that looks at its options in this order, and encodes before or after. */
  const op = (order: readonly ("rows" | "columns")[], encodesFirst = false) =>
    Object.assign(
      (encoder: CommandEncoder, _: unknown, options: Record<string, number>) => {
        if (encodesFirst) encode(encoder);
        for (const name of order) if (Number(options[name]) < 0) wrong(`op: ${name}`)();
        encode(encoder);
      },
      { op: { name: "op" } },
    );

  it("passes where the first of several mistakes is reported", () => {
    refuses(device, op(["rows", "columns"]), good, rows);
    refuses(device, op(["rows", "columns"]), good, rows, columns);
  });

  it("fails where another is, where none is, and where something has been encoded", () => {
    expect(() => refuses(device, op(["columns", "rows"]), good, rows, columns)).toThrow("expected 'op: columns'");
    expect(() => refuses(device, op(["columns"]), good, rows)).toThrow("expected undefined");
    expect(() => refuses(device, op(["rows"], true), good, rows)).toThrow("dispatches");
  });
});
