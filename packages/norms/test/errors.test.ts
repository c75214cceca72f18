import { type CommandEncoder, Device, type Dtype } from "@mlxts/core";
import { refusalTests, type WrongCall } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import { addRmsNorm, gatedRmsNorm, l2Norm, rmsNorm, rmsNormAdd, rmsNormMul } from "../src/index.ts";

const device = Device.open();
const elsewhere = Device.open();
afterAll(() => {
  device.dispose();
  elsewhere.dispose();
});

const t = (shape: number[], dtype: Dtype = "f32") => device.tensor(dtype, shape);
const encoder = () => device.encoder();
/** A row of 24 elements under several views. */
const shared = t([24]);

type LooseOp = (encoder: CommandEncoder, inputs: never, options: never) => unknown;
/** Norms of one row tensor and one weight: what else they take, and their outputs. */
const WEIGHTED: [op: LooseOp & { op: { name: string } }, x: string, others: string[], out: string][] = [
  [rmsNorm, "x", [], "out"],
  [gatedRmsNorm, "x", ["z"], "out"],
  [rmsNormMul, "x", ["factor"], "out"],
  [rmsNormAdd, "x", ["residual"], "out"],
  [addRmsNorm, "a", ["b"], "sum"],
];

const ROUNDING: WrongCall[] = WEIGHTED.flatMap(([norm, x, others, out]): WrongCall[] => {
  const op = norm.op.name;
  const call =
    (given: Record<string, unknown>, options: Record<string, unknown> = {}) =>
    () => {
      const rows = Object.fromEntries([x, ...others].map((name) => [name, t([2, 8])]));
      return norm(encoder(), { ...rows, weight: t([8]), ...given } as never, options as never);
    };
  return [
    [`${op}: no weight`, call({ weight: undefined }), `${op}: \`weight\` must be a Tensor, got undefined`, "TypeError"],
    [
      `${op}: integer x`,
      call({ [x]: t([2, 8], "i32") }),
      `${op}: \`${x}\` must have dtype f32 or f16 or bf16, got i32`,
    ],
    [`${op}: longer weight`, call({ weight: t([9]) }), `${op}: \`weight\` must have shape [8], got [9]`],
    [`${op}: shorter weight`, call({ weight: t([7]) }), `${op}: \`weight\` must have shape [8], got [7]`],
    [`${op}: weight of rank 2`, call({ weight: t([1, 8]) }), `${op}: \`weight\` must have shape [8], got [1, 8]`],
    [`${op}: third dtype`, call({ weight: t([8], "f16") }), `${op}: \`weight\` must have dtype f32, got f16`],
    [`${op}: larger out`, call({ [out]: t([3, 8]) }), `${op}: \`${out}\` must have shape [2, 8], got [3, 8]`],
    [
      `${op}: out of another dtype`,
      call({ [out]: t([2, 8], "bf16") }),
      `${op}: \`${out}\` must have dtype f32, got bf16`,
    ],
    [`${op}: negative eps`, call({}, { eps: -1e-6 }), `${op}: \`eps\` must be a finite number ≥ 0, got -0.000001`],
    [`${op}: infinite eps`, call({}, { eps: Infinity }), `${op}: \`eps\` must be a finite number ≥ 0, got Infinity`],
    [`${op}: NaN eps`, call({}, { eps: Number.NaN }), `${op}: \`eps\` must be a finite number ≥ 0, got NaN`],
    [`${op}: eps as text`, call({}, { eps: "1e-6" }), `${op}: \`eps\` must be a number, got "1e-6"`, "TypeError"],
    [`${op}: offset 2`, call({}, { weightOffset: 2 }), `${op}: \`weightOffset\` must be one of 0, 1, got 2`],
    [
      `${op}: rounding`,
      call({}, { rounding: "never" }),
      `${op}: \`rounding\` must be one of once, before-weight, got never`,
    ],
    [
      `${op}: partial overlap`,
      call({ [x]: shared.view(0, [2, 8]), [out]: shared.view(4, [2, 8]) }),
      `${op}: \`${out}\` must be exactly \`${x}\` or not overlap it, got overlapping views`,
    ],
    [
      `${op}: out over the weight`,
      call({ weight: shared.view(16, [8]), [out]: shared.view(8, [2, 8]) }),
      `${op}: \`${out}\` must not overlap \`weight\`, got overlapping views`,
    ],
    [
      `${op}: x of another device`,
      call({ [x]: elsewhere.tensor("f32", [2, 8]) }),
      `${op}: \`${x}\` must belong to the encoder's device, got a tensor of another device`,
    ],
    ...others.flatMap((other): WrongCall[] => [
      [
        `${op}: ${other} of another shape`,
        call({ [other]: t([8, 2]) }),
        `${op}: \`${other}\` must have shape [2, 8], got [8, 2]`,
      ],
      [
        `${op}: ${other} of another dtype`,
        call({ [other]: t([2, 8], "f16") }),
        `${op}: \`${other}\` must have dtype f32, got f16`,
      ],
      [
        `${op}: no ${other}`,
        call({ [other]: undefined }),
        `${op}: \`${other}\` must be a Tensor, got undefined`,
        "TypeError",
      ],
    ]),
  ];
});

