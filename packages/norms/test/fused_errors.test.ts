import { Device, type Dtype, type Tensor } from "@mlxts/core";
import { type GoodCall, type Mistake, refusesEach } from "@mlxts/test-kit/refusals";
import { afterAll, describe, expect, it } from "vitest";
import {
  fusedMoeWsumPostFfNorm2EndLayer,
  fusedPostAttnTripleNorm,
  fusedPostFfNorm2EndLayer,
  rmsNormNoScale,
  rmsNormNoScaleDual,
  rmsNormNoScaleDualPermuted,
  rmsNormTriple,
} from "../src/index.ts";

const device = Device.open();
const elsewhere = Device.open();
afterAll(() => {
  device.dispose();
  elsewhere.dispose();
});

const t = (shape: number[], dtype: Dtype = "f32") => device.tensor(dtype, shape);
const shared = t([64]);
const DEVICE = "belong to the encoder's device, got a tensor of another device";
const OVERLAP = "got overlapping views";

/** Mistakes with rows of [2, 8], of the names given; the first one is what the others' dtype comes from. */
const rowMistakes = ([first, ...others]: string[]): Record<string, Mistake> => ({
  [`no ${first}`]: {
    inputs: { [first as string]: undefined },
    message: `\`${first}\` must be a Tensor, got undefined`,
    kind: "TypeError",
  },
  [`integer ${first}`]: {
    inputs: { [first as string]: t([2, 8], "i32") },
    message: `\`${first}\` must have dtype f32 or f16 or bf16, got i32`,
  },
  [`${first} of another device`]: {
    inputs: { [first as string]: elsewhere.tensor("f32", [2, 8]) },
    message: `\`${first}\` must ${DEVICE}`,
  },
  ...Object.fromEntries(
    others.flatMap((name): [string, Mistake][] => [
      [
        `${name} of another shape`,
        { inputs: { [name]: t([3, 8]) }, message: `\`${name}\` must have shape [2, 8], got [3, 8]` },
      ],
      [
        `${name} of another dtype`,
        { inputs: { [name]: t([2, 8], "bf16") }, message: `\`${name}\` must have dtype f32, got bf16` },
      ],
    ]),
  ),
});

const weightMistakes = (names: string[], out: string): Record<string, Mistake> =>
  Object.fromEntries(
    names.flatMap((name): [string, Mistake][] => [
      [`longer ${name}`, { inputs: { [name]: t([9]) }, message: `\`${name}\` must have shape [8], got [9]` }],
      [`shorter ${name}`, { inputs: { [name]: t([7]) }, message: `\`${name}\` must have shape [8], got [7]` }],
      [
        `${name} of a third dtype`,
        { inputs: { [name]: t([8], "f16") }, message: `\`${name}\` must have dtype f32, got f16` },
      ],
      [
        `an output over ${name}`,
        {
          inputs: { [name]: shared.view(8, [8]), [out]: shared.view(0, [2, 8]) },
          message: `\`${out}\` must not overlap \`${name}\`, ${OVERLAP}`,
        },
      ],
    ]),
  );

/** Outputs of [2, 8]: of another size, and over each other. */
const outputMistakes = (names: string[]): Record<string, Mistake> =>
  Object.fromEntries(
    names.flatMap((name, i): [string, Mistake][] => [
      [`larger ${name}`, { inputs: { [name]: t([3, 8]) }, message: `\`${name}\` must have shape [2, 8], got [3, 8]` }],
      [
        `${name} of another dtype`,
        { inputs: { [name]: t([2, 8], "f16") }, message: `\`${name}\` must have dtype f32, got f16` },
      ],
      ...names.slice(0, i).map((other): [string, Mistake] => [
        `${name} over ${other}`,
        {
          inputs: { [name]: shared.view(0, [2, 8]), [other]: shared.view(0, [2, 8]) },
          message: `\`${name}\` must not overlap \`${other}\`, ${OVERLAP}`,
        },
      ]),
    ]),
  );

