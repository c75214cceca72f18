import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { causalConv1d } from "../src/index.ts";
import { causalConv1dReference } from "../src/reference.ts";

const random = new Random(12);

interface Setting {
  bias?: boolean;
  state?: "act" | "f32";
  weight?: "act" | "f32";
  activation?: "none" | "silu";
  inPlace?: boolean;
}

function makeCase(N: number, T: number, C: number, W: number, setting: Setting = {}): Case {
  const { bias, state, weight = "act", activation, inPlace } = setting;
  const stateShape = [N, W - 1, C];
  return {
    name: `[${N}, ${T}, ${C}] W ${W} ${JSON.stringify(setting)}`,
    inputs: {
      x: { dtype: "act", shape: [N, T, C], data: random.uniforms(N * T * C, -1.7, 1.7) },
      weight: { dtype: weight, shape: [C, W], data: random.uniforms(C * W, -0.9, 0.9) },
      ...(bias && { bias: { dtype: weight, shape: [C], data: random.uniforms(C, -1, 1) } }),
      ...(state && { state: { dtype: state, shape: stateShape, data: random.uniforms(N * (W - 1) * C, -1.7, 1.7) } }),
    },
    options: activation ? { activation } : {},
    ...(inPlace
      ? { inPlace: { newState: "state" } }
      : { ask: { newState: { dtype: state ?? "act", shape: stateShape } } }),
  };
}

type Formula = typeof causalConv1dReference;
const reference =
  (formula: Formula): ReferenceFunction =>
  (inputs: Record<string, Reference64>, options: { activation?: "none" | "silu" }) => {
    const { x, weight, bias, state } = inputs as { x: Reference64; weight: Reference64 } & Record<string, Reference64>;
    const [N, T, C] = x.shape as [number, number, number];
    const W = weight.shape[1] as number;
    const activation = options.activation ?? "none";
    const { y, newState } = formula({ N, T, C, W }, x.data, weight.data, bias?.data, state?.data, activation);
    return { y: { shape: x.shape, data: y }, newState: { shape: [N, W - 1, C], data: newState } };
  };

/** A wrong convolution: the right one of other arguments. */
const changed = (change: (...args: Parameters<Formula>) => Parameters<Formula>) =>
  reference((...args) => causalConv1dReference(...change(...args)));
const reversed = (data: Float64Array, W: number) => data.map((_, i) => data[i - (i % W) + W - 1 - (i % W)] as number);

export const suite: Suite = {
  op: causalConv1d,
  errorClass: { y: "S", newState: "exact" },
  reference: reference(causalConv1dReference),
  cases: [
    ...[1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 63, 64, 65, 131].map((T) =>
      makeCase(1, T, 300, 4, { state: "act", activation: "silu" }),
    ),
    ...[1, 3, 15, 16, 17, 130, 255, 256, 257, 520].map((C) => makeCase(Math.max(2, Math.ceil(50 / C)), 9, C, 4)),
    ...[2, 3, 5, 6, 8].flatMap((W) => [
      makeCase(2, 70, 40, W, { bias: true, state: "act" }),
      makeCase(2, W - 1, 300, W, { bias: true, state: "f32", weight: "f32", activation: "silu" }),
      makeCase(3, 1, 300, W, { state: "f32", inPlace: true }),
    ]),
    makeCase(2, 90, 20, 70, { state: "act" }),
    makeCase(2, 5, 200, 70, { state: "act", inPlace: true }),
    // Neighbours' channels are written while these are read.
    ...[5, 6, 7].map((C) => makeCase(40, 2, C, 4, { state: "act", inPlace: true })),
    ...[1, 2, 3, 4, 100].flatMap((T) => [
      makeCase(2, T, 300, 4, { state: "act", inPlace: true }),
      makeCase(2, T, 300, 4, { bias: true, weight: "f32", activation: "silu" }),
    ]),
  ],
  mutants: {
    "taps reversed": changed((dims, x, weight, ...rest) => [dims, x, reversed(weight, dims.W), ...rest]),
    "state of outputs": reference((dims, ...args) => {
      const { y } = causalConv1dReference(dims, ...args);
      const { newState } = causalConv1dReference(
        dims,
        y,
        ...(args.slice(1) as [Float64Array, undefined, undefined, "none"]),
      );
      return { y, newState };
    }),
    "state ignored": changed((dims, x, weight, bias, _, activation) => [dims, x, weight, bias, undefined, activation]),
    "state newest first": changed((dims, x, weight, bias, state, activation) => {
      const { C, W } = dims;
      const rows = W - 1;
      const turned = state?.map((_, i) => {
        const row = Math.floor(i / C) % rows;
        return state[i + (rows - 1 - 2 * row) * C] as number;
      });
      return [dims, x, weight, bias, turned, activation];
    }),
    "new state one token late": reference((dims, x, ...args) => {
      const { C, T, N } = dims;
      const late = x.map((_, i) => (Math.floor(i / C) % T === 0 ? 0 : (x[i - C] as number)));
      const { y } = causalConv1dReference(dims, x, ...args);
      return { y, newState: N > 0 ? causalConv1dReference(dims, late, ...args).newState : y };
    }),
    "bias ignored": changed((dims, x, weight, _, ...rest) => [dims, x, weight, undefined, ...rest]),
    "activation ignored": changed((dims, x, weight, bias, state) => [dims, x, weight, bias, state, "none"]),
    "weight [W, C]": changed((dims, x, weight, ...rest) => [
      dims,
      x,
      weight.map((_, i) => weight[(i % dims.W) * dims.C + Math.floor(i / dims.W)] as number),
      ...rest,
    ]),
    "sequences run into each other": changed((dims, x, weight, bias, state, activation) => {
      const { N, T, C, W } = dims;
      if (!state) return [dims, x, weight, bias, state, activation];
      const leaked = state.slice();
      for (let n = 1; n < N; n++)
        for (let i = Math.max(0, W - 1 - T); i < W - 1; i++)
          for (let c = 0; c < C; c++)
            leaked[(n * (W - 1) + i) * C + c] = x[((n - 1) * T + T - (W - 1) + i) * C + c] as number;
      return [dims, x, weight, bias, leaked, activation];
    }),
  },
};
