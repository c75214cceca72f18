import { type Case, Random, type Reference64, type ReferenceFunction, type Suite } from "@mlxts/core/testing";
import { gatedRmsNorm } from "../src/index.ts";
import { gatedRmsNormReference, rmsNormReference } from "../src/reference.ts";
import { paddedSquares, sumInF16 } from "./wrong_sums.ts";

const DIMS = [
  1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000,
];
const LONG_DIMS = [1023, 1024, 1025, 2048, 3584, 4096, 4099, 5120, 7168, 8160, 8164, 8192, 16384];

const random = new Random(2);

// Bounded inputs: products of normal ones have tails that rms bars do not speak of.
function makeCase(
  rows: readonly number[],
  dim: number,
  options: Record<string, unknown> = {},
  { rms = 1, weightDtype = "act" }: { rms?: number; weightDtype?: "act" | "f32" } = {},
): Case {
  const count = rows.reduce((a, b) => a * b, 1);
  return {
    name: `[${[...rows, dim]}] rms ${rms} weight ${weightDtype} ${JSON.stringify(options)}`,
    inputs: {
      x: { dtype: "act", shape: [...rows, dim], data: random.uniforms(count * dim, -1.7 * rms, 1.7 * rms) },
      z: { dtype: "act", shape: [...rows, dim], data: random.uniforms(count * dim, -2.5, 2.5) },
      weight: { dtype: weightDtype, shape: [dim], data: random.normals(dim, 0.2, options.weightOffset === 1 ? 0 : 1) },
    },
    options,
    errorClass: options.rounding === "before-weight" ? "S2" : "S",
  };
}

type Options = {
  eps?: number;
  weightOffset?: number;
  activation?: "silu" | "sigmoid";
  order?: "norm-then-gate" | "gate-then-norm";
};
type Arguments = Required<Options> & { x: Float64Array; z: Float64Array; weight: Float64Array };

const reference =
  (formula: (a: Arguments) => Float64Array): ReferenceFunction =>
  ({ x, z, weight }: Record<string, Reference64>, options: Options) => ({
    out: {
      shape: (x as Reference64).shape,
      data: formula({
        eps: 1e-6,
        weightOffset: 0,
        activation: "silu",
        order: "norm-then-gate",
        ...options,
        x: (x as Reference64).data,
        z: (z as Reference64).data,
        weight: (weight as Reference64).data,
      }),
    },
  });

const right = ({ x, z, weight, eps, weightOffset, activation, order }: Arguments) =>
  gatedRmsNormReference(x, z, weight, eps, weightOffset, activation, order);
const changed = (change: (a: Arguments) => Partial<Arguments>) => reference((a) => right({ ...a, ...change(a) }));
const silu = (z: number) => z / (1 + Math.exp(-z));
/** A wrong formula for the default gate; the other settings are right, so that they cannot be what fails it. */
const plain = (formula: (a: Arguments) => Float64Array) =>
  reference((a) => (a.activation === "silu" && a.order === "norm-then-gate" ? formula(a) : right(a)));
/** Each row scaled by something of its own. */
const scaledRows = (
  { x, z, weight, weightOffset }: Arguments,
  inverse: (row: Float64Array, index: number) => number,
) => {
  const dim = weight.length;
  const out = new Float64Array(x.length);
  for (let start = 0; start < x.length; start += dim) {
    const row = x.subarray(start, start + dim);
    const inv = inverse(row, start / dim);
    row.forEach((v, i) => {
      out[start + i] = v * inv * ((weight[i] as number) + weightOffset) * silu(z[start + i] as number);
    });
  }
  return out;
};
const scaled = (inverse: (row: Float64Array, eps: number) => number) =>
  plain((a) => scaledRows(a, (row) => inverse(row, a.eps)));
const meanSquare = (x: Float64Array) => x.reduce((a, v) => a + v * v, 0) / x.length;

const farGates = makeCase([64], 40);
for (const [i, z] of [-100, -1e4, -3e38, -88.7, -104, 100, 3e4, 0].entries())
  (farGates.inputs.z?.data as Float64Array)[i * 40 + i] = z;

