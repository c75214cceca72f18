// Matrices in MLX's affine quantization, as ops take them: one record input for all packages.
import type { Tensor } from "./api.ts";
import { FLOATS } from "./dtype.ts";
import { wrongKind } from "./errors.ts";
import { isOpContext, unsupported } from "./op.ts";
import type { RecordSpec } from "./op_types.ts";
import { isArray } from "./shape.ts";

/** Bits and modes that MLX has and ops refuse. */
const OTHER_BITS: readonly unknown[] = [3, 5, 6];
export const OTHER_QUANTIZED_MODES: readonly string[] = ["mxfp4", "mxfp8", "nvfp4"];

/** Any shape: `quantizedDims` checks those of all parts together. */
const any = (text: string) => ({ text, of: (_: unknown, given: readonly number[]) => given });

/** The record input of every op that takes a quantized matrix; `quantizedDims` checks its shapes. */
export const QUANTIZED = {
  type: "Quantized",
  tensors: {
    weight: { dtype: ["u32"], shape: any("..., rows, cols·bits/32"), doc: "packed codes" },
    scales: { dtype: FLOATS, shape: any("..., rows, cols/groupSize"), doc: "scale of each group" },
    biases: { dtype: ["=scales"], shape: any("..., rows, cols/groupSize"), doc: "bias of each group" },
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

const GROUP_PARTS = ["scales", "biases"] as const;
const { bits: BITS, groupSize: GROUP_SIZES } = QUANTIZED.attributes;
const includes = (values: readonly unknown[], value: unknown) => values.includes(value);

/** Throws for bits that MLX knows and this op does not offer. */
export function refuseBits(op: string, bits: unknown, offered: readonly unknown[]): void {
  if (!isArray(offered)) throw wrongKind("refuseBits", "offered", "be an array of bits", offered);
  if (includes(OTHER_BITS, bits) || (includes(BITS.values, bits) && !offered.includes(bits)))
    throw unsupported(op, `a width of ${bits} bits`, `bits ${offered.join(", ")} are`);
}

/**
 * The dimensions of the record, once mode, bits and the shapes agree. Undefined where an attribute is not one of its
 * values: the check of the options says so next. `input` is the input's name where its parts are called by it.
 */
export function quantizedDims(context: Checked, offered: readonly number[], input?: string): QuantizedDims | undefined {
  if (!isOpContext(context)) throw wrongKind("quantizedDims", "context", "be what an op's functions get", context);
  if (input !== undefined && typeof input !== "string")
    throw wrongKind("quantizedDims", "input", "be the name of an input", input);
  const { op, tensors, options, fail } = context;
  const prefix = input === undefined ? "" : `${input}.`;
  const bits = options[`${prefix}bits`] as number;
  const groupSize = options[`${prefix}groupSize`] as number;
  const mode = options[`${prefix}mode`] as string;
  if (includes(OTHER_QUANTIZED_MODES, mode)) throw unsupported(op, `mode ${mode}`, "mode affine is");
  refuseBits(op, bits, offered);
  if (!offered.includes(bits) || !includes(GROUP_SIZES.values, groupSize) || mode !== "affine") return undefined;
  const weight = (tensors[`${prefix}weight`] as Tensor).shape;
  if (weight.length < 2) fail(`${prefix}weight`, "have at least 2 dimensions", weight);
  const last = weight.length - 1;
  const cols = ((weight[last] as number) * 32) / bits;
  if (cols % groupSize !== 0)
    fail(
      `${prefix}weight`,
      `have a last dimension that is a multiple of ${(groupSize * bits) / 32} (groupSize ${groupSize}, ${bits} bits)`,
      weight,
    );
  for (const name of GROUP_PARTS) {
    const { shape } = tensors[prefix + name] as Tensor;
    let fits = shape.length === weight.length && shape[last] === cols / groupSize;
    for (let i = 0; fits && i < last; i++) fits = shape[i] === weight[i];
    if (fits) continue;
    const expected = [...weight.slice(0, -1), cols / groupSize];
    fail(prefix + name, `have shape [${expected.join(", ")}] (groupSize ${groupSize}, ${bits} bits)`, shape);
  }
  return { stack: weight.slice(0, -2), rows: weight[last - 1] as number, cols, groupSize, bits };
}
