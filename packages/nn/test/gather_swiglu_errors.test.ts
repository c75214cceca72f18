import { Device } from "@mlxts/core";
import { ORDERS } from "@mlxts/test-kit/devices";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { gatherMatmulSwiglu } from "../src/index.ts";

const [TOKENS, EXPERTS, ROWS, COLS] = [6, 4, 5, 8];
const MATRIX = ROWS * COLS;

describe("gatherMatmulSwiglu", () => {
  const device = Device.open();
  afterAll(() => device.dispose());
  const tensor = device.tensor.bind(device);
  const stack = () => tensor("f32", [EXPERTS, ROWS, COLS]);
  const span = () => tensor("f32", [100]);
  const starts = tensor("u32", [EXPERTS]);
  const given = {
    x: tensor("f32", [TOKENS, 1, 1, COLS]),
    gate: stack(),
    up: stack(),
    rhsIndices: tensor("u32", [TOKENS, 2]),
  };
  const anywhere = { gate: span(), up: span(), gateStarts: starts, upStarts: starts };

  it("takes what its tables say", () => {
    const encoder = device.encoder();
    expect(gatherMatmulSwiglu(encoder, given).shape).toEqual([TOKENS, 2, 1, ROWS]);
    const { dtype, shape } = gatherMatmulSwiglu(encoder, { ...given, ...anywhere }, { rows: 3, outDtype: "f16" });
    expect([dtype, shape]).toEqual(["f16", [TOKENS, 2, 1, 3]]);
  });

  refusesEach(
    device,
    gatherMatmulSwiglu,
    { inputs: given, options: {} },
    {
      "no up": { inputs: { up: undefined }, message: "`up` must be a Tensor, got undefined", kind: "TypeError" },
      "up of other sizes": {
        inputs: { up: tensor("f32", [EXPERTS, ROWS, 7]) },
        message: "`up` must have shape [4, 5, 8], got [4, 5, 7]",
      },
      "up of another dtype": {
        inputs: { up: tensor("bf16", [EXPERTS, ROWS, COLS]) },
        message: "`up` must have dtype f32, got bf16",
      },
      "one matrix for a stack": {
        inputs: { gate: tensor("f32", [ROWS, COLS]) },
        message: "`gate` must have shape [E, rows, cols] without `gateStarts`, got [5, 8]",
      },
      "starts of gate alone": {
        inputs: { gateStarts: starts },
        options: { rows: ROWS },
        message: "`upStarts` must be given with `gateStarts`, got undefined",
      },
      "starts of up alone": {
        inputs: { upStarts: starts },
        options: { rows: ROWS },
        message: "`gateStarts` must be given with `upStarts`, got undefined",
      },
      "starts without rows": { inputs: anywhere, message: "`rows` must be given with `gateStarts`, got undefined" },
      "up that is shorter than a matrix": {
        inputs: { ...anywhere, up: tensor("f32", [MATRIX - 1]) },
        options: { rows: ROWS },
        message: "`up` must have a matrix of 40 elements, got [39]",
      },
      "indices of another dtype": {
        inputs: { rhsIndices: tensor("f32", [TOKENS, 2]) },
        message: "`rhsIndices` must have dtype u32 or i32, got f32",
      },
      "an order alone": {
        inputs: { order: tensor("i32", [TOKENS * 2]) },
        message: "`offsets` must be given with `order`, got undefined",
      },
    },
  );
});

describe.each(ORDERS)("wrong data of gatherMatmulSwiglu, %s", (_, open) => {
  it.each<[what: string, wrong: Partial<Record<"rhs" | "gate" | "up", number[]>>, message: string, m?: number]>([
    ["an expert", { rhs: [0, 1, EXPERTS, 9] }, "`rhsIndices` must be from 0 to 3, got 4 at position 2"],
    ["a start of gate", { gate: [0, 61, 0, 99] }, "`gateStarts` must be from 0 to 60, got 61 at position 1"],
    ["a start of up", { up: [0, 0, 0, 70] }, "`upStarts` must be from 0 to 60, got 70 at position 3"],
    [
      "a start of gate, many rows",
      { gate: [0, 61, 0, 99] },
      "`gateStarts` must be from 0 to 60, got 61 at position 1",
      40,
    ],
    ["a start of up, many rows", { up: [0, 0, 0, 70] }, "`upStarts` must be from 0 to 60, got 70 at position 3", 40],
    ["an expert, many rows", { rhs: [0, 1, EXPERTS, 9] }, "`rhsIndices` must be from 0 to 3, got 4 at position 2", 40],
  ])("%s", async (_what, { rhs = [0, 1, 2, 3], gate = [0, 0, 0, 0], up = [0, 0, 0, 0] }, message, m = 1) => {
    using device: Device = open();
    const encoder = device.encoder();
    gatherMatmulSwiglu(
      encoder,
      {
        x: device.tensor("f32", [4, 1, m, COLS]),
        gate: device.tensor("f32", [100]),
        up: device.tensor("f32", [100]),
        gateStarts: device.tensor("u32", [EXPERTS], gate),
        upStarts: device.tensor("u32", [EXPERTS], up),
        rhsIndices: device.tensor("u32", [4, 1], rhs),
      },
      { rows: ROWS },
    );
    await expect(encoder.commit()).rejects.toThrow(`gatherMatmulSwiglu: ${message}`);
  });
});
