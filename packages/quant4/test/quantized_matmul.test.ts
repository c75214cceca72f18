import { Device, type Dtype, roundTo } from "@mlxts/core";
import {
  BARS,
  type Case,
  compare,
  Random,
  type Reference64,
  type ReferenceFunction,
  type Suite,
  within,
} from "@mlxts/core/testing";
import { afterAll, describe, expect, it } from "vitest";
import { testSuite } from "../../../scripts/test-suite.ts";
import { quantizedMatmul } from "../src/index.ts";
import { decodeExactly, packCodes, productReference, unpackCodes } from "../src/reference.ts";
import { randomQuantised, setting } from "./groups.ts";

interface Options {
  bits: number;
  groupSize: number;
  transpose?: boolean;
  outDtype?: "f32" | "f16" | "bf16";
}

/** One matrix of a case: x and W with its parts, for references and mutants. */
interface Matrices {
  x: Float64Array;
  words: Float64Array;
  scales: Float64Array;
  biases: Float64Array;
  rows: number;
  cols: number;
  options: Options;
  dtype: "f32" | "f16" | "bf16";
}
type Product = (m: Matrices) => Float64Array;

const decode = ({ words, scales, biases, options }: Matrices) => decodeExactly(words, scales, biases, options);
const product = (m: Matrices, w: Float64Array, x = m.x) =>
  productReference(x, w, m.rows, m.cols, m.options.transpose ?? true);
const right: Product = (m) => product(m, decode(m));

const count = (shape: readonly number[]) => shape.reduce((a, b) => a * b, 1);

/** Where each output matrix of a broadcast finds its operand. */
function operandOf(index: number, lead: readonly number[], own: readonly number[]): number {
  let [at, step, rest] = [0, 1, index];
  for (let i = 1; i <= lead.length; i++) {
    const size = lead[lead.length - i] as number;
    const mine = own[own.length - i] ?? 1;
    if (mine > 1) at += step * (rest % size);
    step *= mine;
    rest = Math.floor(rest / size);
  }
  return at;
}

const reference =
  (multiply: Product = right): ReferenceFunction =>
  (inputs, given, dtype) => {
    const options = given as unknown as Options;
    const { x, weight, scales, biases, bias } = inputs as Record<string, Reference64> as Record<
      "x" | "weight" | "scales" | "biases",
      Reference64
    > & { bias?: Reference64 };
    const stack = weight.shape.slice(0, -2);
    const rows = weight.shape[weight.shape.length - 2] as number;
    const cols = ((weight.shape[weight.shape.length - 1] as number) * 32) / options.bits;
    const lead = x.shape.slice(0, -2);
    const rank = Math.max(lead.length, stack.length);
    const batch = Array.from({ length: rank }, (_, i) =>
      Math.max(lead[i - rank + lead.length] ?? 1, stack[i - rank + stack.length] ?? 1),
    );
    const m = x.shape.length === 1 ? 1 : (x.shape[x.shape.length - 2] as number);
    const inner = x.shape[x.shape.length - 1] as number;
    const outer = options.transpose === false ? cols : rows;
    const data = new Float64Array(count(batch) * m * outer);
    const part = (t: Reference64, size: number, at: number) => t.data.subarray(at * size, (at + 1) * size);
    for (let z = 0; z < count(batch); z++) {
      const [xAt, qAt] = [operandOf(z, batch, lead), operandOf(z, batch, stack)];
      const groups = (rows * cols) / options.groupSize;
      const y = multiply({
        x: part(x, m * inner, xAt),
        words: part(weight, (rows * cols * options.bits) / 32, qAt),
        scales: part(scales, groups, qAt),
        biases: part(biases, groups, qAt),
        rows,
        cols,
        options,
        dtype,
      });
      data.set(bias ? y.map((v, i) => v + (bias.data[i % outer] as number)) : y, z * m * outer);
    }
    const shape = x.shape.length === 1 && stack.length === 0 ? [outer] : [...batch, m, outer];
    return { out: { shape, data } };
  };

