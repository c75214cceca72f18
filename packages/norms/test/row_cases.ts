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

const random = new Random(17);

/** Bounded numbers: products of normal ones have tails that rms bars do not speak of. */
export const numbers = (size: number, rms = 1) => random.uniforms(size, -1.7 * rms, 1.7 * rms);

/** Rows of a case: `act` numbers in [rows, dim]. */
export const rowsOf = ({ rows, dim }: Pick<Setting, "rows" | "dim">, rms = 1) => ({
  dtype: "act" as const,
  shape: [rows, dim],
  data: numbers(rows * dim, rms),
});

export const weightOf = ({ dim, weightDtype, options }: Pick<Setting, "dim" | "weightDtype" | "options">) => ({
  dtype: weightDtype,
  shape: [dim],
  data: random.normals(dim, 0.2, options.weightOffset === 1 ? 0 : 1),
});

/** The cases of an op; `make` gives its tensors, and options that are its own. */
export function rowCases(make: (setting: Setting) => Partial<Case> & Pick<Case, "inputs">): Case[] {
  const one = (setting: Partial<Setting> & Pick<Setting, "dim">): Case => {
    // Few elements make a chance of rms(err): at least 256 of them.
    const rows = Math.max(3, Math.ceil(256 / setting.dim));
    const whole: Setting = { rows, rms: 1, weightDtype: "act", options: {}, ...setting };
    const { options, ...own } = make(whole);
    const all = { ...whole.options, ...options };
    const name = `[${whole.rows},${whole.dim}] rms ${whole.rms} weight ${whole.weightDtype} ${JSON.stringify(all)}`;
    return { name, options: all, ...own };
  };
  return [
    ...PATHS.map((dim) => one({ dim })),
    ...[1, 2, 7, 64, 257].map((rows) => one({ rows, dim: 260 })),
    ...[1e-3, 1e3].flatMap((rms) => [1e-6, 1e-5, 0.1].map((eps) => one({ rows: 3, dim: 128, rms, options: { eps } }))),
    ...[5, 64, 1025].flatMap((dim) => [
      one({ dim, options: { weightOffset: 1 } }),
      one({ dim, options: { rounding: "before-weight" } }),
      one({ dim, weightDtype: "f32" }),
      one({ dim, weightDtype: "f32", options: { weightOffset: 1, rounding: "before-weight" } }),
    ]),
  ];
}

/** The data of a tensor that is there. */
export const data = (inputs: Record<string, Reference64>, name: string) => (inputs[name] as Reference64).data;

/** Numbers of rows with the next row's in their place: what an op that mixes rows up reads. */
export const nextRow = (x: Float64Array, dim: number) => x.map((_, i) => x[(i + dim) % x.length] as number);
