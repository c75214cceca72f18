// Weights of cases, dense and quantized, and what they stand for.
import type { CaseInput, Random, Reference64 } from "@mlxts/core/testing";

/** A dtype, "act" among them; or codes of `bits` bits with scales in a dtype. */
export type Kind = CaseInput["dtype"] | { bits: 4 | 8; groupSize: 32 | 64 | 128; scales?: CaseInput["dtype"] };

/** Both widths of codes, with scales of each dtype. */
export const SCALES = ([4, 8] as const).flatMap((bits) =>
  (["f32", "f16", "bf16"] as const).map((scales) => ({ bits, groupSize: 32, scales }) as const),
);

export const kindName = (kind: Kind) =>
  typeof kind === "string" ? kind : `${kind.bits} bits, groups of ${kind.groupSize}, scales ${kind.scales ?? "act"}`;

type Inputs = Record<string, CaseInput>;

/** The inputs and options of a weight of about unit rms, times `scale`. */
export function makeWeight(
  random: Random,
  name: string,
  kind: Kind,
  shape: readonly number[],
  scale = 1,
): { inputs: Inputs; options: Record<string, number> } {
  const size = shape.reduce((a, b) => a * b, 1);
  if (typeof kind === "string")
    return { inputs: { [name]: { dtype: kind, shape, data: random.normals(size, scale) } }, options: {} };
  const { bits, groupSize, scales: dtype = "act" } = kind;
  const [lead, cols] = [shape.slice(0, -1), shape[shape.length - 1] as number];
  const unit = (Math.sqrt(12) / 2 ** bits) * scale;
  const scales = random.uniforms(size / groupSize, 0.5, 1.5).map((s) => unit * (random.uniform() < 0.5 ? -s : s));
  const biases = scales.map((s) => -s * (2 ** (bits - 1) - 0.5 + 2 * random.normal()));
  return {
    inputs: {
      [`${name}.weight`]: {
        dtype: "u32",
        shape: [...lead, (cols * bits) / 32],
        data: random.integers((size * bits) / 32, 2 ** 32),
      },
      [`${name}.scales`]: { dtype, shape: [...lead, cols / groupSize], data: scales },
      [`${name}.biases`]: { dtype, shape: [...lead, cols / groupSize], data: biases },
    },
    options: { [`${name}.bits`]: bits, [`${name}.groupSize`]: groupSize },
  };
}

/** Codes, and the scale and bias of each; the matrix is [rows, cols]. */
interface Parts {
  codes: Float64Array;
  scale(i: number): number;
  bias(i: number): number;
  bits: number;
}
/** How a wrong implementation reads a quantized matrix: its element i, of `cols` in a row. */
export type Read = (parts: Parts, i: number, cols: number, groupSize: number) => number;
const right: Read = ({ codes, scale, bias }, i, _, groupSize) => {
  const group = Math.floor(i / groupSize);
  return (codes[i] as number) * scale(group) + bias(group);
};

/** The matrix that an input of a case stands for. */
export function weightOf(
  inputs: Readonly<Record<string, Reference64>>,
  options: Readonly<Record<string, unknown>>,
  name: string,
  read: Read = right,
): Reference64 | undefined {
  const words = inputs[`${name}.weight`];
  if (!words) return inputs[name];
  const [bits, groupSize] = [options[`${name}.bits`] as number, options[`${name}.groupSize`] as number];
  const [scales, biases] = [inputs[`${name}.scales`]?.data, inputs[`${name}.biases`]?.data] as Float64Array[];
  const perWord = 32 / bits;
  const mask = 2 ** bits - 1;
  const codes = new Float64Array(words.data.length * perWord);
  for (let at = 0; at < words.data.length; at++)
    for (let i = 0; i < perWord; i++) codes[at * perWord + i] = ((words.data[at] as number) >>> (bits * i)) & mask;
  const cols = (words.shape[words.shape.length - 1] as number) * perWord;
  const at = (values: Float64Array | undefined) => (i: number) => values?.[i % values.length] as number;
  const parts = { codes, scale: at(scales), bias: at(biases), bits };
  return {
    shape: [...words.shape.slice(0, -1), cols],
    data: codes.map((_, i) => read(parts, i, cols, groupSize)),
  };
}

/** Wrong ways to read a quantized matrix. */
export const WRONG_READS: Record<string, Read> = {
  "groups along the other dimension": ({ codes, scale, bias }, i, cols, groupSize) => {
    const group = Math.floor(i / cols / groupSize) * cols + (i % cols);
    return (codes[i] as number) * scale(group) + bias(group);
  },
  "scale and bias of the next group": ({ codes, scale, bias }, i, _, groupSize) => {
    const group = Math.floor(i / groupSize) + 1;
    return (codes[i] as number) * scale(group) + bias(group);
  },
  "bias of the next row": ({ codes, scale, bias }, i, cols, groupSize) => {
    const group = Math.floor(i / groupSize);
    return (codes[i] as number) * scale(group) + bias(group + cols / groupSize);
  },
  "bias dropped": ({ codes, scale }, i, _, groupSize) => (codes[i] as number) * scale(Math.floor(i / groupSize)),
  "bias of centered codes": ({ codes, scale, bias, bits }, i, _, groupSize) => {
    const group = Math.floor(i / groupSize);
    return ((codes[i] as number) - 2 ** (bits - 1)) * scale(group) + bias(group);
  },
  "high codes first": (parts, i, _, groupSize) => {
    const within = parts.bits === 4 ? i ^ 1 : i ^ 3;
    const group = Math.floor(i / groupSize);
    return (parts.codes[within] as number) * parts.scale(group) + parts.bias(group);
  },
};

/** Matrices [H, rows, cols] transposed, as rows [H · cols, rows]. */
export function transposed({ shape, data }: Reference64): Reference64 {
  const [H = 1, rows = 1, cols = 1] = shape;
  return {
    shape: [H * cols, rows],
    data: data.map((_, i) => {
      const [row, c] = [Math.floor(i / rows), i % rows];
      return data[(Math.floor(row / cols) * rows + c) * cols + (row % cols)] as number;
    }),
  };
}