const optionMistakes: Record<string, Mistake> = {
  "a negative eps": { options: { eps: -1e-6 }, message: "`eps` must be a finite number ≥ 0, got -0.000001" },
  "an infinite eps": { options: { eps: Infinity }, message: "`eps` must be a finite number ≥ 0, got Infinity" },
};
const weightOptions: Record<string, Mistake> = {
  ...optionMistakes,
  "weightOffset 2": { options: { weightOffset: 2 }, message: "`weightOffset` must be one of 0, 1, got 2" },
  "an unknown rounding": {
    options: { rounding: "never" },
    message: "`rounding` must be one of once, before-weight, got never",
  },
};

const call = (inputs: Record<string, Tensor>): GoodCall => ({ inputs, options: {} });
const rows = () => t([2, 8]);
const inPlace = (out: string, input: string, allowed: boolean): Record<string, Mistake> => ({
  ...(!allowed && {
    [`${out} in place of ${input}`]: {
      inputs: { [out]: shared.view(0, [2, 8]), [input]: shared.view(0, [2, 8]) },
      message: `\`${out}\` must not overlap \`${input}\`, ${OVERLAP}`,
    },
  }),
  [`${out} over a part of ${input}`]: {
    inputs: { [out]: shared.view(4, [2, 8]), [input]: shared.view(0, [2, 8]) },
    message: `\`${out}\` must ${allowed ? `be exactly \`${input}\` or not overlap it` : `not overlap \`${input}\``}, ${OVERLAP}`,
  },
});

describe("rmsNormNoScale", () => {
  refusesEach(device, rmsNormNoScale, call({ x: rows() }), {
    ...rowMistakes(["x"]),
    ...outputMistakes(["out"]),
    ...optionMistakes,
    ...inPlace("out", "x", true),
    "a weight": {
      inputs: { weight: t([8]) },
      message: "`weight` must be one of x, out, got an unknown tensor name",
      kind: "TypeError",
    },
  });
});

const dualMistakes: Record<string, Mistake> = {
  "x of 16 bits": { inputs: { x: t([2, 8], "bf16") }, message: "`x` must have dtype f32, got bf16" },
  "out16 of 32 bits": { inputs: { out16: rows() }, message: "`out16` must have dtype bf16 or f16, got f32" },
};
describe("rmsNormNoScaleDual", () => {
  refusesEach(device, rmsNormNoScaleDual, call({ x: rows() }), {
    ...dualMistakes,
    ...optionMistakes,
    ...inPlace("out", "x", false),
    "larger out16": {
      inputs: { out16: t([3, 8], "f16") },
      message: "`out16` must have shape [2, 8], got [3, 8]",
    },
  });
});
describe("rmsNormNoScaleDualPermuted", () => {
  refusesEach(device, rmsNormNoScaleDualPermuted, call({ x: t([2, 3, 8]) }), {
    ...optionMistakes,
    "rows without heads": { inputs: { x: t([6, 8]) }, message: "`x` must have shape [T, H, D], got [6, 8]" },
    "out16 by token": {
      inputs: { out16: t([2, 3, 8], "bf16") },
      message: "`out16` must have shape [3, 2, 8], got [2, 3, 8]",
    },
  });
});

const THREE = ["weightA", "weightB", "weightC"];
const OUTS = ["outA", "outB", "outC"];
const weights = (names: string[]) => Object.fromEntries(names.map((name) => [name, t([8])]));

describe("rmsNormTriple", () => {
  refusesEach(device, rmsNormTriple, call({ x: rows(), ...weights(THREE) }), {
    ...rowMistakes(["x"]),
    ...weightMistakes(THREE, "outB"),
    ...outputMistakes(OUTS),
    ...weightOptions,
    ...inPlace("outA", "x", false),
  });
});

describe("fusedPostAttnTripleNorm", () => {
  const good = call({ hidden: rows(), attn: rows(), ...weights(["weightPost", ...THREE]) });
  refusesEach(device, fusedPostAttnTripleNorm, good, {
    ...rowMistakes(["hidden", "attn"]),
    ...weightMistakes(["weightPost", ...THREE], "outC"),
    ...outputMistakes(["res", ...OUTS]),
    ...weightOptions,
    ...inPlace("res", "hidden", true),
    ...inPlace("res", "attn", false),
    ...inPlace("outA", "hidden", false),
  });
});

const scaleMistakes: Record<string, Mistake> = {
  "a scale for half the columns": { inputs: { scale: t([4]) }, message: "`scale` must have shape [8], got [4]" },
  "more scales than columns": { inputs: { scale: t([9]) }, message: "`scale` must have shape [8], got [9]" },
  "a scale of rank 2": { inputs: { scale: t([1, 1]) }, message: "`scale` must have shape [8], got [1, 1]" },
  "a scale of 16 bits": { inputs: { scale: t([1], "bf16") }, message: "`scale` must have dtype f32, got bf16" },
  "hidden over the scale": {
    inputs: { scale: shared.view(3, [1]), hidden: shared.view(0, [2, 8]) },
    message: `\`hidden\` must not overlap \`scale\`, ${OVERLAP}`,
  },
};
const endMistakes = {
  ...weightMistakes(["weight2", "weight3"], "hidden"),
  ...outputMistakes(["m", "hidden"]),
  ...weightOptions,
  ...scaleMistakes,
  ...inPlace("hidden", "residual", true),
  ...inPlace("hidden", "attn", false),
  ...inPlace("m", "residual", false),
};
const end = () => ({ attn: rows(), residual: rows(), ...weights(["weight2", "weight3"]), scale: t([1]) });

