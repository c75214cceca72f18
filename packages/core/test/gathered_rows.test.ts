// What ops of gathered products share: the shapes of their indices, and how kernels read them, on the CPU and on the
// simulated Metal device.
import { afterAll, beforeEach, describe, expect, it } from "vitest";
import { Device, defineOp, FLOATS, gatheredInputs, gatheredProducts, gatheredSlots } from "../src/index.ts";
import { Random } from "../src/testing/index.ts";
import { message, rejected, testDevice } from "./helpers.ts";
import { gatheredOrderKernel, gatheredPairsKernel, MOST_ROWS } from "./kernels/gathered.ts";
import { describeSimulated, openMetal, set } from "./simulator.ts";

const MATRICES = 5;
const random = new Random(5);

interface Indices {
  x: number[];
  rhs: number[];
  lhs?: number[];
}

/** Shapes that broadcast in every way. */
const SHAPES: Record<string, Indices & { lead: number[] }> = {
  "tokens that choose": { x: [7, 1, 1, 3], rhs: [7, 3], lead: [7, 3] },
  "a matrix of x for each pair": { x: [7, 3, 1, 3], rhs: [7, 3], lead: [7, 3] },
  "one x": { x: [1, 3], rhs: [23], lead: [23] },
  "the same choice for all": { x: [4, 1, 1, 3], rhs: [3], lead: [4, 3] },
  "three axes": { x: [2, 1, 3, 1, 3], rhs: [4, 1], lead: [2, 4, 3] },
  "x chosen": { x: [6, 1, 3], rhs: [7, 3], lhs: [7, 1], lead: [7, 3] },
  "x chosen from two dimensions": { x: [2, 3, 1, 3], rhs: [1, 5], lhs: [4, 1], lead: [4, 5] },
  "one pair": { x: [1, 1, 3], rhs: [1], lead: [1] },
};

/** Numbers of a tensor, read as broadcasting has it. */
function broadcast(data: readonly number[], shape: readonly number[], lead: readonly number[], pair: number): number {
  let [at, step, rest] = [0, 1, pair];
  for (let i = 1; i <= lead.length; i++) {
    const size = lead[lead.length - i] as number;
    const own = shape[shape.length - i] ?? 1;
    at += own === 1 ? 0 : (rest % size) * step;
    step *= own;
    rest = Math.floor(rest / size);
  }
  return data[at] as number;
}

const count = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);
const counting = (n: number) => Array.from({ length: n }, (_, i) => i);

function setting({ x, rhs, lhs, lead }: Indices & { lead: number[] }) {
  const stack = x.slice(0, -2);
  const data = {
    rhs: Array.from(random.integers(count(rhs), MATRICES)),
    lhs: lhs && Array.from(random.integers(count(lhs), count(stack))),
  };
  const pairs = counting(count(lead));
  const lefts = pairs.map((pair) =>
    data.lhs ? broadcast(data.lhs, lhs ?? [], lead, pair) : broadcast(counting(count(stack)), stack, lead, pair),
  );
  const chosen = pairs.map((pair) => broadcast(data.rhs, rhs, lead, pair));
  const order = [...pairs].sort((a, b) => (chosen[a] as number) - (chosen[b] as number) || a - b);
  const offsets = counting(MATRICES + 1).map((e) => chosen.filter((matrix) => matrix < e).length);
  return { x, rhs, lhs, data, lead, pairs, lefts, chosen, order, offsets };
}
type Setting = ReturnType<typeof setting>;

/** An op that only says what it was given. */
let given: ReturnType<typeof gatheredProducts> | undefined;
let matrices = MATRICES;
const probe = defineOp({
  name: "probe",
  summary: "",
  inputs: {
    x: { dtype: FLOATS, shape: { text: "..., M, cols", of: ({ tensors }) => tensors.x?.shape ?? [] } },
    ...gatheredInputs((c) => gatheredProducts(c, matrices)),
  },
  outputs: { out: { dtype: ["=x"], shape: { text: "..., k", of: (c) => gatheredProducts(c, matrices).lead } } },
  params: {},
  relations(c) {
    gatheredProducts(c, matrices);
  },
  encode(c) {
    given = gatheredProducts(c, matrices);
  },
});

