import type { Tensor } from "@mlxts/core";

/** Where a norm is rounded to the output dtype. */
export const ROUNDING = {
  kind: "choice",
  values: ["once", "before-weight"],
  default: "once",
  doc: "`once`: rounded at the store; `before-weight`: also before the weight multiplies, as Llama, DeepSeek and MLX do",
} as const;

/** What is added to the weight before it multiplies. */
export const WEIGHT_OFFSET = {
  kind: "choice",
  values: [0, 1],
  default: 0,
  doc: "1 for checkpoints whose weight means 1 + w: Hugging Face Qwen3-Next and Qwen3.5",
} as const;

/** What is added to the mean square, inside the root. */
export const EPS = { kind: "number", default: 1e-6, min: 0, doc: "added to the mean square" } as const;

/** The options of a norm with weights. */
export const NORM_OPTIONS = { eps: EPS, weightOffset: WEIGHT_OFFSET, rounding: ROUNDING } as const;

/** Dtypes of rows and weight: the weight has that of the rows, or f32. */
export const WEIGHTED = ["f32_f32", "f16_f16", "bf16_bf16", "f16_f32", "bf16_f32"] as const;

/** What kernels of norms with weights are told. */
export const NORM_PARAMS = {
  rows: "u32",
  dim: "u32",
  eps: "f32",
  weightOffset: "f32",
  roundBeforeWeight: "u32",
} as const;

export const normParams = (
  rows: number,
  dim: number,
  { eps, weightOffset, rounding }: { eps: number; weightOffset: number; rounding: string },
) => ({ rows, dim, eps, weightOffset, roundBeforeWeight: rounding === "before-weight" ? 1 : 0 });

export interface Rows {
  rows: number;
  dim: number;
}

/** Elements of a CPU's threadgroup: a handful of head vectors then runs inline. */
const CPU_ELEMENTS = 4096;
/** Lanes of a simdgroup. */
const SIMD = 32;
/** A GPU gives rows up to this length one simdgroup, longer ones a threadgroup with four elements to a thread. */
const SIMDGROUP_ROW = 512;
const MOST_THREADS = 512;
/** Short rows that a GPU's threadgroup takes side by side. */
const SIMDGROUPS = 8;

/** What the rules below add to a norm's declaration. */
export const ROW_SCRATCH = { gpu: { partial: "f32" } } as const;
export const ROW_LAUNCH_PARAMS = { cpu: { rowsPerThreadgroup: "u32" } } as const;

/** Whole rows to a CPU's threadgroup. */
export function rowsOnCpu({ rows, dim }: Rows) {
  const rowsPerThreadgroup = Math.max(1, Math.floor(CPU_ELEMENTS / dim));
  return { threadgroups: [Math.ceil(rows / rowsPerThreadgroup), 1, 1] as const, params: { rowsPerThreadgroup } };
}

/** A GPU's threads lie in rows of the threadgroup, one such row to a row of the input. */
export function rowsOnGpu({ rows, dim }: Rows) {
  const short = dim <= SIMDGROUP_ROW;
  const together = short ? SIMDGROUPS : 1;
  const threads = short ? SIMD : Math.min(MOST_THREADS, Math.ceil(dim / (4 * SIMD)) * SIMD);
  return {
    threadgroups: [Math.ceil(rows / together), 1, 1] as const,
    threadsPerThreadgroup: [threads, Math.min(together, rows), 1] as const,
    scratch: { partial: [threads / SIMD] },
  };
}

/** A bit for each weight that is f32. */
export const f32Weights = (...weights: readonly Tensor[]): number =>
  weights.reduce((bits, { dtype }, i) => bits | (dtype === "f32" ? 1 << i : 0), 0);

/** Of norms that take two sums of each row, one after the other: each has threadgroup memory of its own. */
export const TWO_NORMS_SCRATCH = { gpu: { partial: "f32", second: "f32" } } as const;

export function twoNormsOnGpu(sizes: Rows) {
  const { scratch, ...launch } = rowsOnGpu(sizes);
  return { ...launch, scratch: { ...scratch, second: scratch.partial } };
}