/** Gates whose silu and sigmoid are subnormal in f32, beside weights so large that the product is an ordinary number. */
const subnormalGates = (["silu", "sigmoid"] as const).flatMap((activation) =>
  [
    [-104.3, -103.5],
    [-95, -94],
    [-88, -87],
  ].map(([low, high]): Case => {
    const { inputs, ...rest } = makeCase([20], 67, { activation });
    return {
      ...rest,
      name: `${activation} of gates from ${low} to ${high}`,
      // f16 has no such weights.
      dtypes: ["f32", "bf16"],
      inputs: {
        ...inputs,
        z: { dtype: "act", shape: [20, 67], data: random.uniforms(20 * 67, low, high) },
        weight: { dtype: "act", shape: [67], data: random.uniforms(67, -1e38, 1e38) },
      },
    };
  }),
);
const infiniteWeights: Case = {
  ...makeCase([4], 3, {}, { weightDtype: "f32" }),
  name: "infinite weights and NaN gates",
  inputs: {
    x: { dtype: "act", shape: [4, 3], data: new Array<number>(12).fill(1) },
    z: {
      dtype: "act",
      shape: [4, 3],
      data: [-87, -104, -104.3, -100, -88, 1, 0, Infinity, -Infinity, Number.NaN, 2, -90],
    },
    weight: { dtype: "f32", shape: [3], data: [Infinity, -Infinity, Infinity] },
  },
};
const flushed = (value: number) => (Math.abs(value) < 2 ** -126 ? 0 : value);