describe("fusedPostFfNorm2EndLayer", () => {
  refusesEach(device, fusedPostFfNorm2EndLayer, call({ ...end(), x: rows() }), {
    ...rowMistakes(["attn", "x", "residual"]),
    ...endMistakes,
    ...inPlace("hidden", "x", false),
  });
});

describe("fusedMoeWsumPostFfNorm2EndLayer", () => {
  const good = call({ ...end(), experts: t([2, 3, 8]), routing: t([2, 3]) });
  refusesEach(device, fusedMoeWsumPostFfNorm2EndLayer, good, {
    ...rowMistakes(["attn", "residual"]),
    ...endMistakes,
    "experts of more rows": {
      inputs: { experts: t([3, 3, 8]) },
      message: "`experts` must have shape [2, 3, 8], got [3, 3, 8]",
    },
    "experts of more columns": {
      inputs: { experts: t([2, 3, 9]) },
      message: "`experts` must have shape [2, 3, 8], got [2, 3, 9]",
    },
    "experts without topK": {
      inputs: { experts: t([6, 8]) },
      message: "`experts` must have shape [2, 6, 8], got [6, 8]",
    },
    "routing of fewer experts": {
      inputs: { routing: t([2, 2]) },
      message: "`routing` must have shape [2, 3], got [2, 2]",
    },
    "routing of 16 bits": {
      inputs: { routing: t([2, 3], "bf16") },
      message: "`routing` must have dtype f32, got bf16",
    },
  });
});

describe("data outside the contract", () => {
  it("spoils its own row only, and a zero row of x gives a norm of 0", async () => {
    const data = new Float32Array(24).fill(1).fill(0, 16);
    data[9] = Number.NaN;
    const x = device.tensor("f32", [3, 8], data);
    const ones = device.tensor("f32", [8], new Float32Array(8).fill(1));
    const plain = device.tensor("f32", [3, 8], new Float32Array(24).fill(2));
    const encoder = device.encoder();
    const three = { weightA: ones, weightB: ones, weightC: ones };
    const norm = rmsNormNoScale(encoder, { x });
    const outs = [
      norm,
      rmsNormTriple(encoder, { x, ...three }).outC,
      fusedPostAttnTripleNorm(encoder, { hidden: plain, attn: x, weightPost: ones, ...three }).outA,
      fusedPostFfNorm2EndLayer(encoder, {
        attn: plain,
        x,
        residual: plain,
        weight2: ones,
        weight3: ones,
        scale: device.tensor("f32", [1], [1]),
      }).hidden,
    ];
    await encoder.commit();
    for (const out of outs) {
      const numbers = await out.readNumbers();
      expect(numbers.subarray(0, 8).every(Number.isFinite)).toBe(true);
      expect(numbers.subarray(8, 16).every(Number.isNaN)).toBe(true);
      expect(numbers.subarray(16).every(Number.isFinite)).toBe(true);
    }
    expect([...(await norm.readNumbers()).subarray(16)]).toEqual(new Array(8).fill(0));
  });
});
