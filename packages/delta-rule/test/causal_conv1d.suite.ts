import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { causalConv1d } from "../src/index.ts";
import { type ConvDims, type ConvInputs, causalConv1dReference } from "../src/reference.ts";

const random = new Random(12);

interface Setting {
  bias?: boolean;
  initialState?: "act" | "f32";
  weight?: "act" | "f32";
  activation?: "none" | "silu";
  inPlace?: boolean;
  /** Rows of the state beyond W − 1. */
  more?: number;
  /** The parts of tokens that are masked; `nan`: what is there is NaN. */
  masked?: "half" | "half nan" | "begin nan" | "end nan" | "all nan";
  cuSeqlens?: readonly number[];
}

const SKIPS: Record<NonNullable<Setting["masked"]>, (t: number, T: number) => boolean> = {
  half: () => random.uniform() < 0.5,
  "half nan": () => random.uniform() < 0.5,
  "begin nan": (t, T) => t < T / 2,
  "end nan": (t, T) => t > T / 2,
  "all nan": () => true,
};

function makeCase(N: number, T: number, C: number, W: number, setting: Setting = {}): Case {
  const { bias, initialState, weight = "act", activation, inPlace, more = 0, masked, cuSeqlens } = setting;
  const sequences = cuSeqlens ? cuSeqlens.length - 1 : N;
  const stateShape = [sequences, W - 1 + more, C];
  const size = stateShape.reduce((a, b) => a * b, 1);
  const mask = masked && Uint8Array.from({ length: N * T }, (_, at) => (SKIPS[masked](at % T, T) ? 0 : 1 + (at % 9)));
  const x = random.uniforms(N * T * C, -1.7, 1.7);
  return {
    name: `[${N}, ${T}, ${C}] W ${W} ${JSON.stringify(setting)}`,
    inputs: {
      x: {
        dtype: "act",
        shape: [N, T, C],
        data: masked?.endsWith("nan") ? x.map((value, i) => (mask?.[Math.floor(i / C)] ? value : Number.NaN)) : x,
      },
      weight: { dtype: weight, shape: [C, W], data: random.uniforms(C * W, -0.9, 0.9) },
      ...(bias && { bias: { dtype: weight, shape: [C], data: random.uniforms(C, -1, 1) } }),
      ...(initialState && {
        initialState: { dtype: initialState, shape: stateShape, data: random.uniforms(size, -1.7, 1.7) },
      }),
      ...(cuSeqlens && { cuSeqlens: { dtype: "i32", shape: [sequences + 1], data: cuSeqlens } }),
      ...(mask && { mask: { dtype: "u8", shape: [N, T], data: mask } }),
    },
    options: activation ? { activation } : {},
    ...(inPlace
      ? { inPlace: { finalState: "initialState" } }
      : { ask: { finalState: { dtype: initialState ?? "act", shape: stateShape } } }),
  };
}

type Formula = typeof causalConv1dReference;
const reference =
  (formula: Formula): ReferenceFunction =>
  (inputs: Record<string, Reference64>, options: { activation?: "none" | "silu" }) => {
    const { x, weight, initialState, cuSeqlens } = inputs as Record<"x" | "weight", Reference64> & typeof inputs;
    const [N, T, C] = x.shape as [number, number, number];
    const W = weight.shape[1] as number;
    const R = initialState?.shape[1] ?? W - 1;
    const data = Object.fromEntries(Object.entries(inputs).map(([name, tensor]) => [name, tensor.data]));
    const { y, finalState } = formula({ N, T, C, W, R }, data as unknown as ConvInputs, options.activation ?? "none");
    const sequences = cuSeqlens ? cuSeqlens.data.length - 1 : N;
    return { y: { shape: x.shape, data: y }, finalState: { shape: [sequences, R, C], data: finalState } };
  };

/** A wrong convolution: the right one of other arguments. */
const changed = (change: (inputs: ConvInputs, dims: ConvDims) => Partial<ConvInputs>) =>
  reference((dims, inputs, activation) =>
    causalConv1dReference(dims, { ...inputs, ...change(inputs, dims) }, activation),
  );
