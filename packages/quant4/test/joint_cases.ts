// Cases of products of one x with several quantized matrices, and their references.
import { type Case, type CaseInput, Random, type Reference64 } from "@mlxts/core/testing";
import { randomQuantized, setting } from "./groups.ts";
import { type Options, type Product, right } from "./product_cases.ts";

type Floats = "f32" | "f16" | "bf16";

export interface Shape {
  lead?: readonly number[];
  /** Of each matrix. */
  rows: readonly number[];
  cols: number;
  bits?: 4 | 8;
  groupSize?: 32 | 64 | 128;
  scales?: Floats;
  outDtype?: Floats;
}

type MakeCase = (names: readonly string[], outputs: readonly string[], shape: Shape) => Case;

/** Makes cases of an op with matrices of these names, and with these outputs. Their seeds are its own, from `seed` on. */
export const caseMaker =
  (seed: number): MakeCase =>
  (names, outputs, shape) => {
    const made = makeCase(names, outputs, shape, seed);
    seed += 1 + shape.rows.length;
    return made;
  };

function makeCase(
  names: readonly string[],
  outputs: readonly string[],
  { lead = [1], rows, cols, bits = 4, groupSize = 32, scales, outDtype }: Shape,
  seed: number,
): Case {
  const random = new Random(seed * 6007);
  const m = lead.reduce((a, b) => a * b, 1);
  const inputs: Record<string, CaseInput> = {
    x: { dtype: "act", shape: [...lead, cols], data: random.normals(m * cols, 1 / Math.sqrt(cols)) },
  };
  const options: Record<string, unknown> = outDtype ? { outDtype } : {};
  for (const [i, count] of rows.entries()) {
    const name = names[i] as string;
    const made = randomQuantized(1, count, cols, { bits, groupSize }, seed + 1 + i);
    const dtype = scales ?? "act";
    inputs[`${name}.weight`] = { dtype: "u32", shape: [count, (cols * bits) / 32], data: made.weight };
    inputs[`${name}.scales`] = { dtype, shape: [count, cols / groupSize], data: made.scales };
    inputs[`${name}.biases`] = { dtype, shape: [count, cols / groupSize], data: made.biases };
    Object.assign(options, { [`${name}.bits`]: bits, [`${name}.groupSize`]: groupSize, [`${name}.mode`]: "affine" });
  }
  // The error of a few elements says little in short floats.
  const isSmall = m * Math.min(...rows) < 256;
  return {
    ...(isSmall && !outDtype ? { dtypes: ["f32"] as const } : {}),
    name: `[${lead}] ${cols} to ${rows}, ${setting(bits, groupSize)} ${scales ?? ""} ${outDtype ?? ""}`.trim(),
    inputs,
    options,
    ask: Object.fromEntries(
      outputs.map((name, i) => [name, { dtype: outDtype ?? "act", shape: [...lead, rows[i] as number] }]),
    ),
  };
}

/** The product of x with the matrix of a name, or what a wrong one makes of it. */
export function jointProduct(
  inputs: Record<string, Reference64>,
  name: string,
  options: Record<string, unknown>,
  dtype: Floats,
  product: Product = right,
): Float64Array {
  const part = (of: string) => (inputs[`${name}.${of}`] as Reference64).data;
  const { shape } = inputs[`${name}.weight`] as Reference64;
  const x = inputs.x as Reference64;
  const given = { bits: options[`${name}.bits`], groupSize: options[`${name}.groupSize`] } as Options;
  return product({
    x: x.data,
    words: part("weight"),
    scales: part("scales"),
    biases: part("biases"),
    rows: shape[0] as number,
    cols: x.shape.at(-1) as number,
    options: given,
    dtype,
  });
}