let seed = 0;
interface Extra {
  transpose?: boolean;
  outDtype?: "f32" | "f16" | "bf16";
  mean?: number;
  lead?: readonly number[];
  stack?: readonly number[];
  bias?: Dtype;
  scales?: "f32" | "f16" | "bf16";
  dtypes?: readonly ("f32" | "f16" | "bf16")[];
  vector?: boolean;
  tiny?: number;
}

function makeCase(m: number, rows: number, cols: number, bits: number, groupSize: number, extra: Extra = {}): Case {
  const { transpose = true, lead = [], stack = [], mean = 0 } = extra;
  const random = new Random(++seed * 7919);
  const inner = transpose ? cols : rows;
  const outer = transpose ? rows : cols;
  const unit = (extra.tiny ?? 1) / Math.sqrt(inner * (1 + mean * mean));
  const made = randomQuantised(count(stack), rows, cols, { bits, groupSize }, seed);
  const scales = extra.scales ?? "act";
  const rank = Math.max(lead.length, stack.length);
  const batch = Array.from({ length: rank }, (_, i) =>
    Math.max(lead[i - rank + lead.length] ?? 1, stack[i - rank + stack.length] ?? 1),
  );
  return {
    name: `M ${m} [${rows}, ${cols}] ${setting(bits, groupSize)} ${JSON.stringify(extra)}`,
    inputs: {
      x: {
        dtype: "act",
        shape: extra.vector ? [inner] : [...lead, m, inner],
        data: random.normals(count(lead) * m * inner, unit, mean * unit),
      },
      weight: { dtype: "u32", shape: [...stack, rows, (cols * bits) / 32], data: made.weight },
      scales: { dtype: scales, shape: [...stack, rows, cols / groupSize], data: made.scales },
      biases: { dtype: scales, shape: [...stack, rows, cols / groupSize], data: made.biases },
      ...(extra.bias && { bias: { dtype: extra.bias, shape: [outer], data: random.normals(outer) } }),
    },
    options: {
      bits,
      groupSize,
      mode: "affine",
      ...(extra.transpose === false && { transpose: false }),
      ...(extra.outDtype && { outDtype: extra.outDtype }),
    },
    ask: { out: { dtype: extra.outDtype ?? "act", shape: extra.vector ? [outer] : [...batch, m, outer] } },
    ...(extra.dtypes && { dtypes: extra.dtypes }),
  };
}

const withWeights = (change: (w: Float64Array, m: Matrices) => Float64Array) =>
  reference((m) => product(m, change(decode(m), m)));
const withCodes = (change: (codes: Float64Array, bits: number) => Float64Array) =>
  reference((m) => {
    const { bits } = m.options;
    return right({ ...m, words: packCodes(change(unpackCodes(m.words, bits), bits), bits) });
  });
/** Sums rounded to 16 bits at every step. */
const coarse = (dtype: "f32" | "f16" | "bf16") => (v: number) => roundTo(dtype === "f32" ? "bf16" : dtype, v);

const WIDTHS = [4, 8] as const;
const GROUPS = [32, 64, 128] as const;

