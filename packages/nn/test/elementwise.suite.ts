import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { add, elementwiseMul, sigmoidGate, swiglu } from "../src/index.ts";
import { addReference, elementwiseMulReference, sigmoidGateReference, swigluReference } from "../src/reference.ts";

const random = new Random(3);
/** Around vector widths and the block of 4096. */
const SHAPES = [[1], [3], [4], [5], [15], [16], [17], [33], [2, 3, 67], [4095], [4096], [4097], [3, 4096], [5, 2503]];
const sigmoid = (z: number) => 1 / (1 + Math.exp(-z));

/** Cases for an op of two tensors. Their numbers are bounded: products of normal ones have long tails. */
function cases(first: string, second: string): Case[] {
  const make = (shape: readonly number[]): Case => {
    const size = shape.reduce((a, b) => a * b, 1);
    // The error of a few elements is a matter of luck: short rows are repeated.
    const full = size >= 256 ? shape : [Math.ceil(256 / size), ...shape];
    const count = full.reduce((a, b) => a * b, 1);
    return {
      name: `[${full}]`,
      inputs: {
        [first]: { dtype: "act", shape: full, data: random.uniforms(count, -2, 2) },
        [second]: { dtype: "act", shape: full, data: random.uniforms(count, -2, 2) },
      },
    };
  };
  const inPlace = (input: string): Case => ({
    ...make([3, 2503]),
    name: `in place of ${input}`,
    inPlace: { out: input },
  });
  return [
    ...SHAPES.map(make),
    { ...make([1]), name: "one element", inputs: one(first, second) },
    inPlace(first),
    inPlace(second),
  ];
}

const one = (first: string, second: string): Case["inputs"] => ({
  [first]: { dtype: "act", shape: [1], data: [1.5] },
  [second]: { dtype: "act", shape: [1], data: [0.25] },
});

function suiteOf(
  op: Suite["op"],
  first: string,
  second: string,
  formula: (a: Float64Array, b: Float64Array) => Float64Array,
  mutants: Record<string, (a: Float64Array, b: Float64Array) => Float64Array>,
  more: Case[] = [],
): Suite {
  const reference =
    (f: (a: Float64Array, b: Float64Array) => Float64Array): ReferenceFunction =>
    (inputs) => {
      const a = inputs[first] as Reference64;
      return { out: { shape: a.shape, data: f(a.data, (inputs[second] as Reference64).data) } };
    };
  const common = {
    "last elements not written": (a: Float64Array, b: Float64Array) =>
      formula(a, b).map((v, i) => (i < a.length - (a.length % 4) ? v : Number.NaN)),
    "second block reads the first": (a: Float64Array, b: Float64Array) =>
      formula(
        a.map((_, i) => a[i % 4096] as number),
        b,
      ),
    "first input alone": (a: Float64Array) => a,
    "second input shifted by one": (a: Float64Array, b: Float64Array) =>
      formula(
        a,
        b.map((_, i) => b[Math.min(i + 1, b.length - 1)] as number),
      ),
  };
  return {
    op,
    errorClass: "S",
    reference: reference(formula),
    cases: [...cases(first, second), ...more],
    mutants: Object.fromEntries(Object.entries({ ...common, ...mutants }).map(([name, f]) => [name, reference(f)])),
  };
}

const addSuite = suiteOf(add, "a", "b", addReference, {
  subtracted: (a, b) => a.map((v, i) => v - (b[i] as number)),
  "second input twice": (a, b) => a.map((v, i) => v + 2 * (b[i] as number)),
});

/** Gates far out on both sides, where exp overflows f32: silu is ∓0 or the gate itself, sigmoid 0 or 1. */
function farGates(gate: string, other: string): Case {
  const far = [-100, -1e4, -3e38, -88.7, -104, -87, 100, 88.8];
  return {
    name: "gates far out",
    // f16 would round -3e38 to -infinity, which is outside the contract.
    dtypes: ["f32", "bf16"],
    inputs: {
      [gate]: { dtype: "act", shape: [304], data: random.uniforms(304, -2, 2).map((v, i) => far[i - 100] ?? v) },
      [other]: { dtype: "act", shape: [304], data: random.uniforms(304, -2, 2) },
    },
  };
}

/** Where a gate's silu and sigmoid lie between f32's least number and its least normal one. */
const SUBNORMAL = [
  [-104.3, -103.5],
  [-100, -99],
  [-95, -94],
  [-88, -87],
] as const;

/** Such gates beside factors so large that the product is an ordinary number; each range has a scale of its own. */
function subnormalGates(gate: string, other: string): Case[] {
  return SUBNORMAL.map(([low, high]) => ({
    name: `gates from ${low} to ${high}`,
    // f16 has no such factors.
    dtypes: ["f32", "bf16"],
    inputs: {
      [gate]: { dtype: "act", shape: [300], data: random.uniforms(300, low, high) },
      [other]: { dtype: "act", shape: [300], data: random.uniforms(300, -3e38, 3e38) },
    },
  }));
}