function tensors(device: Device, s: Setting, dtype: "u32" | "i32") {
  const indices = (shape: number[], data: readonly number[]) => {
    const tensor = device.tensor(dtype, shape);
    tensor.typedArray().set(data);
    return tensor;
  };
  return {
    x: device.tensor("f32", s.x),
    rhsIndices: indices(s.rhs, s.data.rhs),
    lhsIndices: s.lhs && s.data.lhs && indices(s.lhs, s.data.lhs),
    order: device.tensor("i32", [s.pairs.length], Int32Array.from(s.order)),
    offsets: device.tensor("i32", [MATRICES + 1], Int32Array.from(s.offsets)),
  };
}

function plan(device: Device, inputs: ReturnType<typeof tensors>, ordered: boolean) {
  const { order, offsets, ...rest } = inputs;
  using encoder = device.encoder();
  probe(encoder, ordered ? { ...rest, order, offsets } : rest);
  return given as NonNullable<typeof given>;
}

async function pairsOf(device: Device, s: Setting, dtype: "u32" | "i32" = "u32") {
  const { rhsIndices, lhsIndices, ...rest } = tensors(device, s, dtype);
  const { pairs, lead, params } = plan(device, { rhsIndices, lhsIndices, ...rest }, false);
  expect(lead).toEqual(s.lead);
  const matrices = device.tensor("u32", [pairs, 2]);
  const encoder = device.encoder();
  const buffers = { rhsIndices, lhsIndices, matrices };
  encoder.dispatch(gatheredPairsKernel, { variant: "u32", buffers, params, sizes: { pairs } });
  await encoder.commit();
  const data = Array.from(await matrices.read());
  return { lefts: s.pairs.map((i) => data[2 * i]), chosen: s.pairs.map((i) => data[2 * i + 1]) };
}

/** The rows by matrix, or without `order` by pair, as the slots have them. */
async function orderOf(device: Device, s: Setting, dtype: "u32" | "i32" = "u32", ordered = true) {
  const { order, offsets, ...inputs } = tensors(device, s, dtype);
  const ofOrder = ordered ? { order, offsets } : { order: undefined, offsets: undefined };
  const { pairs, m, params } = plan(device, { ...inputs, order, offsets }, ordered);
  const slots = gatheredSlots({ pairs, m, matrices: MATRICES, ordered }, MOST_ROWS);
  const [rows, found] = [device.tensor("u32", [slots, 2]), device.tensor("u32", [slots, MOST_ROWS, 2])];
  const { x: _, ...indices } = inputs;
  const encoder = device.encoder();
  const buffers = { ...indices, ...ofOrder, rows, found };
  encoder.dispatch(gatheredOrderKernel, { variant: "u32", buffers, params, sizes: { slots } });
  await encoder.commit();
  const [of, which] = [await rows.read(), await found.read()];
  const got: { matrix: number; out: number; x: number }[] = [];
  for (let slot = 0; slot < slots; slot++)
    for (let i = 0; i < (of[2 * slot + 1] as number); i++) {
      const at = 2 * (slot * MOST_ROWS + i);
      got.push({ matrix: of[2 * slot] as number, out: which[at] as number, x: which[at + 1] as number });
    }
  return got;
}

const expected = (s: Setting) => s.order.map((pair) => ({ matrix: s.chosen[pair], out: pair, x: s.lefts[pair] }));