const MESSAGES: WrongCall[] = [
  ...ROUNDING,
  [
    "rmsNormMul: out over part of the factor",
    () =>
      rmsNormMul(encoder(), {
        x: t([2, 8]),
        weight: t([8]),
        factor: shared.view(0, [2, 8]),
        out: shared.view(1, [2, 8]),
      }),
    "rmsNormMul: `out` must be exactly `factor` or not overlap it, got overlapping views",
  ],
  [
    "rmsNormMul: roundIntermediate",
    () => rmsNormMul(encoder(), { x: t([2, 8]), weight: t([8]), factor: t([2, 8]) }, { roundIntermediate: 1 as never }),
    "rmsNormMul: `roundIntermediate` must be a boolean, got 1",
    "TypeError",
  ],
  [
    "rmsNormAdd: out over part of the residual",
    () =>
      rmsNormAdd(encoder(), {
        x: t([2, 8]),
        weight: t([8]),
        residual: shared.view(0, [2, 8]),
        out: shared.view(1, [2, 8]),
      }),
    "rmsNormAdd: `out` must be exactly `residual` or not overlap it, got overlapping views",
  ],
  [
    "addRmsNorm: one output over the other",
    () =>
      addRmsNorm(encoder(), {
        a: t([2, 8]),
        b: t([2, 8]),
        weight: t([8]),
        sum: shared.view(0, [2, 8]),
        out: shared.view(0, [2, 8]),
      }),
    "addRmsNorm: `out` must not overlap `sum`, got overlapping views",
  ],
  [
    "addRmsNorm: out in place",
    () =>
      addRmsNorm(encoder(), { a: shared.view(0, [2, 8]), b: t([2, 8]), weight: t([8]), out: shared.view(0, [2, 8]) }),
    "addRmsNorm: `out` must not overlap `a`, got overlapping views",
  ],
  [
    "gatedRmsNorm: weight of a third dtype",
    () => gatedRmsNorm(encoder(), { x: t([2, 8], "bf16"), z: t([2, 8], "bf16"), weight: t([8], "f16") }),
    "gatedRmsNorm: `weight` must have dtype bf16 or f32, got f16",
  ],
  [
    "gatedRmsNorm: act",
    () => gatedRmsNorm(encoder(), { x: t([2, 8]), z: t([2, 8]), weight: t([8]) }, { activation: "gelu" as "silu" }),
    "gatedRmsNorm: `activation` must be one of silu, sigmoid, got gelu",
  ],
  [
    "gatedRmsNorm: order",
    () =>
      gatedRmsNorm(encoder(), { x: t([2, 8]), z: t([2, 8]), weight: t([8]) }, { order: "both" as "norm-then-gate" }),
    "gatedRmsNorm: `order` must be one of norm-then-gate, gate-then-norm, got both",
  ],
  [
    "gatedRmsNorm: in place of z",
    () =>
      gatedRmsNorm(encoder(), { x: t([2, 8]), z: shared.view(0, [2, 8]), weight: t([8]), out: shared.view(0, [2, 8]) }),
    "gatedRmsNorm: `out` must not overlap `z`, got overlapping views",
  ],
  [
    "gatedRmsNorm: unknown option",
    () => gatedRmsNorm(encoder(), { x: t([2, 8]), z: t([2, 8]), weight: t([8]) }, { epsilon: 1 } as object),
    "gatedRmsNorm: `epsilon` must be one of eps, activation, order, rounding, weightOffset, got an unknown option",
    "TypeError",
  ],
  [
    "l2Norm: integer x",
    () => l2Norm(encoder(), { x: t([2, 8], "u8") }),
    "l2Norm: `x` must have dtype f32 or f16 or bf16, got u8",
  ],
  [
    "l2Norm: kind",
    () => l2Norm(encoder(), { x: t([2, 8]) }, { kind: "sum" as "sum-eps" }),
    "l2Norm: `kind` must be one of sum-eps, mean-eps, max-eps, got sum",
  ],
  [
    "l2Norm: eps",
    () => l2Norm(encoder(), { x: t([2, 8]) }, { eps: -1 }),
    "l2Norm: `eps` must be a finite number ≥ 0, got -1",
  ],
  [
    "l2Norm: out",
    () => l2Norm(encoder(), { x: t([2, 8]), out: t([16]) }),
    "l2Norm: `out` must have shape [2, 8], got [16]",
  ],
  [
    "l2Norm: out of another dtype",
    () => l2Norm(encoder(), { x: t([2, 8], "bf16"), out: t([2, 8]) }),
    "l2Norm: `out` must have dtype bf16, got f32",
  ],
  [
    "l2Norm: partial overlap",
    () => l2Norm(encoder(), { x: shared.view(0, [2, 8]), out: shared.view(8, [2, 8]) }),
    "l2Norm: `out` must be exactly `x` or not overlap it, got overlapping views",
  ],
];

