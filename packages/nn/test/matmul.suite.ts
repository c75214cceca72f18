import { roundTo } from "@mlxts/core";
import {
  type Case,
  type CaseInput,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
} from "@mlxts/core/testing";
import { matmul } from "../src/index.ts";
import { matmulReference } from "../src/reference_matmul.ts";

const random = new Random(7);

interface Shape {
  lead?: readonly number[];
  rows: number;
  cols: number;
  weight?: CaseInput["dtype"];
  bias?: CaseInput["dtype"];
  transpose?: boolean;
  outDtype?: "f32" | "f16" | "bf16";
  mean?: number;
  dtypes?: Case["dtypes"];
}

/** Outputs of rms near 1; x of mean `mean`. */
function makeCase(shape: Shape): Case {
  const { lead = [1], rows, cols, weight = "act", bias, transpose = true, outDtype, mean = 0 } = shape;
  const m = lead.reduce((a, b) => a * b, 1);
  const [from, to] = transpose ? [cols, rows] : [rows, cols];
  const options = { ...(transpose ? {} : { transpose }), ...(outDtype ? { outDtype } : {}) };
  return {
    name: `[${lead}] ${from} to ${to} weight ${weight} bias ${bias} mean ${mean} ${JSON.stringify(options)}`,
    inputs: {
      x: { dtype: "act", shape: [...lead, from], data: random.normals(m * from, 1, mean) },
      weight: { dtype: weight, shape: [rows, cols], data: random.normals(rows * cols, 1 / Math.sqrt(from)) },
      ...(bias ? { bias: { dtype: bias, shape: [to], data: random.normals(to) } } : {}),
    },
    options,
    ask: { out: { dtype: outDtype ?? "act", shape: [...lead, to] } },
    ...(shape.dtypes ? { dtypes: shape.dtypes } : {}),
  };
}

type Options = { transpose?: boolean; outDtype?: string };
type Sizes = Parameters<typeof matmulReference>[3];
const reference =
  (
    formula: (
      x: Float64Array,
      weight: Float64Array,
      bias: Float64Array | undefined,
      sizes: Sizes,
      options: Options,
      act: string,
    ) => Float64Array,
  ): ReferenceFunction =>
  (inputs, options: Options, act) => {
    const { x, weight, bias } = inputs as { x: Reference64; weight: Reference64; bias?: Reference64 };
    const transpose = options.transpose ?? true;
    const k = x.shape.at(-1) as number;
    const n = weight.shape[transpose ? 0 : 1] as number;
    const sizes = { m: x.data.length / k, n, k, transpose };
    return {
      out: {
        shape: [...x.shape.slice(0, -1), n],
        data: formula(x.data, weight.data, bias?.data, sizes, options, act),
      },
    };
  };

const mutant = (change: (out: Float64Array, sizes: Sizes) => void) =>
  reference((x, weight, bias, sizes) => {
    const out = matmulReference(x, weight, bias, sizes);
    change(out, sizes);
    return out;
  });
const truncated = (end: (k: number) => number) =>
  reference((x, weight, bias, sizes) =>
    matmulReference(
      x.map((value, i) => (i % sizes.k < end(sizes.k) ? value : 0)),
      weight,
      bias,
      sizes,
    ),
  );
/** Sums in a short float: each addition of a product is rounded. */
const rounding = (bits: (value: number) => number) =>
  reference((x, weight, bias, { m, n, k, transpose }) => {
    const out = new Float64Array(m * n);
    for (let i = 0; i < m; i++)
      for (let j = 0; j < n; j++) {
        let sum = 0;
        for (let l = 0; l < k; l++)
          sum = bits(sum + (x[i * k + l] as number) * (weight[transpose ? j * k + l : l * n + j] as number));
        out[i * n + j] = sum + (bias?.[j] ?? 0);
      }
    return out;
  });

