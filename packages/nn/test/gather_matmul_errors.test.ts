import { Device, ELSEWHERE, type MlxtsError } from "@mlxts/core";
import { ORDERS } from "@mlxts/test-kit/devices";
import { pairOrder } from "@mlxts/test-kit/gathered_pairs";
import { refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { gatherMatmul } from "../src/index.ts";

describe("gatherMatmul", () => {
  const device = Device.open();
  afterAll(() => device.dispose());
  const tensor = device.tensor.bind(device);
  const given = {
    x: tensor("f32", [6, 1, 1, 8]),
    weight: tensor("f32", [4, 5, 8]),
    rhsIndices: tensor("u32", [6, 2]),
  };
  const ordered = { order: tensor("i32", [12]), offsets: tensor("i32", [5]) };
  const starts = tensor("u32", [4]);
  const span = tensor("f32", [100]);

  it("takes what its tables say", () => {
    const encoder = device.encoder();
    expect(gatherMatmul(encoder, given).shape).toEqual([6, 2, 1, 5]);
    expect(gatherMatmul(encoder, { ...given, ...ordered }, { rows: 5, outDtype: "f16" }).dtype).toBe("f16");
    expect(gatherMatmul(encoder, { ...given, weight: span, starts }, { rows: 3 }).shape).toEqual([6, 2, 1, 3]);
  });

  refusesEach(
    device,
    gatherMatmul,
    { inputs: given, options: {} },
    {
      "no indices": {
        inputs: { rhsIndices: undefined },
        message: "`rhsIndices` must be a Tensor, got undefined",
        kind: "TypeError",
      },
      "an unknown option": {
        options: { transpose: true },
        message: "`transpose` must be one of rows, outDtype, got an unknown option",
        kind: "TypeError",
      },
      "rows of another kind": {
        options: { rows: "5" },
        message: '`rows` must be a number, got "5"',
        kind: "TypeError",
      },
      "no rows of a weight with starts": {
        inputs: { weight: span, starts },
        options: { rows: 0 },
        message: "`rows` must be an integer ≥ 1, got 0",
      },
      "starts without rows": {
        inputs: { weight: span, starts },
        message: "`rows` must be given with `starts`, got undefined",
      },
      "starts with a stack": {
        inputs: { starts },
        options: { rows: 5 },
        message: "`weight` must have shape [span] with `starts`, got [4, 5, 8]",
      },
      "a weight of one dimension without starts": {
        inputs: { weight: span },
        message: "`weight` must have shape [E, rows, cols] without `starts`, got [100]",
      },
      "other rows than the stack's": {
        options: { rows: 4 },
        message: "`rows` must be that of `weight`, 5, got 4",
      },
      "starts of two dimensions": {
        inputs: { weight: span, starts: tensor("u32", [4, 1]) },
        options: { rows: 3 },
        message: "`starts` must have shape [E], got [4, 1]",
      },
      "signed starts": {
        inputs: { weight: span, starts: tensor("i32", [4]) },
        options: { rows: 3 },
        message: "`starts` must have dtype u32, got i32",
      },
      "a weight without room for a matrix": {
        inputs: { weight: span, starts },
        options: { rows: 13 },
        message: "`weight` must have a matrix of 104 elements, got [100]",
      },
      "x of one dimension": {
        inputs: { x: tensor("f32", [8]) },
        message: "`x` must have at least 2 dimensions, got [8]",
      },
      "x of other columns": {
        inputs: { x: tensor("f32", [6, 1, 1, 7]) },
        message: "`x` must have shape [6, 1, 1, 8], got [6, 1, 1, 7]",
      },
      integers: {
        inputs: { x: tensor("i32", [6, 1, 1, 8]) },
        message: "`x` must have dtype f32 or f16 or bf16, got i32",
      },
      "an integer weight": {
        inputs: { weight: tensor("u8", [4, 5, 8]) },
        message: "`weight` must have dtype f32 or f16 or bf16, got u8",
      },
      "indices of floats": {
        inputs: { rhsIndices: tensor("f32", [6, 2]) },
        message: "`rhsIndices` must have dtype u32 or i32, got f32",
      },
      "lhsIndices of another dtype": {
        inputs: { lhsIndices: tensor("i32", [6, 2]) },
        message: "`lhsIndices` must have dtype u32, got i32",
      },
      "indices that do not broadcast with x": {
        inputs: { rhsIndices: tensor("u32", [5, 2]) },
        message: "`rhsIndices` must broadcast with the leading dimensions of `x` [6, 1], got [5, 2]",
      },
      "indices that do not broadcast with lhsIndices": {
        inputs: { lhsIndices: tensor("u32", [4, 2]) },
        message: "`rhsIndices` must broadcast with `lhsIndices` [4, 2], got [6, 2]",
      },
      "an order without offsets": {
        inputs: { order: ordered.order },
        message: "`offsets` must be given with `order`, got undefined",
      },
      "an order of rows by the two": {
        inputs: { ...ordered, x: tensor("f32", [6, 1, 2, 8]) },
        message: "`x` must have one row to a matrix (M = 1) with `order`, got [6, 1, 2, 8]",
      },
      "an order of other pairs": {
        inputs: { ...ordered, order: tensor("i32", [11]) },
        message: "`order` must have shape [12], got [11]",
      },
      "offsets of other matrices": {
        inputs: { ...ordered, offsets: tensor("i32", [4]) },
        message: "`offsets` must have shape [5], got [4]",
      },
      "an order of u32": {
        inputs: { ...ordered, order: tensor("u32", [12]) },
        message: "`order` must have dtype i32, got u32",
      },
      "an output of another shape": {
        inputs: { out: tensor("f32", [12, 1, 5]) },
        message: "`out` must have shape [6, 2, 1, 5], got [12, 1, 5]",
      },
      "an output of another dtype": {
        inputs: { out: tensor("f32", [6, 2, 1, 5]) },
        options: { outDtype: "bf16" },
        message: "`out` must have dtype bf16, got f32",
      },
      "an output over the stack": {
        inputs: { out: given.weight.view(8, [6, 2, 1, 5]) },
        message: "`out` must not overlap `weight`, got overlapping views",
      },
    },
  );
});

const [T, K, E, ROWS, COLS] = [40, 3, 6, 5, 8];
const PAIRS = T * K;
const indices = Array.from({ length: PAIRS }, (_, pair) => (pair * 5) % E);
const { order, offsets } = pairOrder(indices, E);

describe.each(ORDERS)("gatherMatmul on %s", (_, open) => {
  interface Data {
    indices: number[];
    lhs: number[];
    order: number[];
    offsets: number[];
    starts: number[];
  }
  type Change = (data: Data) => void;

  /** What commit says of data with mistakes; M rows of x to a matrix. */
  async function failure({ change, ordered = false, m = 1 }: { change: Change; ordered?: boolean; m?: number }) {
    using device: Device = open();
    const data: Data = {
      indices: [...indices],
      lhs: Array.from({ length: PAIRS }, (_, pair) => pair % T),
      order: [...order],
      offsets: [...offsets],
      starts: Array.from({ length: E }, (_, e) => e * 3),
    };
    change(data);
    const tensor = (numbers: number[], dtype: "u32" | "i32" = "i32") => device.tensor(dtype, [numbers.length], numbers);
    const encoder = device.encoder();
    gatherMatmul(
      encoder,
      {
        x: device.tensor("f32", [T, m, COLS]),
        weight: device.tensor("f32", [ROWS * COLS + (E - 1) * 3]),
        rhsIndices: tensor(data.indices),
        lhsIndices: tensor(data.lhs),
        starts: tensor(data.starts, "u32"),
        ...(ordered ? { order: tensor(data.order), offsets: tensor(data.offsets) } : {}),
      },
      { rows: ROWS },
    );
    try {
      await encoder.commit();
      return undefined;
    } catch (error) {
      expect((error as MlxtsError).code).toBe("InvalidArgument");
      return (error as MlxtsError).message;
    }
  }

  // Each pair by itself, with few and with many rows, and in order.
  const WAYS = [{ m: 1 }, { m: 9 }, { ordered: true }] as const;
  it.each(WAYS)("%j names the first wrong index", async (way) => {
    expect(await failure({ ...way, change: () => {} })).toBeUndefined();
    const change: Change = ({ indices }) => {
      [indices[77], indices[41], indices[119]] = [E, -1, 100];
    };
    expect(await failure({ ...way, change })).toBe(
      "gatherMatmul: `rhsIndices` must be from 0 to 5, got -1 at position 41",
    );
  });
  it.each(WAYS)("%j names the first wrong matrix of x", async (way) => {
    const change: Change = ({ lhs }) => {
      [lhs[99], lhs[34]] = [-5, T];
    };
    expect(await failure({ ...way, change })).toBe(
      "gatherMatmul: `lhsIndices` must be from 0 to 39, got 40 at position 34",
    );
  });
  it.each(WAYS)("%j names the first wrong start, though nobody chose it", async (way) => {
    const change: Change = (data) => {
      const { indices, starts } = data;
      for (const [i, e] of indices.entries()) if (e > 3) indices[i] = 3;
      Object.assign(data, pairOrder(indices, E));
      [starts[1], starts[4], starts[5]] = [ELSEWHERE, 16, ELSEWHERE - 1];
    };
    expect(await failure({ ...way, change })).toBe("gatherMatmul: `starts` must be from 0 to 15, got 16 at position 4");
  });

  it.each<[wrong: string, change: Change, message: string]>([
    ["offsets that do not begin at 0", ({ offsets }) => offsets.splice(0, 1, 1), "`offsets` .* got 1 at position 0"],
    ["negative offsets", ({ offsets }) => offsets.splice(3, 1, -7), "`offsets` .* got -7 at position 3"],
    ["offsets that descend", ({ offsets }) => offsets.splice(2, 1, 0), "`offsets` .* got 0 at position 2"],
    ["offsets beyond the pairs", ({ offsets }) => offsets.splice(5, 1, 121), "`offsets` .* got 121 at position 5"],
    ["offsets that end early", ({ offsets }) => offsets.splice(6, 1, 119), "`offsets` .* got 119 at position 6"],
    ["a pair out of range", ({ order }) => order.splice(70, 1, PAIRS), "`order` .* got 120 at position 70"],
    ["a negative pair", ({ order }) => order.splice(33, 1, -2), "`order` .* got -2 at position 33"],
    [
      "a pair twice",
      ({ order }) => order.splice(9, 1, order[8] as number),
      `\`order\` .* got ${order[8]} at position 9`,
    ],
    [
      "a pair of another expert",
      ({ order }) => order.splice(50, 1, order[110] as number),
      `\`order\` .* got ${order[110]} at position 50`,
    ],
    [
      "a pair of an expert before, behind a lesser one",
      ({ order }) => order.splice(101, 1, order[19] as number),
      `\`order\` .* got ${order[19]} at position 101`,
    ],
  ])("refuses %s", async (_, change, message) => {
    expect(await failure({ change, ordered: true })).toMatch(new RegExp(`^gatherMatmul: ${message}$`));
  });
});
