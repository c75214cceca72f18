import type { Dtype } from "@mlxts/core";
import { type Case, Random, type Reference64, type ReferenceFunction } from "@mlxts/core/testing";
import { decodeExactly, productReference } from "../src/reference.ts";
import { randomQuantized, setting } from "./groups.ts";

export interface Options {
  bits: number;
  groupSize: number;
  transpose?: boolean;
  outDtype?: "f32" | "f16" | "bf16";
}

/** One matrix of a case: x and W with its parts, for references and mutants. */
export interface Matrices {
  x: Float64Array;
  words: Float64Array;
  scales: Float64Array;
  biases: Float64Array;
  rows: number;
  cols: number;
  options: Options;
  dtype: "f32" | "f16" | "bf16";
}
export type Product = (m: Matrices) => Float64Array;

export const decode = ({ words, scales, biases, options }: Matrices) => decodeExactly(words, scales, biases, options);
export const product = (m: Matrices, w: Float64Array, x = m.x) =>
  productReference(x, w, m.rows, m.cols, m.options.transpose ?? true);
export const right: Product = (m) => product(m, decode(m));

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

export const reference =
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
  /** Every 61st element of x is so many times larger. */
  peaks?: number;
  /** Factor of x. */
  factor?: number;
  /** Columns of x are up to 2^spread times smaller than others. */
  spread?: number;
}

type MakeCase = (m: number, rows: number, cols: number, bits: number, groupSize: number, extra?: Extra) => Case;

/** Makes cases whose seeds do not depend on what other cases the process has made. */
export function caseMaker(): MakeCase {
  let seed = 0;
  return (m, rows, cols, bits, groupSize, extra = {}) => makeCase(++seed, m, rows, cols, bits, groupSize, extra);
}

function makeCase(
  seed: number,
  m: number,
  rows: number,
  cols: number,
  bits: number,
  groupSize: number,
  extra: Extra,
): Case {
  const { transpose = true, lead = [], stack = [], mean = 0 } = extra;
  const random = new Random(seed * 7919);
  const inner = transpose ? cols : rows;
  const outer = transpose ? rows : cols;
  const unit = (extra.factor ?? 1) / Math.sqrt(inner * (1 + mean * mean));
  const made = randomQuantized(count(stack), rows, cols, { bits, groupSize }, seed);
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
        data: random
          .normals(count(lead) * m * inner, unit, mean * unit)
          .map((v, i) => (i % 61 === 60 ? v * (extra.peaks ?? 1) : v))
          .map((v) => (extra.spread ? v * 2 ** -random.below(extra.spread) : v)),
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
