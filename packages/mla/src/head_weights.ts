// The weights of heads as ops take them: kv_b as checkpoints have it, or its two parts as MLX stores them; dense or quantized.
import { FLOATS, QUANTIZED, quantizedDims, Tensor, wrongKind } from "@mlxts/core";
import type { Quantized } from "./signatures.ts";

const headWeight = <const S extends string>(shape: S, doc: string) =>
  ({ ...QUANTIZED, tensor: { dtype: FLOATS, shape }, doc, optional: true }) as const;

/** The input specs. `kvB`, or in place of it those of the parts that an op multiplies. */
export const HEAD_WEIGHTS = {
  kvB: headWeight("Hrows R", "`kv_b_proj`: for each head rows of keys, then of values"),
  embedQ: headWeight("H R nope", "`embed_q`, in place of `kvB`: of each head the rows of keys, transposed"),
  unembedOut: headWeight("H v R", "`unembed_out`, in place of `kvB`: of each head the rows of values"),
} as const;

type Name = keyof typeof HEAD_WEIGHTS;
const OFFERED = [4, 8];

interface Checked {
  readonly op: string;
  readonly tensors: Readonly<Record<string, Tensor>>;
  readonly inputs: object;
  readonly options: Readonly<Record<string, unknown>>;
  readonly dims: Readonly<Record<string, number>>;
  fail(argument: string, rule: string, value: unknown): never;
}

/** A matrix of each head, as rows of one matrix with `cols` columns. */
export interface HeadMatrix {
  readonly given: Tensor | Quantized;
  readonly cols: number;
  /** Rows from a head to the next, and the first of a head's rows that counts. */
  readonly headRows: number;
  readonly firstRow: number;
  /** Whether a latent's R elements lie along its rows or along its columns. */
  readonly latentsAlong: "rows" | "columns";
  readonly rank: number;
  /** The other dimension: columns of a head's keys or values. */
  readonly headDim: number;
}

const givenOf = ({ inputs }: Checked, name: Name) => (inputs as Partial<Record<Name, Tensor | Quantized>>)[name];

/** The shape of the matrix, or of the matrices of all heads, that an input stands for. */
function shapeOf(c: Checked, name: Name): readonly number[] | undefined {
  const given = givenOf(c, name);
  if (given instanceof Tensor) return given.shape;
  const dims = given && quantizedDims(c, OFFERED, name);
  return dims && [...dims.stack, dims.rows, dims.cols];
}

/** Refuses anything but `kvB` or all of `parts`, and quantized matrices whose tensors contradict each other. */
export function headWeightRelations(c: Checked, parts: readonly Exclude<Name, "kvB">[]): void {
  const { op, fail } = c;
  const given = parts.filter((part) => givenOf(c, part));
  const listed = parts.map((part) => `\`${part}\``).join(" and ");
  if (!givenOf(c, "kvB")) {
    const [missing] = parts.filter((part) => !given.includes(part));
    if (given.length === 0) throw wrongKind(op, "kvB", `be given, or ${listed}`, undefined);
    if (missing) throw wrongKind(op, missing, `be given with \`${given[0]}\``, undefined);
  } else if (given[0]) fail(given[0], "not be given with `kvB`", "both");
  for (const name of ["kvB", ...given] as const) shapeOf(c, name);
}

/** The shape of an input, whose dimensions must be those of `expected` that are known. */
function checkedShape(c: Checked, name: Name, expected: readonly (readonly [string, number | undefined])[]) {
  const shape = shapeOf(c, name) as readonly number[];
  if (shape.length !== expected.length || expected.some(([, dim], i) => dim !== undefined && dim !== shape[i]))
    c.fail(name, `have shape [${expected.map(([letter, dim]) => dim ?? letter).join(", ")}]`, shape);
  return shape;
}

/** Rows that `kvB` has for each head, of which `used` are not all. */
function rowsOfHead(c: Checked, used: readonly [option: string, value: number]): number {
  const H = c.dims.H as number;
  const [rows = 0] = checkedShape(c, "kvB", [
    ["Hrows", undefined],
    ["R", c.dims.R],
  ]);
  if (rows % H !== 0) c.fail("kvB", `have the same number of rows for each of the ${H} heads`, rows);
  const headRows = rows / H;
  if (used[1] >= headRows) c.fail(used[0], `be less than the ${headRows} rows that \`kvB\` has for a head`, used[1]);
  return headRows;
}

/** The rows of keys of each head, of `nope` columns. */
export function headKeys(c: Checked, nope: number): HeadMatrix {
  const { H, R } = c.dims;
  const kvB = givenOf(c, "kvB");
  if (kvB) {
    const headRows = rowsOfHead(c, ["nope", nope]);
    const cols = shapeOf(c, "kvB")?.[1] as number;
    return { given: kvB, cols, headRows, firstRow: 0, latentsAlong: "columns", rank: cols, headDim: nope };
  }
  const [, rank = 0] = checkedShape(c, "embedQ", [
    ["H", H],
    ["R", R],
    ["nope", nope],
  ]);
  const given = givenOf(c, "embedQ") as Tensor | Quantized;
  return { given, cols: nope, headRows: rank, firstRow: 0, latentsAlong: "rows", rank, headDim: nope };
}

/** The rows of values of each head: the last v of `kvB`, those behind `nope`; or `unembedOut`. */
export function headValues(c: Checked, behind: { v: number } | { nope: number }): HeadMatrix {
  const { H, R } = c.dims;
  const kvB = givenOf(c, "kvB");
  if (kvB) {
    const headRows = rowsOfHead(c, "v" in behind ? ["v", behind.v] : ["nope", behind.nope]);
    const firstRow = "v" in behind ? headRows - behind.v : behind.nope;
    const cols = shapeOf(c, "kvB")?.[1] as number;
    return { given: kvB, cols, headRows, firstRow, latentsAlong: "columns", rank: cols, headDim: headRows - firstRow };
  }
  const expected = "v" in behind ? behind.v : undefined;
  const [, v = 0, cols = 0] = checkedShape(c, "unembedOut", [
    ["H", H],
    ["v", expected],
    ["R", R],
  ]);
  const given = givenOf(c, "unembedOut") as Tensor | Quantized;
  return { given, cols, headRows: v, firstRow: 0, latentsAlong: "columns", rank: cols, headDim: v };
}

/** The width of latents, of the weight that folds queries; for the shape of an output. */
export const latentWidth = (c: Checked): number => (shapeOf(c, "kvB") ?? shapeOf(c, "embedQ"))?.[1] as number;

/** Columns of a value; for the shape of an output. */
export function valueWidth(c: Checked, nope: number): number {
  const kvB = shapeOf(c, "kvB");
  return kvB ? (kvB[0] as number) / (c.dims.H as number) - nope : (shapeOf(c, "unembedOut")?.[1] as number);
}
