// The settings that every norm is tried in: lengths at which a kernel takes another path, numbers of rows, sizes of
// numbers, options. What tensors a case has is the op's.
import { type Case, Random, type Reference64 } from "@mlxts/core/testing";

/** Lengths of §10 of the contract. */
export const DIMS = [
  1, 2, 3, 4, 5, 7, 8, 12, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256, 257, 511, 512, 513, 1000,
  1023, 1024, 1025, 2048, 3584, 4096, 4099, 5120, 7168, 8160, 8164, 8192, 16384,
];
/** Of these, one on each path: vectors, tails, one simdgroup, several, loops. */
export const PATHS = [1, 2, 3, 5, 8, 16, 17, 31, 33, 64, 100, 511, 512, 513, 1025, 2050, 4099];

export interface Setting {
  rows: number;
  dim: number;
  /** Of the rows that are normalized. */
  rms: number;
  weightDtype: "act" | "f32";
  options: { eps?: number; weightOffset?: 0 | 1; rounding?: "once" | "before-weight" };
}

/** Makes the tensors of cases. Each suite has its own: its cases do not depend on what other suites are loaded. */
export function tensorMaker() {
  const random = new Random(17);
  /** Bounded numbers: products of normal ones have tails that rms bars do not speak of. */
  const numbers = (size: number, rms = 1) => random.uniforms(size, -1.7 * rms, 1.7 * rms);
  /** Rows of a case: `act` numbers in [rows, dim]. */
  const rowsOf = ({ rows, dim }: Pick<Setting, "rows" | "dim">, rms = 1) => ({
    dtype: "act" as const,
    shape: [rows, dim],
    data: numbers(rows * dim, rms),
  });
  /**
   * What a norm is added to before the sum is normalized: where rows are short, numbers that it cannot cancel, since the
   * norm of a tiny row shows nothing but the rounding of its sum.
   */
  const awayFromZero = (setting: Setting) => {
    const { data: plain, ...rest } = rowsOf(setting, setting.rms);
    return { ...rest, data: setting.dim <= 3 ? plain.map((v) => v + 5) : plain };
  };
  const weightOf = ({ dim, weightDtype, options }: Pick<Setting, "dim" | "weightDtype" | "options">) => ({
    dtype: weightDtype,
    shape: [dim],
    data: random.normals(dim, 0.2, options.weightOffset === 1 ? 0 : 1),
  });
  return { numbers, rowsOf, awayFromZero, weightOf };
}

type Make = (setting: Setting) => Partial<Case> & Pick<Case, "inputs">;

function caseOf(make: Make, setting: Partial<Setting> & Pick<Setting, "dim">): Case {
  // Few elements make a chance of rms(err): at least 256 of them.
  const rows = Math.max(3, Math.ceil(256 / setting.dim));
  const whole: Setting = { rows, rms: 1, weightDtype: "act", options: {}, ...setting };
  const { options, ...own } = make(whole);
  const all = { ...whole.options, ...options };
  const name = `[${whole.rows},${whole.dim}] rms ${whole.rms} weight ${whole.weightDtype} ${JSON.stringify(all)}`;
  return { name, options: all, ...own };
}

/** The cases of a norm without weights; `make` gives its tensors, and options that are its own. */
export const scaleCases = (make: Make): Case[] => [
  ...PATHS.map((dim) => caseOf(make, { dim })),
  ...[1, 2, 7, 64, 257].map((rows) => caseOf(make, { rows, dim: 260 })),
  ...[1e-3, 1e3].flatMap((rms) =>
    [1e-6, 1e-5, 0.1].map((eps) => caseOf(make, { rows: 3, dim: 128, rms, options: { eps } })),
  ),
];

/** The cases of a norm with weights. */
export const rowCases = (make: Make): Case[] => [
  ...scaleCases(make),
  ...[5, 64, 1025].flatMap((dim) => [
    caseOf(make, { dim, options: { weightOffset: 1 } }),
    caseOf(make, { dim, options: { rounding: "before-weight" } }),
    caseOf(make, { dim, weightDtype: "f32" }),
    caseOf(make, { dim, weightDtype: "f32", options: { weightOffset: 1, rounding: "before-weight" } }),
  ]),
];

/** The data of a tensor that is there. */
export const data = (inputs: Record<string, Reference64>, name: string) => (inputs[name] as Reference64).data;

/** Numbers of rows with the next row's in their place: what an op that mixes rows up reads. */
export const nextRow = (x: Float64Array, dim: number) => x.map((_, i) => x[(i + dim) % x.length] as number);

/** Each row of x times the weight, divided by the rms of the same row of `by`: a norm with another norm's sum. */
export const scaledBy = (x: Float64Array, weight: Float64Array, by: Float64Array) =>
  x.map((v, i) => {
    const start = i - (i % weight.length);
    const row = by.subarray(start, start + weight.length);
    return (v * (weight[i % weight.length] as number)) / Math.sqrt(row.reduce((a, b) => a + b * b, 0) / row.length);
  });