/** The right one with another final state. */
const changedState = (change: (inputs: ConvInputs, dims: ConvDims, right: Float64Array) => Float64Array) =>
  reference((dims, inputs, activation) => {
    const { y, finalState } = causalConv1dReference(dims, inputs, activation);
    return { y, finalState: change(inputs, dims, finalState) };
  });
/** State rows moved: row i of sequence s is what was `from(s, i)`; undefined: zeros. */
const moved = (
  state: Float64Array | undefined,
  { R, C }: ConvDims,
  from: (s: number, i: number) => readonly [s: number, i: number] | undefined,
) =>
  state?.map((_, at) => {
    const source = from(Math.floor(at / (R * C)), Math.floor(at / C) % R);
    return source ? (state[(source[0] * R + source[1]) * C + (at % C)] as number) : 0;
  });
const reversed = (data: Float64Array, W: number) => data.map((_, i) => data[i - (i % W) + W - 1 - (i % W)] as number);

/** Boundaries of packed sequences of these lengths. */
const bounds = (...lengths: number[]) => {
  let end = 0;
  return [0, ...lengths.map((length) => (end += length))];
};
const PACKED = [
  [0, 15],
  [0, 15, 15, 100, 300],
  [0, 64, 128],
  bounds(0, 0, 1, 2, 3, 4, 0, 5, 31, 32, 33, 63, 64, 65, 0),
  bounds(...Array.from({ length: 70 }, (_, i) => i % 4)),
];