const suite: Suite = {
  op: quantizedMatmul,
  errorClass: "R",
  reference: reference(),
  cases: [
    // Few outputs make a chance of rms(err): at least 256 of them.
    ...WIDTHS.flatMap((bits) => GROUPS.flatMap((g) => [1, 2, 3, 7, 8, 9].map((m) => makeCase(m, 257, 384, bits, g)))),
    ...WIDTHS.flatMap((bits) => [31, 33, 64].map((m) => makeCase(m, 67, 1408, bits, 64))),
    makeCase(257, 1, 64, 4, 64),
    makeCase(257, 3, 128, 8, 128),
    makeCase(100, 8, 96, 4, 32),
    makeCase(4, 65, 96, 8, 32),
    makeCase(1, 300, 32, 4, 32),
    makeCase(1, 300, 32, 8, 32),
    makeCase(5, 64, 160, 4, 32),
    makeCase(6, 64, 192, 4, 64),
    makeCase(1, 300, 512, 4, 64, { vector: true }),
    makeCase(1, 333, 2048, 4, 32),
    makeCase(257, 40, 512, 4, 32, { dtypes: ["bf16", "f32"] }),
    makeCase(12, 96, 2304, 4, 128),
    makeCase(13, 130, 4096, 4, 64, { dtypes: ["f32"] }),
    ...[1, 3, 40].map((m) => makeCase(m, 256, 512, 4, 64, { mean: 4 })),
    ...[1, 3, 40].map((m) => makeCase(m, 256, 512, 8, 64, { mean: 4 })),
    ...(["f32", "f16", "bf16"] as const).flatMap((out) =>
      [2, 20].map((m) => makeCase(m, 130, 256, 4, 64, { outDtype: out })),
    ),
    ...(["f32", "f16", "bf16"] as const).flatMap((scales) =>
      [2, 20].map((m) => makeCase(m, 130, 128, 4, 32, { scales, dtypes: ["f32", "bf16"] })),
    ),
    ...(["f32", "f16", "bf16"] as const).flatMap((bias) => [2, 20].map((m) => makeCase(m, 130, 128, 4, 64, { bias }))),
    // x near and below the smallest normal number.
    ...[1, 20].flatMap((m) =>
      [2 ** -100, 2 ** -122, 2 ** -126].map((tiny) =>
        makeCase(m, 256, 64, 4, 32, { tiny, outDtype: "f32", scales: "f32", dtypes: ["bf16", "f32"] }),
      ),
    ),
    // Batches: one matrix for all, one x for all, both, alternating.
    ...[2, 12].flatMap((m) => [
      makeCase(m, 40, 64, 4, 64, { lead: [3, 2] }),
      makeCase(m, 40, 64, 4, 32, { stack: [3, 2] }),
      makeCase(m, 40, 64, 8, 64, { lead: [3, 2], stack: [3, 2] }),
      makeCase(m, 40, 64, 4, 64, { lead: [2, 3], stack: [3] }),
      makeCase(m, 40, 64, 4, 64, { lead: [2, 1, 3], stack: [2, 1] }),
      makeCase(m, 20, 64, 4, 64, { lead: [2, 1, 2, 1, 3], stack: [1, 2, 1, 2, 1] }),
    ]),
    // x · W
    ...WIDTHS.flatMap((bits) =>
      GROUPS.flatMap((g) => [1, 3, 8, 33].map((m) => makeCase(m, 67, 384, bits, g, { transpose: false }))),
    ),
    makeCase(1, 4096, 512, 4, 64, { transpose: false, dtypes: ["f32"] }),
    makeCase(8, 1, 96, 4, 32, { transpose: false }),
    makeCase(5, 64, 64, 4, 64, { transpose: false }),
    makeCase(17, 257, 32, 8, 32, { transpose: false, mean: 4 }),
    makeCase(2, 33, 160, 4, 32, { transpose: false, bias: "f32" }),
    makeCase(2, 31, 96, 4, 32, { transpose: false, lead: [2, 3], stack: [3], outDtype: "f32" }),
    makeCase(1, 300, 1408, 4, 64, { transpose: false, vector: true }),
  ],
  mutants: {
    "high nibble first": withCodes((codes, bits) => (bits === 4 ? codes.map((_, i) => codes[i ^ 1] as number) : codes)),
    "signed codes": withWeights((w, { words, scales, options: { bits, groupSize } }) => {
      const codes = unpackCodes(words, bits);
      return w.map((v, i) =>
        (codes[i] as number) >= 2 ** (bits - 1) ? v - 2 ** bits * (scales[Math.floor(i / groupSize)] as number) : v,
      );
    }),
    "groups along rows": reference((m) => {
      const codes = unpackCodes(m.words, m.options.bits);
      const perRow = m.cols / m.options.groupSize;
      return product(
        m,
        codes.map((q, i) => {
          const g = (Math.floor(i / m.cols) * perRow + (i % perRow)) % m.scales.length;
          return q * (m.scales[g] as number) + (m.biases[g] as number);
        }),
      );
    }),
    "scale rows strided by cols": reference((m) => {
      const at = (i: number) => (Math.floor(i / (m.cols / m.options.groupSize)) * m.cols + i) % m.scales.length;
      return right({ ...m, scales: m.scales.map((_, i) => m.scales[at(i)] as number) });
    }),
    "positive scales": reference((m) => right({ ...m, scales: m.scales.map(Math.abs) })),
    "bias once for each row": reference((m) => {
      const y = right({ ...m, biases: m.biases.map(() => 0) });
      const outer = m.options.transpose === false ? m.cols : m.rows;
      const perRow = m.cols / m.options.groupSize;
      return y.map((v, i) => v + (m.biases[((i % outer) * perRow) % m.biases.length] as number));
    }),
    "8 bits read as 4": reference((m) => {
      if (m.options.bits !== 8) return right(m);
      const nibbles = unpackCodes(m.words, 4).subarray(0, m.rows * m.cols);
      return right({ ...m, words: packCodes(nibbles, 8) });
    }),
    "rows % 8 skipped": reference((m) => {
      const outer = m.options.transpose === false ? m.cols : m.rows;
      return right(m).map((v, i) => (i % outer < outer - (outer % 8) ? v : 0));
    }),
    "last group skipped": withWeights((w, { cols, options }) =>
      w.map((v, i) => (i % cols < cols - options.groupSize ? v : 0)),
    ),
    "rows of W beyond a multiple of 32 skipped": withWeights((w, { rows, cols }) =>
      w.map((v, i) => (Math.floor(i / cols) < rows - (rows % 32) ? v : 0)),
    ),
    "M % 4 skipped": reference((m) => {
      const y = right(m);
      const outer = m.options.transpose === false ? m.cols : m.rows;
      const rows = y.length / outer;
      return y.fill(0, (rows - (rows % 4)) * outer);
    }),
    "transpose ignored": reference((m) =>
      m.rows === m.cols ? productReference(m.x, decode(m), m.rows, m.cols, m.options.transpose === false) : right(m),
    ),
    "sums of x in bf16": reference((m) => {
      if (m.options.transpose === false) return right(m);
      const round = coarse("bf16");
      const { groupSize, bits } = m.options;
      const codes = unpackCodes(m.words, bits);
      const y = product(
        m,
        codes.map((q, i) => q * (m.scales[Math.floor(i / groupSize)] as number)),
      );
      return y.map((v, i) => {
        const [r, row] = [Math.floor(i / m.rows), i % m.rows];
        let sum = v;
        for (let g = 0; g < m.cols / groupSize; g++) {
          let part = 0;
          for (let k = 0; k < groupSize; k++) part = round(part + (m.x[r * m.cols + g * groupSize + k] as number));
          sum += part * (m.biases[(row * m.cols) / groupSize + g] as number);
        }
        return sum;
      });
    }),
    "sums in 16 bits": reference((m) => {
      const round = coarse(m.dtype);
      const w = decode(m);
      const y = right(m);
      if (m.options.transpose === false) return y;
      return y.map((_, i) => {
        const [r, row] = [Math.floor(i / m.rows), i % m.rows];
        let sum = 0;
        for (let k = 0; k < m.cols; k++)
          sum = round(sum + (m.x[r * m.cols + k] as number) * (w[row * m.cols + k] as number));
        return sum;
      });
    }),
    "linear bias ignored": (inputs, options, dtype) => {
      const { bias: _, ...rest } = inputs;
      return reference()(rest, options, dtype);
    },
    "the first matrix for all": (inputs, options, dtype) => {
      const right = reference()(inputs, options, dtype);
      const { out } = right as { out: Reference64 };
      const size = (out.shape[out.shape.length - 1] as number) * (out.shape[out.shape.length - 2] ?? 1);
      return { out: { ...out, data: out.data.map((_, i) => out.data[i % size] as number) } };
    },
    "output left unwritten": reference((m) => right(m).fill(Number.NaN)),
  },
};