function behaves(open: () => Device): void {
  const device = open();
  afterAll(() => device.dispose());

  it.each(Object.keys(SHAPES))("finds the matrices of each pair: %s", async (name) => {
    const s = setting(SHAPES[name] as (typeof SHAPES)[string]);
    expect(await pairsOf(device, s)).toEqual({ lefts: s.lefts, chosen: s.chosen });
    expect(await orderOf(device, s, "i32")).toEqual(expected(s));
  });

  it.each([1, 3, 4, 9])("cuts the rows of each pair into slots: %i rows", async (m) => {
    for (const shape of Object.values(SHAPES)) {
      const s = setting({ ...shape, x: shape.x.with(-2, m) });
      const rows = s.pairs.flatMap((pair) =>
        counting(m).map((i) => ({ matrix: s.chosen[pair], out: pair * m + i, x: (s.lefts[pair] as number) * m + i })),
      );
      expect(await orderOf(device, s, "u32", false)).toEqual(rows);
    }
  });

  it("gives each matrix slots for all its rows, however unequal", async () => {
    const shape = SHAPES["one x"] as (typeof SHAPES)[string];
    for (const matrix of [0, 2, MATRICES - 1, undefined]) {
      const lead = [matrix === undefined ? MATRICES * MOST_ROWS : 23];
      const s = setting({ ...shape, rhs: lead, lead });
      const data = { rhs: s.pairs.map((pair) => matrix ?? pair % MATRICES), lhs: undefined };
      const chosen = data.rhs;
      const order = [...s.pairs].sort((a, b) => (chosen[a] as number) - (chosen[b] as number) || a - b);
      const offsets = counting(MATRICES + 1).map((e) => chosen.filter((each) => each < e).length);
      const all = { ...s, data, chosen, order, offsets };
      expect(await orderOf(device, all)).toEqual(expected(all));
    }
  });

  const base = setting(SHAPES["x chosen"] as (typeof SHAPES)[string]);
  const changed = <K extends "order" | "offsets">(which: K, at: number, value: number): Setting => ({
    ...base,
    [which]: base[which].with(at, value),
  });
  const indices = (which: "rhs" | "lhs", ...wrong: [number, number][]): Setting => ({
    ...base,
    data: {
      ...base.data,
      [which]: wrong.reduce((data, [at, value]) => data.with(at, value), base.data[which] as number[]),
    },
  });
  const swapped = () => {
    const begin = base.offsets.findIndex((offset, e) => (base.offsets[e + 1] as number) - offset > 1);
    const at = base.offsets[begin] as number;
    const [a, b] = [base.order[at] as number, base.order[at + 1] as number];
    return { ...base, order: base.order.with(at, b).with(at + 1, a) };
  };
  const wrong = "must have the pairs of each matrix of `rhsIndices` in ascending order, got";

  it.each<[string, () => Setting, "u32" | "i32", string | RegExp, boolean?]>([
    [
      "an index",
      () => indices("rhs", [17, 9], [11, MATRICES]),
      "u32",
      "`rhsIndices` must be from 0 to 4, got 5 at position 11",
      true,
    ],
    [
      "a negative index",
      () => indices("rhs", [20, -1]),
      "i32",
      "`rhsIndices` must be from 0 to 4, got -1 at position 20",
      true,
    ],
    [
      "a large index",
      () => indices("rhs", [0, 4294967295]),
      "u32",
      "`rhsIndices` must be from 0 to 4, got 4294967295 at position 0",
      true,
    ],
    [
      "a matrix of x",
      () => indices("lhs", [6, 6]),
      "i32",
      "`lhsIndices` must be from 0 to 5, got 6 at position 6",
      true,
    ],
    [
      "a first offset",
      () => changed("offsets", 0, 1),
      "u32",
      "`offsets` must ascend from 0 to 21, got 1 at position 0",
    ],
    ["offsets that descend", () => changed("offsets", 2, 21), "u32", "`offsets` must ascend from 0 to 21, got"],
    [
      "a last offset",
      () => changed("offsets", 5, 20),
      "u32",
      "`offsets` must ascend from 0 to 21, got 20 at position 5",
    ],
    [
      "an offset beyond the pairs",
      () => changed("offsets", 3, 22),
      "u32",
      "`offsets` must ascend from 0 to 21, got 22 at position 3",
    ],
    [
      "a negative offset",
      () => changed("offsets", 1, -7),
      "u32",
      "`offsets` must ascend from 0 to 21, got -7 at position 1",
    ],
    ["a pair", () => changed("order", 9, 21), "u32", `\`order\` ${wrong} 21 at position 9`],
    ["a negative pair", () => changed("order", 20, -1), "u32", `\`order\` ${wrong} -1 at position 20`],
    [
      "a pair of another matrix",
      () => changed("order", 0, base.order[20] as number),
      "u32",
      `\`order\` ${wrong} ${base.order[20]} at position 0`,
    ],
    ["a pair twice", () => changed("order", 20, base.order[19] as number), "u32", /`order` must .* at position 20$/],
    ["descending pairs", swapped, "u32", /`order` must .* at position \d+$/],
    [
      "offsets moved by one",
      () => changed("offsets", 2, (base.offsets[2] as number) + 1),
      "u32",
      /`o\w+` must .* at position \d+$/,
    ],
  ])("refuses %s", async (_, of, dtype, text, pairsToo) => {
    for (const failure of [
      await rejected(orderOf(device, of(), dtype)),
      pairsToo && (await rejected(pairsOf(device, of(), dtype))),
    ]) {
      if (!failure) continue;
      expect(failure.code).toBe("InvalidArgument");
      if (typeof text === "string") expect(failure.message).toContain(text);
      else expect(failure.message).toMatch(text);
    }
  });

  it("reads nothing outside, whatever order and offsets are", async () => {
    for (let i = 0; i < 200; i++) {
      const s = setting(SHAPES["x chosen"] as (typeof SHAPES)[string]);
      const any = () => [0, 1, 20, 21, 22, -1, 0x7fffffff, -0x80000000, random.below(22)][random.below(9)] as number;
      const which = i % 2 ? "order" : "offsets";
      const data = s[which].map((value) => (random.below(4) === 0 ? any() : value));
      const result = await orderOf(device, { ...s, [which]: data }).catch((error) => error);
      if (data.every((value, at) => value === s[which][at])) expect(result).toEqual(expected(s));
      else expect(result).toMatchObject({ code: "InvalidArgument" });
    }
  });
}

