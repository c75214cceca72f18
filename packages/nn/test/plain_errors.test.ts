import { Device, type Dtype } from "@mlxts/core";
import { refusalTests, type WrongCall } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { add, argmax, elementwiseMul, embedding, rope, sigmoidGate, slice, split, swiglu } from "../src/index.ts";

const device = Device.open();
const elsewhere = Device.open();
afterAll(() => {
  device.dispose();
  elsewhere.dispose();
});

const t = (shape: number[], dtype: Dtype = "f32") => device.tensor(dtype, shape);
const encoder = () => device.encoder();
const shared = t([32]);
const HALVES = { beginA: 0, sizeA: 2, beginB: 2, sizeB: 2 };

const x = () => t([1, 2, 2, 4]);
const positions = () => t([1, 2], "i32");
const frequencies = () => t([2]);

const MESSAGES: WrongCall[] = [
  ["add: dtypes", () => add(encoder(), { a: t([4]), b: t([4], "bf16") }), "add: `b` must have dtype f32, got bf16"],
  [
    "add: integers",
    () => add(encoder(), { a: t([4], "i32"), b: t([4], "i32") }),
    "add: `a` must have dtype f32 or f16 or bf16, got i32",
  ],
  ["add: shapes", () => add(encoder(), { a: t([2, 4]), b: t([4]) }), "add: `b` must have shape [2, 4], got [4]"],
  [
    "add: broadcast",
    () => add(encoder(), { a: t([2, 4]), b: t([1, 4]) }),
    "add: `b` must have shape [2, 4], got [1, 4]",
  ],
  [
    "add: missing",
    () => add(encoder(), { a: t([4]) } as never),
    "add: `b` must be a Tensor, got undefined",
    "TypeError",
  ],
  [
    "add: partial overlap",
    () => add(encoder(), { a: shared.view(0, [8]), b: shared.view(16, [8]), out: shared.view(4, [8]) }),
    "add: `out` must be exactly `a` or not overlap it, got overlapping views",
  ],
  [
    "elementwiseMul: dtypes",
    () => elementwiseMul(encoder(), { a: t([4]), b: t([4], "bf16") }),
    "elementwiseMul: `b` must have dtype f32, got bf16",
  ],
  [
    "elementwiseMul: integers",
    () => elementwiseMul(encoder(), { a: t([4], "i32"), b: t([4], "i32") }),
    "elementwiseMul: `a` must have dtype f32 or f16 or bf16, got i32",
  ],
  [
    "elementwiseMul: shapes",
    () => elementwiseMul(encoder(), { a: t([2, 4]), b: t([4]) }),
    "elementwiseMul: `b` must have shape [2, 4], got [4]",
  ],
  [
    "elementwiseMul: broadcast",
    () => elementwiseMul(encoder(), { a: t([2, 4]), b: t([1, 4]) }),
    "elementwiseMul: `b` must have shape [2, 4], got [1, 4]",
  ],
  [
    "elementwiseMul: partial overlap",
    () => elementwiseMul(encoder(), { a: shared.view(0, [8]), b: shared.view(16, [8]), out: shared.view(4, [8]) }),
    "elementwiseMul: `out` must be exactly `a` or not overlap it, got overlapping views",
  ],
  [
    "add: options",
    () => add(encoder(), { a: t([4]), b: t([4]) }, { alpha: 2 } as never),
    "add: `alpha` must be one of (no options), got an unknown option",
    "TypeError",
  ],
  [
    "add: another device",
    () => add(encoder(), { a: t([4]), b: elsewhere.tensor("f32", [4]) }),
    "add: `b` must belong to the encoder's device, got a tensor of another device",
  ],
  [
    "swiglu: shapes",
    () => swiglu(encoder(), { gate: t([2, 4]), up: t([4, 2]) }),
    "swiglu: `up` must have shape [2, 4], got [4, 2]",
  ],
  [
    "swiglu: dtypes",
    () => swiglu(encoder(), { gate: t([4], "f16"), up: t([4]) }),
    "swiglu: `up` must have dtype f16, got f32",
  ],
  [
    "swiglu: out",
    () => swiglu(encoder(), { gate: t([4]), up: t([4]), out: t([5]) }),
    "swiglu: `out` must have shape [4], got [5]",
  ],
  [
    "sigmoidGate: shapes",
    () => sigmoidGate(encoder(), { x: t([2, 4]), gate: t([2, 1]) }),
    "sigmoidGate: `gate` must have shape [2, 4], got [2, 1]",
  ],
  [
    "sigmoidGate: dtypes",
    () => sigmoidGate(encoder(), { x: t([4]), gate: t([4], "f16") }),
    "sigmoidGate: `gate` must have dtype f32, got f16",
  ],
  [
    "slice: no begin",
    () => slice(encoder(), { x: t([4]) }, { size: 1 } as never),
    "slice: `begin` must be a number, got undefined",
    "TypeError",
  ],
  [
    "slice: negative begin",
    () => slice(encoder(), { x: t([4]) }, { begin: -1, size: 1 }),
    "slice: `begin` must be an integer ≥ 0, got -1",
  ],
  [
    "slice: fraction",
    () => slice(encoder(), { x: t([4]) }, { begin: 0.5, size: 1 }),
    "slice: `begin` must be an integer ≥ 0, got 0.5",
  ],
  [
    "slice: empty",
    () => slice(encoder(), { x: t([4]) }, { begin: 0, size: 0 }),
    "slice: `size` must be an integer ≥ 1, got 0",
  ],
  [
    "slice: begin past the end",
    () => slice(encoder(), { x: t([3, 4]) }, { begin: 4, size: 1 }),
    "slice: `begin` must be < D = 4, got 4",
  ],
  [
    "slice: size past the end",
    () => slice(encoder(), { x: t([3, 4]) }, { begin: 2, size: 3 }),
    "slice: `size` must be ≤ D − begin = 2, got 3",
  ],
  [
    "slice: 8-byte elements",
    () => slice(encoder(), { x: t([4], "i64") }, { begin: 0, size: 1 }),
    "slice: `x` must have dtype f32 or f16 or bf16 or u32 or i32 or u16 or i16 or u8 or i8, got i64",
  ],
  [
    "slice: out",
    () => slice(encoder(), { x: t([3, 4]), out: t([3, 3]) }, { begin: 0, size: 2 }),
    "slice: `out` must have shape [3, 2], got [3, 3]",
  ],
  [
    "slice: in place",
    () => slice(encoder(), { x: shared.view(0, [8]), out: shared.view(0, [8]) }, { begin: 0, size: 8 }),
    "slice: `out` must not overlap `x`, got overlapping views",
  ],
  [
    "split: one range",
    () => split(encoder(), { x: t([4]) }, { beginA: 0, sizeA: 1 } as never),
    "split: `beginB` must be a number, got undefined",
    "TypeError",
  ],
  [
    "split: begin past the end",
    () => split(encoder(), { x: t([3, 4]) }, { beginA: 4, sizeA: 1, beginB: 0, sizeB: 1 }),
    "split: `beginA` must be < D = 4, got 4",
  ],
  [
    "split: size past the end",
    () => split(encoder(), { x: t([3, 4]) }, { beginA: 0, sizeA: 1, beginB: 2, sizeB: 3 }),
    "split: `sizeB` must be ≤ D − beginB = 2, got 3",
  ],
  [
    "split: a third range past the end",
    () => split(encoder(), { x: t([3, 4]), outC: true }, { ...HALVES, beginC: 3, sizeC: 2 }),
    "split: `sizeC` must be ≤ D − beginC = 1, got 2",
  ],
  [
    "split: a third output without its range",
    () => split(encoder(), { x: t([4]), outC: true }, { ...HALVES, beginC: 0 }),
    "split: `sizeC` must be given with `outC`, got undefined",
  ],
  [
    "split: a fourth output without its range",
    () => split(encoder(), { x: t([4]), outD: true }, { ...HALVES, sizeD: 1 }),
    "split: `beginD` must be given with `outD`, got undefined",
  ],
  [
    "split: empty",
    () => split(encoder(), { x: t([4]) }, { ...HALVES, sizeB: 0 }),
    "split: `sizeB` must be an integer ≥ 1, got 0",
  ],
  [
    "split: out",
    () => split(encoder(), { x: t([3, 4]), outB: t([3, 3]) }, HALVES),
    "split: `outB` must have shape [3, 2], got [3, 3]",
  ],
  [
    "split: dtypes",
    () => split(encoder(), { x: t([4]), outA: t([2], "f16") }, HALVES),
    "split: `outA` must have dtype f32, got f16",
  ],
  [
    "split: in place",
    () => split(encoder(), { x: shared.view(0, [8]), outA: shared.view(0, [2]) }, HALVES),
    "split: `outA` must not overlap `x`, got overlapping views",
  ],
  [
    "embedding: float ids",
    () => embedding(encoder(), { ids: t([4]), weight: t([5, 8]) }),
    "embedding: `ids` must have dtype i32 or u32, got f32",
  ],
  [
    "embedding: table of rank 1",
    () => embedding(encoder(), { ids: t([4], "u32"), weight: t([8]) }),
    "embedding: `weight` must have shape [V, D], got [8]",
  ],
  [
    "embedding: table of integers",
    () => embedding(encoder(), { ids: t([4], "u32"), weight: t([5, 8], "u8") }),
    "embedding: `weight` must have dtype f32 or f16 or bf16, got u8",
  ],
  [
    "embedding: outDtype",
    () => embedding(encoder(), { ids: t([4], "u32"), weight: t([5, 8]) }, { outDtype: "i32" as "f32" }),
    "embedding: `outDtype` must be one of f32, f16, bf16, got i32",
  ],
  [
    "embedding: out",
    () => embedding(encoder(), { ids: t([4], "u32"), weight: t([5, 8]), out: t([4, 8]) }, { outDtype: "bf16" }),
    "embedding: `out` must have dtype bf16, got f32",
  ],
  [
    "rope: rank",
    () => rope(encoder(), { x: t([2, 4]), positions: positions(), inverseFrequencies: frequencies() }),
    "rope: `x` must have shape [1, 2, H, D], got [2, 4]",
  ],
  [
    "rope: too many frequencies",
    () => rope(encoder(), { x: x(), positions: positions(), inverseFrequencies: t([3]) }),
    "rope: `inverseFrequencies` must have at most D / 2 = 2 elements, got 3",
  ],
  [
    "rope: positions of another length",
    () => rope(encoder(), { x: x(), positions: t([1, 3], "i32"), inverseFrequencies: frequencies() }),
    "rope: `positions` must have shape [1, 2], got [1, 3]",
  ],
  [
    "rope: float positions",
    () => rope(encoder(), { x: x(), positions: t([1, 2]), inverseFrequencies: frequencies() }),
    "rope: `positions` must have dtype i32, got f32",
  ],
  [
    "rope: 16-bit frequencies",
    () => rope(encoder(), { x: x(), positions: positions(), inverseFrequencies: t([2], "bf16") }),
    "rope: `inverseFrequencies` must have dtype f32, got bf16",
  ],
  [
    "rope: pairing",
    () =>
      rope(
        encoder(),
        { x: x(), positions: positions(), inverseFrequencies: frequencies() },
        { pairing: "neox" as "half" },
      ),
    "rope: `pairing` must be one of half, interleaved, got neox",
  ],
  [
    "rope: partial overlap",
    () =>
      rope(encoder(), {
        x: shared.view(0, [1, 2, 2, 4]),
        positions: positions(),
        inverseFrequencies: frequencies(),
        out: shared.view(4, [1, 2, 2, 4]),
      }),
    "rope: `out` must be exactly `x` or not overlap it, got overlapping views",
  ],
  [
    "argmax: integers",
    () => argmax(encoder(), { logits: t([4], "u32") }),
    "argmax: `logits` must have dtype f32 or f16 or bf16, got u32",
  ],
  [
    "argmax: ids dtype",
    () => argmax(encoder(), { logits: t([2, 4]), ids: t([2], "i32") }),
    "argmax: `ids` must have dtype u32, got i32",
  ],
  [
    "argmax: ids shape",
    () => argmax(encoder(), { logits: t([2, 4]), ids: t([2, 1], "u32") }),
    "argmax: `ids` must have shape [2], got [2, 1]",
  ],
];

describe("argument errors", () => {
  refusalTests(MESSAGES);
});

describe("ids outside the table", () => {
  const run = async (dtype: "i32" | "u32", ids: number[]) => {
    const out = t([ids.length, 3]);
    out.write(new Float32Array(ids.length * 3).fill(7));
    const recording = encoder();
    embedding(recording, { ids: device.tensor(dtype, [ids.length], ids), weight: t([5, 3]), out });
    return recording.commit();
  };
  it.each([
    ["i32", [0, 4, -1, 2], "embedding: `ids` must be from 0 to 4, got -1 at position 2"],
    ["i32", [5], "embedding: `ids` must be from 0 to 4, got 5 at position 0"],
    ["u32", [1, 4294967295], "embedding: `ids` must be from 0 to 4, got 4294967295 at position 1"],
  ] as const)("%s %j", async (dtype, ids, message) => {
    await expect(run(dtype, [...ids])).rejects.toMatchObject({ message, code: "InvalidArgument" });
  });
});