testSuite(suite);

const device = Device.open("cpu");
afterAll(() => device.dispose());

it("multiplies a large matrix", async () => {
  const [rows, cols, m] = [4096, 7168, 2];
  const { weight, scales, biases } = randomQuantised(1, 64, cols, { bits: 4, groupSize: 64 }, 8);
  // 64 rows again and again: few to compute, all to compare.
  const repeat = (data: Float64Array) =>
    Float64Array.from({ length: data.length * 64 }, (_, i) => data[i % data.length] as number);
  const q = {
    weight: device.tensor("u32", [rows, cols / 8], repeat(weight)),
    scales: device.tensor("bf16", [rows, cols / 64], repeat(scales)),
    biases: device.tensor("bf16", [rows, cols / 64], repeat(biases)),
    bits: 4,
    groupSize: 64,
    mode: "affine",
  } as const;
  const decoded = decodeExactly(
    weight,
    (await q.scales.readNumbers()).subarray(0, scales.length),
    (await q.biases.readNumbers()).subarray(0, scales.length),
    q,
  );
  for (const dtype of ["f32", "bf16"] as const)
    for (const count of [1, m, 12]) {
      const x = device.tensor(dtype, [count, cols], new Random(6).normals(count * cols, 1 / Math.sqrt(cols)));
      const encoder = device.encoder();
      const out = quantizedMatmul(encoder, { x, q }, { outDtype: "f32" });
      await encoder.commit();
      const expected = productReference(await x.readNumbers(), decoded, 64, cols, true);
      const all = Float64Array.from(
        { length: count * rows },
        (_, i) => expected[Math.floor(i / rows) * 64 + (i % 64)] as number,
      );
      const { R } = BARS;
      expect(within(compare(await out.readNumbers(), all), R.f32, R.spread), `${dtype} M ${count}`).toBe(true);
    }
});

