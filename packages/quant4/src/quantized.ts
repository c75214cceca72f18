import { FLOATS, type RecordSpec, type Tensor, unsupported } from "@mlxts/core";
import type { Quantized } from "./signatures.ts";

export type { Quantized };
/** Bits of a code that the layout of whole words offers. */
export type Bits = Quantized["bits"];
/** Columns that share a scale and a bias. */
export type GroupSize = Quantized["groupSize"];

export const BITS: readonly Bits[] = [2, 4, 8];
export const GROUP_SIZES: readonly GroupSize[] = [32, 64, 128];
/** Bits and modes that MLX has and these ops refuse. */
const OTHER_BITS: readonly unknown[] = [3, 5, 6];
export const OTHER_MODES: readonly unknown[] = ["mxfp4", "mxfp8", "nvfp4"];

const own = (name: string) => ({
  text: name === "weight" ? "..., rows, cols·bits/32" : "..., rows, cols/groupSize",
  of: ({ tensors }: { tensors: Readonly<Record<string, Tensor>> }) => (tensors[name] as Tensor).shape,
});

/** The record input of every op that takes a quantized matrix; `quantizedDims` checks its shapes. */
export const QUANTIZED = {
  type: "Quantized",
  tensors: {
    weight: { dtype: ["u32"], shape: own("weight"), doc: "packed codes" },
    scales: { dtype: FLOATS, shape: own("scales"), doc: "scale of each group" },
    biases: { dtype: ["=scales"], shape: own("scales"), doc: "bias of each group" },
  },
  attributes: {
    bits: { kind: "choice", values: [2, 4, 8], doc: "bits of a code" },
    groupSize: { kind: "choice", values: [32, 64, 128], doc: "columns that share a scale and a bias" },
    mode: { kind: "choice", values: ["affine"], default: "affine", doc: "how codes become numbers" },
  },
  doc: "a quantized matrix, or a stack of them: an element is `scale·q + bias`, q an unsigned integer of `bits` bits",
} as const satisfies RecordSpec;

interface Checked {
  readonly op: string;
  readonly tensors: Readonly<Record<string, Tensor>>;
  readonly options: Readonly<Record<string, unknown>>;
  fail(argument: string, rule: string, value: unknown, remedy?: string): never;
}

export interface QuantizedDims {
  /** Leading dimensions of a stack. */
  readonly stack: readonly number[];
  readonly rows: number;
  readonly cols: number;
  readonly groupSize: number;
  readonly bits: number;
}

/** Throws for bits that MLX knows and this op does not offer. */
export function refuseBits(op: string, bits: unknown, offered: readonly unknown[]): void {
  if (OTHER_BITS.includes(bits) || (BITS.includes(bits as Bits) && !offered.includes(bits)))
    throw unsupported(op, `a width of ${bits} bits`, `bits ${offered.join(", ")} are`);
}

/**
 * The dimensions of the record, once mode, bits and the shapes agree. Undefined where an attribute is not one of its
 * values: the check of the options says so next.
 */
export function quantizedDims(
  { op, tensors, options, fail }: Checked,
  offered: readonly Bits[],
): QuantizedDims | undefined {
  const { bits, groupSize, mode } = options as { bits: number; groupSize: number; mode: unknown };
  if (OTHER_MODES.includes(mode)) throw unsupported(op, `mode ${mode}`, "mode affine is");
  refuseBits(op, bits, offered);
  if (!offered.includes(bits as Bits) || !GROUP_SIZES.includes(groupSize as GroupSize) || mode !== "affine")
    return undefined;
  const weight = (tensors.weight as Tensor).shape;
  if (weight.length < 2) fail("weight", "have at least 2 dimensions", weight);
  const words = weight[weight.length - 1] as number;
  const cols = (words * 32) / bits;
  if (cols % groupSize !== 0)
    fail(
      "weight",
      `have a last dimension that is a multiple of ${(groupSize * bits) / 32} (groupSize ${groupSize}, ${bits} bits)`,
      weight,
    );
  const expected = [...weight.slice(0, -1), cols / groupSize];
  for (const name of ["scales", "biases"]) {
    const { shape } = tensors[name] as Tensor;
    if (shape.length !== expected.length || shape.some((dim, i) => dim !== expected[i]))
      fail(name, `have shape [${expected.join(", ")}] (groupSize ${groupSize}, ${bits} bits)`, shape);
  }
  return { stack: weight.slice(0, -2), rows: weight[weight.length - 2] as number, cols, groupSize, bits };
}

/** Launch rules of kernels that go by words of codes: a threadgroup to a row; on a GPU a thread to a word, up to 256. */
export const WORD_LAUNCH = {
  cpu: ({ rows }: { rows: number; words: number }) => ({ threadgroups: [rows, 1, 1] as const }),
  gpu: ({ rows, words }: { rows: number; words: number }) => ({
    threadgroups: [rows, 1, 1] as const,
    threadsPerThreadgroup: [Math.min(256, Math.ceil(words / 32) * 32), 1, 1] as const,
  }),
};

/** All combinations of words, joined by `_`: the variants of a kernel. */
export function combinations(...parts: readonly (readonly string[])[]): string[] {
  return parts.reduce<string[]>(
    (all, part) => all.flatMap((head) => part.map((word) => (head ? `${head}_${word}` : word))),
    [""],
  );
}