export const suite: Suite = {
  op: gatedRmsNorm,
  errorClass: "S",
  reference: reference(right),
  cases: [
    ...[...DIMS, ...LONG_DIMS].map((dim) => makeCase([Math.max(2, Math.ceil(256 / dim))], dim)),
    ...[1, 2, 7, 33, 257].map((rows) => makeCase([rows], 260)),
    makeCase([2, 3, 5], 128),
    ...[1e-3, 1e3].flatMap((rms) => [1e-6, 1e-5, 0.1].map((eps) => makeCase([3], 128, { eps }, { rms }))),
    ...[5, 64, 129].flatMap((dim) =>
      (["silu", "sigmoid"] as const).flatMap((activation) =>
        (["norm-then-gate", "gate-then-norm"] as const).flatMap((order) => [
          makeCase([100], dim, { activation, order }),
          makeCase([100], dim, { activation, order, rounding: "before-weight" }),
          makeCase(
            [100],
            dim,
            { activation, order, rounding: "before-weight", weightOffset: 1 },
            { weightDtype: "f32" },
          ),
        ]),
      ),
    ),
    makeCase([40], 100, { weightOffset: 1 }),
    makeCase([40], 100, {}, { weightDtype: "f32" }),
    { ...farGates, name: "gates far out", dtypes: ["f32", "bf16"] },
    ...subnormalGates,
    infiniteWeights,
    { ...makeCase([3], 67), inPlace: { out: "x" } },
    { ...makeCase([64], 68, { order: "gate-then-norm" }), inPlace: { out: "x" } },
  ],
  mutants: {
    "sigmoid for silu": changed(() => ({ activation: "sigmoid" })),
    "silu for sigmoid": changed(() => ({ activation: "silu" })),
    "norm before gate for gate before norm": changed(() => ({ order: "norm-then-gate" })),
    "gate before norm for norm before gate": changed(() => ({ order: "gate-then-norm" })),
    "gate ignored": plain((a) => rmsNormReference(a.x, a.weight, a.eps, a.weightOffset)),
    "gate not activated": plain((a) =>
      rmsNormReference(a.x, a.weight, a.eps, a.weightOffset).map((v, i) => v * (a.z[i] as number)),
    ),
    "gate normalized instead of x": plain((a) =>
      rmsNormReference(a.z, a.weight, a.eps, a.weightOffset).map((v, i) => v * silu(a.x[i] as number)),
    ),
    "NaN for a very negative gate": plain((a) =>
      rmsNormReference(a.x, a.weight, a.eps, a.weightOffset).map((v, i) => {
        const e = Math.fround(Math.exp(a.z[i] as number));
        return v * ((a.z[i] as number) * (e / (1 + e)));
      }),
    ),
    "silu that is subnormal counts as 0": plain((a) =>
      rmsNormReference(a.x, a.weight, a.eps, a.weightOffset).map((v, i) => v * flushed(silu(a.z[i] as number))),
    ),
    "silu rounded to f32 before the product": plain((a) =>
      rmsNormReference(a.x, a.weight, a.eps, a.weightOffset).map((v, i) => v * Math.fround(silu(a.z[i] as number))),
    ),
    "weight ignored": changed((a) => ({ weight: a.weight.map(() => 1), weightOffset: 0 })),
    "1 + w for w": changed((a) => ({ weightOffset: a.weightOffset === 0 ? 1 : a.weightOffset })),
    "w for 1 + w": changed(() => ({ weightOffset: 0 })),
    "mean subtracted": scaled((x, eps) => {
      const mean = x.reduce((a, b) => a + b, 0) / x.length;
      return 1 / Math.sqrt(meanSquare(x) - mean * mean + eps);
    }),
    "l2 instead of rms": scaled((x, eps) => 1 / Math.sqrt(meanSquare(x) * x.length + eps)),
    "divides by D - 1": scaled((x, eps) => 1 / Math.sqrt((meanSquare(x) * x.length) / Math.max(1, x.length - 1) + eps)),
    "divides by a padded D": scaled(
      (x, eps) => 1 / Math.sqrt((meanSquare(x) * x.length) / (Math.ceil(x.length / 32) * 32) + eps),
    ),
    "eps 1e-5 for 1e-6": changed((a) => ({ eps: a.eps === 1e-6 ? 1e-5 : a.eps })),
    "eps ignored": changed(() => ({ eps: 0 })),
    "eps outside the root": scaled((x, eps) => 1 / (Math.sqrt(meanSquare(x)) + eps)),
    "tail of D % 4 skipped": scaled(
      (x, eps) => 1 / Math.sqrt(meanSquare(x.subarray(0, x.length - (x.length % 4))) + eps),
    ),
    "tail not written": reference((a) =>
      right(a).map((v, i) => {
        const dim = a.weight.length;
        return i % dim < dim - (dim % 4) ? v : Number.NaN;
      }),
    ),
    "sum is 0 for D ≤ 16": scaled((x, eps) => 1 / Math.sqrt((x.length <= 16 ? 0 : meanSquare(x)) + eps)),
    "rows of x strided by D + 1": changed((a) => ({
      x: a.x.map((_, i) => a.x[Math.min(a.x.length - 1, i + Math.floor(i / a.weight.length))] as number),
    })),
    "rows of z strided by D + 1": changed((a) => ({
      z: a.z.map((_, i) => a.z[Math.min(a.z.length - 1, i + Math.floor(i / a.weight.length))] as number),
    })),
    "weight indexed by flat index": reference((a) => {
      const flat = a.x.map(
        (_, i) => (a.weight[(i + Math.floor(i / a.weight.length)) % a.weight.length] as number) + a.weightOffset,
      );
      const plain = right({ ...a, weight: a.weight.map(() => 1), weightOffset: 0 });
      return plain.map((v, i) => v * (flat[i] as number));
    }),
    "last row not written": reference((a) =>
      right(a).map((v, i) => (i < a.x.length - a.weight.length ? v : Number.NaN)),
    ),
    "lanes beyond D not zeroed": plain((a) =>
      scaledRows(a, (row, index) => 1 / Math.sqrt(paddedSquares(a.x, index, row.length) / row.length + a.eps)),
    ),
    "sum of squares in f16 at D ≥ 2048": (inputs, options, dtype) =>
      ((inputs.weight?.shape[0] as number) >= 2048 && dtype === "f16"
        ? scaled((x, eps) => 1 / Math.sqrt(sumInF16(x) / x.length + eps))
        : reference(right))(inputs, options, dtype),
  },
};
