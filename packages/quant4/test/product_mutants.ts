import { roundTo } from "@mlxts/core";
import type { Reference64, ReferenceFunction } from "@mlxts/core/testing";
import { packCodes, productReference, unpackCodes } from "../src/reference.ts";
import { decode, type Matrices, type Product, product, reference, right } from "./product_cases.ts";

const withWeights =
  (change: (w: Float64Array, m: Matrices) => Float64Array): Product =>
  (m) =>
    product(m, change(decode(m), m));
const withCodes =
  (change: (codes: Float64Array, bits: number) => Float64Array): Product =>
  (m) => {
    const { bits } = m.options;
    return right({ ...m, words: packCodes(change(unpackCodes(m.words, bits), bits), bits) });
  };
/** Sums rounded to 16 bits at every step. */
const coarse = (dtype: "f32" | "f16" | "bf16") => (v: number) => roundTo(dtype === "f32" ? "bf16" : dtype, v);

/** Wrong products x · Wᵀ with one matrix, each of which the suites of all products must reject. */
export const wrongProducts: Record<string, Product> = {
  "high nibble first": withCodes((codes, bits) => (bits === 4 ? codes.map((_, i) => codes[i ^ 1] as number) : codes)),
  "signed codes": withWeights((w, { words, scales, options: { bits, groupSize } }) => {
    const codes = unpackCodes(words, bits);
    return w.map((v, i) =>
      (codes[i] as number) >= 2 ** (bits - 1) ? v - 2 ** bits * (scales[Math.floor(i / groupSize)] as number) : v,
    );
  }),
  "groups along rows": (m) => {
    const codes = unpackCodes(m.words, m.options.bits);
    const perRow = m.cols / m.options.groupSize;
    return product(
      m,
      codes.map((q, i) => {
        const g = (Math.floor(i / m.cols) * perRow + (i % perRow)) % m.scales.length;
        return q * (m.scales[g] as number) + (m.biases[g] as number);
      }),
    );
  },
  "scale rows strided by cols": (m) => {
    const at = (i: number) => (Math.floor(i / (m.cols / m.options.groupSize)) * m.cols + i) % m.scales.length;
    return right({ ...m, scales: m.scales.map((_, i) => m.scales[at(i)] as number) });
  },
  "positive scales": (m) => right({ ...m, scales: m.scales.map(Math.abs) }),
  "bias once for each row": (m) => {
    const y = right({ ...m, biases: m.biases.map(() => 0) });
    const outer = m.options.transpose === false ? m.cols : m.rows;
    const perRow = m.cols / m.options.groupSize;
    return y.map((v, i) => v + (m.biases[((i % outer) * perRow) % m.biases.length] as number));
  },
  "8 bits read as 4": (m) => {
    if (m.options.bits !== 8) return right(m);
    const nibbles = unpackCodes(m.words, 4).subarray(0, m.rows * m.cols);
    return right({ ...m, words: packCodes(nibbles, 8) });
  },
  "rows % 8 skipped": (m) => {
    const outer = m.options.transpose === false ? m.cols : m.rows;
    return right(m).map((v, i) => (i % outer < outer - (outer % 8) ? v : 0));
  },
  "last group skipped": withWeights((w, { cols, options }) =>
    w.map((v, i) => (i % cols < cols - options.groupSize ? v : 0)),
  ),
  "rows of W beyond a multiple of 32 skipped": withWeights((w, { rows, cols }) =>
    w.map((v, i) => (Math.floor(i / cols) < rows - (rows % 32) ? v : 0)),
  ),
  "M % 4 skipped": (m) => {
    const y = right(m);
    const outer = m.options.transpose === false ? m.cols : m.rows;
    const rows = y.length / outer;
    return y.fill(0, (rows - (rows % 4)) * outer);
  },
  "x · Wᵀ: sums of x in bf16": (m) => {
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
  },
  "x · Wᵀ: sums in 16 bits": (m) => {
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
  },
};

/** Wrong products, each of which the suite of quantizedMatmul must reject. */
export const mutants: Record<string, ReferenceFunction> = {
  ...Object.fromEntries(Object.entries(wrongProducts).map(([name, wrong]) => [name, reference(wrong)])),
  "transpose ignored": reference((m) =>
    m.rows === m.cols ? productReference(m.x, decode(m), m.rows, m.cols, m.options.transpose === false) : right(m),
  ),
  "x · W: sums in 16 bits": reference((m) => {
    const y = right(m);
    if (m.options.transpose !== false) return y;
    const round = coarse(m.dtype);
    const w = decode(m);
    return y.map((_, i) => {
      const [r, column] = [Math.floor(i / m.cols), i % m.cols];
      let sum = 0;
      for (let k = 0; k < m.rows; k++)
        sum = round(sum + (m.x[r * m.rows + k] as number) * (w[k * m.cols + column] as number));
      return sum;
    });
  }),
  "x · W: sums of x · bias in bf16": reference((m) => {
    if (m.options.transpose !== false) return right(m);
    const round = coarse("bf16");
    const { groupSize } = m.options;
    const perRow = m.cols / groupSize;
    return right({ ...m, biases: m.biases.map(() => 0) }).map((v, i) => {
      const [r, group] = [Math.floor(i / m.cols), Math.floor((i % m.cols) / groupSize)];
      let sum = 0;
      for (let k = 0; k < m.rows; k++)
        sum = round(sum + (m.x[r * m.rows + k] as number) * (m.biases[k * perRow + group] as number));
      return v + sum;
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
};