export const suite: Suite = {
  op: causalConv1d,
  errorClass: { y: "S", finalState: "exact" },
  reference: reference(causalConv1dReference),
  cases: [
    ...[1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 63, 64, 65, 131].map((T) =>
      makeCase(1, T, 300, 4, { initialState: "act", activation: "silu" }),
    ),
    ...[1, 3, 15, 16, 17, 130, 255, 256, 257, 520].map((C) => makeCase(Math.max(2, Math.ceil(50 / C)), 9, C, 4)),
    ...[2, 3, 5, 6, 8].flatMap((W) => [
      makeCase(2, 70, 40, W, { bias: true, initialState: "act" }),
      makeCase(2, W - 1, 300, W, { bias: true, initialState: "f32", weight: "f32", activation: "silu" }),
      makeCase(3, 1, 300, W, { initialState: "f32", inPlace: true }),
    ]),
    makeCase(2, 90, 20, 70, { initialState: "act" }),
    makeCase(2, 5, 200, 70, { initialState: "act", inPlace: true }),
    // Neighbors' channels are written while these are read.
    ...[5, 6, 7].map((C) => makeCase(40, 2, C, 4, { initialState: "act", inPlace: true })),
    ...[1, 2, 3, 4, 100].flatMap((T) => [
      makeCase(2, T, 300, 4, { initialState: "act", inPlace: true }),
      makeCase(2, T, 300, 4, { bias: true, weight: "f32", activation: "silu" }),
    ]),
    // Longer histories.
    ...[1, 2, 3, 7, 8, 9, 67, 100].flatMap((T) => [
      makeCase(2, T, 90, 4, { initialState: "act", more: 5, inPlace: true }),
      makeCase(1, T, 130, 4, { initialState: "f32", more: 64, activation: "silu" }),
      makeCase(3, T, 30, 3, { initialState: "act", more: 1, inPlace: true }),
    ]),
    // Packed sequences.
    ...PACKED.flatMap((cuSeqlens) => {
      const T = cuSeqlens.at(-1) as number;
      return [
        makeCase(1, T, 45, 4, { cuSeqlens }),
        makeCase(1, T, 140, 4, { cuSeqlens, initialState: "act", activation: "silu" }),
        makeCase(1, T, 45, 4, { cuSeqlens, initialState: "f32", bias: true, more: 3, inPlace: true }),
        makeCase(1, T, 45, 3, { cuSeqlens, initialState: "act", inPlace: true }),
        makeCase(1, T, 10, 70, { cuSeqlens, initialState: "act", inPlace: true }),
      ];
    }),
    // Masks.
    ...(["half", "half nan", "begin nan", "end nan", "all nan"] as const).flatMap((masked) => [
      ...[1, 2, 9, 70].map((T) => makeCase(2, T, 150, 4, { masked, bias: true, initialState: "act", inPlace: true })),
      makeCase(3, 35, 45, 4, { masked, bias: true }),
      makeCase(2, 35, 45, 6, { masked, bias: true, initialState: "f32", more: 4, activation: "silu" }),
    ]),
  ],
  mutants: {
    "weight reversed": changed(({ weight }, { W }) => ({ weight: reversed(weight, W) })),
    "state of outputs": reference((dims, inputs, activation) => {
      const { y } = causalConv1dReference(dims, inputs, activation);
      return { y, finalState: causalConv1dReference(dims, { ...inputs, x: y }, "none").finalState };
    }),
    "state ignored": changed(() => ({ initialState: undefined })),
    "state newest first": changed(({ initialState }, dims) => ({
      initialState: moved(initialState, dims, (s, i) => [s, dims.R - 1 - i]),
    })),
    "the first rows of a longer state": changed(({ initialState }, dims) => ({
      initialState: moved(initialState, dims, (s, i) => [s, (i + dims.W - 1) % dims.R]),
    })),
    "final state one token late": changedState(({ x, ...rest }, dims) => {
      const late = x.map((_, i) => (Math.floor(i / dims.C) % dims.T === 0 ? 0 : (x[i - dims.C] as number)));
      return causalConv1dReference(dims, { ...rest, x: late }, "none").finalState;
    }),
    "a final state of W − 1 rows": changedState(
      (_, dims, right) => moved(right, dims, (s, i) => (i < dims.R - dims.W + 1 ? undefined : [s, i])) as Float64Array,
    ),
    "an empty sequence has no state": changedState(
      ({ cuSeqlens }, dims, right) =>
        moved(right, dims, (s, i) =>
          cuSeqlens && cuSeqlens[s] === cuSeqlens[s + 1] ? undefined : [s, i],
        ) as Float64Array,
    ),
    "bias ignored": changed(() => ({ bias: undefined })),
    "activation ignored": reference((dims, inputs) => causalConv1dReference(dims, inputs, "none")),
    "weight [W, C]": changed(({ weight }, { W, C }) => ({
      weight: weight.map((_, i) => weight[(i % W) * C + Math.floor(i / W)] as number),
    })),
    "rows run into each other": changed(({ x, initialState, cuSeqlens }, { N, T, C, W, R }) => {
      if (!initialState || cuSeqlens) return {};
      const leaked = initialState.slice();
      for (let n = 1; n < N; n++)
        for (let i = Math.max(0, W - 1 - T); i < W - 1; i++)
          for (let c = 0; c < C; c++)
            leaked[(n * R + R - W + 1 + i) * C + c] = x[((n - 1) * T + T - (W - 1) + i) * C + c] as number;
      return { initialState: leaked };
    }),
    "packed sequences run into each other": reference((dims, inputs, activation) => {
      const { cuSeqlens, initialState } = inputs;
      const one = causalConv1dReference(dims, { ...inputs, cuSeqlens: undefined }, activation);
      return { y: one.y, finalState: cuSeqlens && initialState ? initialState : one.finalState };
    }),
    "the state of the sequence before": changed(({ initialState }, dims) => ({
      initialState: moved(initialState, dims, (s, i) => [Math.max(0, s - 1), i]),
    })),
    "mask ignored": changed(() => ({ mask: undefined })),
    "mask turned round": changed(({ mask }) => ({ mask: mask?.map((kept) => (kept ? 0 : 1)) })),
    "masked tokens in the final state": changedState(
      ({ mask, ...rest }, dims) => causalConv1dReference(dims, rest, "none").finalState,
    ),
    "y of masked tokens is 0": reference((dims, inputs, activation) => {
      const { y, finalState } = causalConv1dReference(dims, inputs, activation);
      return { y: y.map((value, i) => (inputs.mask?.[Math.floor(i / dims.C)] === 0 ? 0 : value)), finalState };
    }),
  },
};