/** Gates and factors that are infinite or NaN, each with each; which bits a NaN of two NaN has is open. */
function infiniteGates(gate: string, other: string): Case {
  const gates = [-87, -88.7, -100, -103.9, -104, -104.3, 0, -0, 1, Infinity, -Infinity, Number.NaN];
  const others = [Infinity, -Infinity, Number.NaN, 0, -1, 1];
  const pairs = gates
    .flatMap((g) => others.map((o) => [g, o] as const))
    .filter(([g, o]) => Number.isFinite(g) || !Number.isNaN(o));
  return {
    name: "infinite gates and factors",
    inputs: {
      [gate]: { dtype: "act", shape: [pairs.length], data: pairs.map(([g]) => g) },
      [other]: { dtype: "act", shape: [pairs.length], data: pairs.map(([, o]) => o) },
    },
  };
}

const hardGates = (gate: string, other: string): Case[] => [
  farGates(gate, other),
  ...subnormalGates(gate, other),
  infiniteGates(gate, other),
];

/** What f32 keeps of a number where subnormal ones count as 0. */
const flushed = (value: number) => (Math.abs(value) < 2 ** -126 ? 0 : Math.fround(value));

const swigluSuite = suiteOf(
  swiglu,
  "gate",
  "up",
  swigluReference,
  {
    "sigmoid for silu": (gate, up) => gate.map((v, i) => sigmoid(v) * (up[i] as number)),
    "gate and up exchanged": (gate, up) => swigluReference(up, gate),
    "gelu for silu": (gate, up) => gate.map((v, i) => v * sigmoid(1.702 * v) * (up[i] as number)),
    "silu of the product": (gate, up) =>
      swigluReference(
        gate.map((v, i) => v * (up[i] as number)),
        up.map(() => 1),
      ),
    "NaN for a very negative gate": (gate, up) =>
      gate.map((v, i) => {
        const e = Math.fround(Math.exp(-v));
        return v * (1 - e / (1 + e)) * (up[i] as number);
      }),
    "silu that is subnormal counts as 0": (gate, up) => gate.map((v, i) => flushed(v * sigmoid(v)) * (up[i] as number)),
    "silu rounded to f32 before the product": (gate, up) =>
      gate.map((v, i) => Math.fround(v * sigmoid(v)) * (up[i] as number)),
    "exp overflows in silu": (gate, up) =>
      gate.map((v, i) => (v / (1 + Math.fround(Math.exp(-v)))) * (up[i] as number)),
    "silu rounded to 8 bits before the product": (gate, up) =>
      gate.map((v, i) => {
        const s = v * sigmoid(v);
        const unit = 2 ** (Math.floor(Math.log2(Math.abs(s) + 1e-30)) - 7);
        return Math.round(s / unit) * unit * (up[i] as number);
      }),
  },
  hardGates("gate", "up"),
);

const sigmoidGateSuite = suiteOf(
  sigmoidGate,
  "x",
  "gate",
  sigmoidGateReference,
  {
    "silu for sigmoid": (x, gate) => swigluReference(gate, x),
    "x and gate exchanged": (x, gate) => sigmoidGateReference(gate, x),
    "gate not activated": (x, gate) => x.map((v, i) => v * (gate[i] as number)),
    "one minus sigmoid": (x, gate) => x.map((v, i) => v * sigmoid(-(gate[i] as number))),
    "sigmoid that is subnormal counts as 0": (x, gate) => x.map((v, i) => v * flushed(sigmoid(gate[i] as number))),
    "sigmoid rounded to f32 before the product": (x, gate) =>
      x.map((v, i) => v * Math.fround(sigmoid(gate[i] as number))),
    "exp overflows in sigmoid": (x, gate) => x.map((v, i) => v / (1 + Math.fround(Math.exp(-(gate[i] as number))))),
    "tanh for sigmoid": (x, gate) => x.map((v, i) => v * Math.tanh(gate[i] as number)),
    "NaN for a very negative gate": (x, gate) =>
      x.map((v, i) => {
        const e = Math.fround(Math.exp(-(gate[i] as number)));
        return v * (1 - e / (1 + e));
      }),
  },
  hardGates("gate", "x"),
);

const elementwiseMulSuite = suiteOf(elementwiseMul, "a", "b", elementwiseMulReference, {
  added: (a, b) => addReference(a, b),
  "first input squared": (a) => a.map((v) => v * v),
  "second input alone": (_, b) => b,
  "sign lost": (a, b) => a.map((v, i) => Math.abs(v * (b[i] as number))),
});

export const suites: readonly Suite[] = [addSuite, swigluSuite, sigmoidGateSuite, elementwiseMulSuite];