const EDGES = [1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 63, 64, 65];
export const suite: Suite = {
  op: matmul,
  errorClass: "R",
  reference: reference(matmulReference),
  cases: [
    ...EDGES.map((cols) => makeCase({ lead: [2], rows: 130, cols })),
    ...EDGES.map((cols) => makeCase({ lead: [9], rows: 67, cols })),
    ...EDGES.map((rows) => makeCase({ lead: [Math.max(1, Math.ceil(256 / rows))], rows, cols: 40 })),
    // Rows of x: every size of the few-row kernel, every tail of the tiles, more than one block of rows.
    ...[1, 2, 3, 4, 5, 6, 7, 8].map((m) => makeCase({ lead: [m], rows: 261, cols: 300 })),
    ...[9, 10, 11, 12, 13, 14, 31, 33, 64, 65].map((m) => makeCase({ lead: [m], rows: 70, cols: 96 })),
    makeCase({ lead: [257], rows: 33, cols: 20 }),
    makeCase({ lead: [1100], rows: 3, cols: 10 }),
    makeCase({ lead: [2, 3, 5], rows: 20, cols: 24 }),
    // The pieces of the contracted dimension.
    ...[255, 256, 257, 511, 513, 1025].map((cols) => makeCase({ lead: [9], rows: 40, cols })),
    // What a model has.
    makeCase({ lead: [1], rows: 4, cols: 256, dtypes: ["f32"] }),
    makeCase({ lead: [64], rows: 4, cols: 256 }),
    ...[4, 20].map((m) => makeCase({ lead: [m], rows: 64, cols: 64 })),
    makeCase({ lead: [1, 1], rows: 512, cols: 1024 }),
    makeCase({ lead: [5], rows: 256, cols: 768 }),
    makeCase({ lead: [1], rows: 300, cols: 4096 }),
    // Rows and columns around the split of the few-row kernel on GPUs.
    ...[1023, 1024].map((rows) => makeCase({ lead: [1], rows, cols: 520 })),
    ...[511, 512, 515].map((cols) => makeCase({ lead: [2], rows: 130, cols })),
    makeCase({ lead: [10], rows: 64, cols: 4096 }),
    // Subnormal f16.
    ...[2, 20].map((m) => {
      const small = makeCase({ lead: [m], rows: 140, cols: 90, outDtype: "f32", dtypes: ["f16"] });
      small.inputs.x = { ...(small.inputs.x as CaseInput), data: random.normals(m * 90, 1e-6) };
      return { ...small, name: `${small.name} subnormal x` };
    }),
    // Numbers that tiles of bf16 cannot hold, and such that they just can.
    ...[1e-36, 1e-25].flatMap((size) =>
      (["x", "weight"] as const).map((name) => {
        const small = makeCase({ lead: [20], rows: 70, cols: 90, weight: "f32", outDtype: "f32", dtypes: ["f32"] });
        const input = small.inputs[name] as CaseInput;
        small.inputs[name] = { ...input, data: (input.data as Float64Array).map((v) => v * size) };
        return { ...small, name: `${small.name} ${name} times ${size}` };
      }),
    ),
    // Rows, columns and contracted pieces of tiles.
    ...[511, 512, 513, 528].map((m) => makeCase({ lead: [m], rows: 40, cols: 33 })),
    ...[31, 33, 48, 255, 257, 300].map((rows) => makeCase({ lead: [17], rows, cols: 64 })),
    ...[127, 128, 129, 159, 161, 289].flatMap((cols) => [
      makeCase({ lead: [9], rows: 40, cols, weight: "f32" }),
      makeCase({ lead: [33], rows: 20, cols, weight: "bf16" }),
    ]),
    makeCase({ lead: [200], rows: 300, cols: 5000, dtypes: ["bf16"] }),
    makeCase({ lead: [100], rows: 300, cols: 2000, weight: "bf16", dtypes: ["f32"] }),
    // More elements of x than the few-row kernel takes on a CPU.
    makeCase({ lead: [8], rows: 33, cols: 40000, dtypes: ["bf16"] }),
    // Weights of every dtype, biases, output dtypes, in both kernels and both directions.
    ...[3, 20].flatMap((m) =>
      (["f32", "f16", "bf16"] as const).flatMap((weight) => [
        ...(["f32", "f16", "bf16"] as const).map((outDtype) =>
          makeCase({ lead: [m], rows: 101, cols: 83, weight, outDtype }),
        ),
        makeCase({ lead: [m], rows: 83, cols: 101, weight, transpose: false }),
        makeCase({ lead: [m], rows: 70, cols: 101, weight, bias: "f32" }),
      ]),
    ),
    ...[2, 20].flatMap((m) => [
      makeCase({ lead: [m], rows: 129, cols: 77, bias: "act" }),
      makeCase({ lead: [m], rows: 77, cols: 129, bias: "act", transpose: false, outDtype: "f32" }),
    ]),
    ...[1, 2, 63, 64, 65, 300].map((cols) => makeCase({ lead: [300], rows: 19, cols, transpose: false })),
    ...[1, 255, 256, 257].map((rows) => makeCase({ lead: [7], rows, cols: 64, transpose: false })),
    ...[2, 20].flatMap((m) => [
      makeCase({ lead: [m], rows: 140, cols: 2048, mean: 4 }),
      makeCase({ lead: [m], rows: 140, cols: 512, mean: 4, outDtype: "f32" }),
    ]),
    // Tiles of 128 and of 256 rows of x for warpgroups of NVIDIA's GPUs: for fewer rows of the weight smaller ones are faster.
    ...[128, 256].map((m) => ({
      ...makeCase({ lead: [m], rows: 67 * 128 - 7, cols: 64, dtypes: ["bf16"] }),
      aligned: true,
      only: "cuda" as const,
    })),
  ],
  mutants: {
    "the other transpose, where shapes allow": reference((x, weight, bias, sizes) =>
      sizes.n === sizes.k
        ? matmulReference(x, weight, bias, { ...sizes, transpose: !sizes.transpose })
        : matmulReference(x, weight, bias, sizes),
    ),
    "bias ignored": reference((x, weight, _, sizes) => matmulReference(x, weight, undefined, sizes)),
    "bias of the first column for all": reference((x, weight, bias, sizes) =>
      matmulReference(x, weight, bias?.fill(bias[0] as number), sizes),
    ),
    "bias per row": reference((x, weight, bias, sizes) =>
      matmulReference(x, weight, undefined, sizes).map((v, i) => v + (bias?.[Math.floor(i / sizes.n) % sizes.n] ?? 0)),
    ),
    "bias twice": reference((x, weight, bias, sizes) =>
      matmulReference(
        x,
        weight,
        bias?.map((v) => 2 * v),
        sizes,
      ),
    ),
    "last contracted element skipped": truncated((k) => (k > 1 ? k - 1 : k)),
    "tail of 4 skipped": truncated((k) => k - (k % 4)),
    "tail of 32 skipped": truncated((k) => (k > 32 ? k - (k % 32) : k)),
    "tail of the piece of 256 skipped": truncated((k) => (k > 256 ? k - (k % 256) : k)),
    "last piece overwrites the sums": reference((x, weight, bias, sizes) =>
      matmulReference(
        x.map((value, i) => (i % sizes.k >= Math.floor((sizes.k - 1) / 256) * 256 ? value : 0)),
        weight,
        bias,
        sizes,
      ),
    ),
    "last column unwritten": mutant((out, { n }) => {
      for (let i = n - 1; i < out.length; i += n) out[i] = Number.NaN;
    }),
    "columns beyond a multiple of 64 unwritten": mutant((out, { n }) => {
      for (let i = 0; i < out.length; i++) if (i % n >= 64 && i % n >= n - (n % 64)) out[i] = Number.NaN;
    }),
    "last row of x skipped": mutant((out, { m, n }) => {
      if (m > 1) out.fill(0, (m - 1) * n);
    }),
    "rows beyond a multiple of 6 skipped": mutant((out, { m, n }) => {
      if (m > 6) out.fill(0, (m - (m % 6)) * n);
    }),
    "row 0 of x for all": mutant((out, { n }) => {
      for (let i = n; i < out.length; i++) out[i] = out[i % n] as number;
    }),
    "row stride of the weight off by one": reference((x, weight, bias, sizes) =>
      matmulReference(
        x,
        weight.map(
          (_, i) =>
            weight[Math.min(weight.length - 1, i + Math.floor(i / (sizes.transpose ? sizes.k : sizes.n)))] as number,
        ),
        bias,
        sizes,
      ),
    ),
    "sums in bf16": rounding((v) => roundTo("bf16", v)),
    "sums in f16": rounding((v) => roundTo("f16", v)),
    "weight rounded to bf16": reference((x, weight, bias, sizes) =>
      matmulReference(
        x,
        weight.map((v) => roundTo("bf16", v)),
        bias,
        sizes,
      ),
    ),
    "f32 output through the dtype of x": reference((x, weight, bias, sizes, options, act) => {
      const out = matmulReference(x, weight, bias, sizes);
      return options.outDtype === "f32" && act !== "f32" ? out.map((v) => roundTo(act as "bf16", v)) : out;
    }),
    "output left unwritten": mutant((out) => out.fill(Number.NaN)),
  },
};