describe("argument errors", () => {
  refusalTests(MESSAGES);

  it("are thrown before anything is encoded", () => {
    const refusing = encoder();
    const before = device.counters.dispatches;
    expect(() => l2Norm(refusing, { x: t([2, 8]) }, { eps: -1 })).toThrow();
    expect(device.counters.dispatches).toBe(before);
  });
});

describe("data outside the contract", () => {
  it("poisons its own row only", async () => {
    const x = new Float32Array(24).fill(1);
    x[9] = Number.NaN;
    const inputs = { x: device.tensor("f32", [3, 8], x) };
    const recording = encoder();
    const ones = device.tensor("f32", [8], new Float32Array(8).fill(1));
    const outs = [
      l2Norm(recording, inputs),
      l2Norm(recording, inputs, { kind: "max-eps" }),
      gatedRmsNorm(recording, {
        ...inputs,
        z: device.tensor("f32", [3, 8], new Float32Array(24).fill(1)),
        weight: ones,
      }),
    ];
    await recording.commit();
    for (const out of outs) {
      const numbers = await out.readNumbers();
      expect(numbers.subarray(0, 8).every(Number.isFinite)).toBe(true);
      expect(numbers.subarray(8, 16).every(Number.isNaN)).toBe(true);
      expect(numbers.subarray(16).every(Number.isFinite)).toBe(true);
    }
  });

  it("gives 0 with the right sign where silu underflows", async () => {
    const recording = encoder();
    const z = [-1000, -3e38, -104, 1000];
    const out = gatedRmsNorm(recording, {
      x: device.tensor("f32", [1, 4], [1, -1, 1, 1]),
      z: device.tensor("f32", [1, 4], z),
      weight: device.tensor("f32", [4], [1, 1, 1, 1]),
    });
    await recording.commit();
    const numbers = await out.readNumbers();
    expect(Object.is(numbers[0], -0)).toBe(true);
    expect(Object.is(numbers[1], 0)).toBe(true);
    expect(Math.abs(numbers[2] as number)).toBeLessThan(1e-40);
    expect(numbers[3]).toBeCloseTo(1000, 2);
  });
});