describe("gathered rows", () => {
  behaves(() => Device.open("cpu", { threads: 2 }));
});
describeSimulated("gathered rows on Metal", () => {
  beforeEach(() => set({ check: "1" }));
  behaves(openMetal);
});

describe("shapes of gathered products", () => {
  const device = testDevice();
  const t = (shape: number[], dtype: "f32" | "u32" | "i32" = "f32") => device.tensor(dtype, shape);
  const call =
    (inputs: object, count = MATRICES) =>
    () => {
      matrices = count;
      try {
        probe(device.encoder(), inputs as never);
      } finally {
        matrices = MATRICES;
      }
    };
  const x = t([7, 1, 1, 3]);
  const rhsIndices = t([7, 3], "u32");
  const [order, offsets] = [t([21], "i32"), t([6], "i32")];

  it.each<[string, object, string]>([
    ["x without a matrix", { x: t([3]), rhsIndices }, "`x` must have at least 2 dimensions, got [3]"],
    [
      "x that does not broadcast",
      { x: t([6, 1, 1, 3]), rhsIndices },
      "`rhsIndices` must broadcast with the leading dimensions of `x` [6, 1], got [7, 3]",
    ],
    [
      "indices that do not broadcast",
      { x, rhsIndices, lhsIndices: t([7, 2], "u32") },
      "`rhsIndices` must broadcast with `lhsIndices` [7, 2], got [7, 3]",
    ],
    [
      "four axes",
      { x: t([2, 1, 2, 1, 1, 3]), rhsIndices: t([2, 2, 2, 2], "u32") },
      "`rhsIndices` must broadcast along at most 3 dimensions, got [2, 2, 2, 2]",
    ],
    ["indices of another dtype", { x, rhsIndices: t([7, 3]) }, "`rhsIndices` must have dtype u32 or i32, got f32"],
    [
      "indices of two dtypes",
      { x, rhsIndices, lhsIndices: t([7, 3], "i32") },
      "`lhsIndices` must have dtype u32, got i32",
    ],
    ["order alone", { x, rhsIndices, order }, "`offsets` must be given with `order`, got undefined"],
    ["offsets alone", { x, rhsIndices, offsets }, "`order` must be given with `offsets`, got undefined"],
    [
      "an order of matrices of more rows",
      { x: t([7, 1, 2, 3]), rhsIndices, order, offsets },
      "`x` must have one row to a matrix (M = 1) with `order`, got [7, 1, 2, 3]",
    ],
    ["a short order", { x, rhsIndices, order: t([20], "i32"), offsets }, "`order` must have shape [21], got [20]"],
    ["short offsets", { x, rhsIndices, order, offsets: t([5], "i32") }, "`offsets` must have shape [6], got [5]"],
  ])("%s", (_, inputs, text) => {
    expect(message(call(inputs))).toBe(`probe: ${text}`);
  });

  it("more rows than an op counts", () => {
    expect(message(call({ x: t([65536, 1, 1, 3]), rhsIndices: t([65536], "u32") }))).toBe(
      "probe: `rhsIndices` must choose for at most 2³¹ − 1 rows of `x`, got 4294967296",
    );
  });

  it("more matrices than an order counts", () => {
    expect(message(call({ x, rhsIndices, order, offsets }, 65537))).toBe(
      "probe: `order` must be given for at most 65536 matrices, got 65537",
    );
  });
});