describe("memory", () => {
  it("is read at odd group offsets, and only where it belongs to the op", async () => {
    const [rows, cols] = [5, 96];
    const { weight, scales, biases } = randomQuantised(1, rows, cols, { bits: 4, groupSize: 32 }, 4);
    const nan = (n: number) => new Array<number>(n).fill(Number.NaN);
    const surrounded = (data: Float64Array) =>
      device.tensor("bf16", [data.length + 5], [...nan(3), ...data, ...nan(2)]).view(3, [rows, cols / 32]);
    const q = {
      weight: device.tensor("u32", [weight.length + 1], [7, ...weight]).view(1, [rows, cols / 8]),
      scales: surrounded(scales),
      biases: surrounded(biases),
      bits: 4,
      groupSize: 32,
      mode: "affine",
    } as const;
    const w = decodeExactly(weight, await q.scales.readNumbers(), await q.biases.readNumbers(), q);
    for (const m of [1, 12]) {
      const x = device.tensor("f32", [m * cols + 2], [...nan(1), ...new Random(m).normals(m * cols), ...nan(1)]);
      const encoder = device.encoder();
      const out = quantizedMatmul(encoder, { x: x.view(1, [m, cols]), q });
      await encoder.commit();
      const expected = productReference((await x.readNumbers()).subarray(1, m * cols + 1), w, rows, cols, true);
      const got = await out.readNumbers();
      for (const [i, value] of expected.entries()) expect(got[i]).toBeCloseTo(value, 3);
    }
  });

  it("a NaN scale stays in its row", async () => {
    const [rows, cols] = [70, 192];
    const { weight, scales, biases } = randomQuantised(1, rows, cols, { bits: 4, groupSize: 64 }, 5);
    scales[10 * 3 + 2] = Number.NaN;
    const q = {
      weight: device.tensor("u32", [rows, cols / 8], weight),
      scales: device.tensor("bf16", [rows, 3], scales),
      biases: device.tensor("bf16", [rows, 3], biases),
      bits: 4,
      groupSize: 64,
      mode: "affine",
    } as const;
    for (const dtype of ["f32", "bf16"] as const)
      for (const m of [1, 3, 8, 20]) {
        const encoder = device.encoder();
        const out = quantizedMatmul(encoder, {
          x: device.tensor(dtype, [m, cols], new Random(1).normals(m * cols)),
          q,
        });
        await encoder.commit();
        const bad = [...(await out.readNumbers())].flatMap((v, i) => (Number.isNaN(v) ? [i % rows] : []));
        expect(bad).toEqual(new Array(m).fill(10));
      }
  });
});
