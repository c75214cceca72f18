// What ops of several packages that end in an RMS norm share: a chain of ops and the op that fuses it have the same options,
// and the same threads for a row, which decide the order of its sums. native/norm_row.h and native/metal_norm_row.h are the
// kernels' side.

import { wrongKind, wrongValue } from "./errors.ts";
import { checkCount, namesOf } from "./options.ts";

/** Where a norm is rounded to the output dtype. */
const ROUNDING = {
  kind: "choice",
  values: ["once", "before-weight"],
  default: "once",
  doc: "`once`: rounded at the store; `before-weight`: also before the weight multiplies, as Llama, DeepSeek and MLX do",
} as const;

/** What is added to the weight before it multiplies. */
const WEIGHT_OFFSET = {
  kind: "choice",
  values: [0, 1],
  default: 0,
  doc: "1 for checkpoints whose weight means 1 + w: Hugging Face Qwen3-Next and Qwen3.5",
} as const;

/** What is added to the mean square, inside the root. */
const EPS = { kind: "number", default: 1e-6, min: 0, doc: "added to the mean square" } as const;

/** The options of a norm with weights. */
export const NORM_OPTIONS = { eps: EPS, weightOffset: WEIGHT_OFFSET, rounding: ROUNDING } as const;

/** Dtypes of rows and weight: the weight has that of the rows, or f32. */
export const NORM_VARIANTS = ["f32_f32", "f16_f16", "bf16_bf16", "f16_f32", "bf16_f32"] as const;

/** What kernels of norms with weights are told. */
export const NORM_PARAMS = {
  rows: "u32",
  dim: "u32",
  eps: "f32",
  weightOffset: "f32",
  roundBeforeWeight: "u32",
} as const;

interface NormOptions {
  eps: number;
  weightOffset: number;
  rounding: string;
}

export function normParams(rows: number, dim: number, options: NormOptions) {
  const op = "normParams";
  checkCount(op, "rows", rows);
  checkCount(op, "dim", dim);
  namesOf(op, "options", options);
  const { eps, weightOffset, rounding } = options;
  for (const [name, value] of Object.entries({ eps, weightOffset }))
    if (typeof value !== "number") throw wrongKind(op, name, "be a number", value);
  if (!ROUNDING.values.includes(rounding as "once"))
    throw wrongValue(op, "rounding", `be one of ${ROUNDING.values.join(", ")}`, rounding);
  return { rows, dim, eps, weightOffset, roundBeforeWeight: rounding === "before-weight" ? 1 : 0 };
}

export interface NormRows {
  rows: number;
  dim: number;
}

/** Lanes of a simdgroup. */
const SIMD = 32;
/** A GPU gives rows up to this length one simdgroup, longer ones a threadgroup. */
const SIMDGROUP_ROW = 512;
const MOST_THREADS = 512;
/** Short rows that a GPU's threadgroup takes side by side. */
const SIMDGROUPS = 8;
/** Elements of a long row for each thread, up to `MOST_THREADS`: on NVIDIA's GPUs fewer threads have less to wait for. */
const PER_THREAD = 4;
const CUDA_PER_THREAD = 8;
/** As many long rows as this keep all multiprocessors of an NVIDIA GPU busy with half the threads to each. */
const MANY_ROWS = 512;
const ROW_THREADS_OF_MANY = 256;

/** What launch rules for rows on a GPU add to a kernel's declaration. */
export const NORM_SCRATCH = { gpu: { partial: "f32" } } as const;

/** A GPU's threads lie in rows of the threadgroup, one such row to a row of the input. */
function launchOf({ rows, dim }: NormRows, perThread: number, mostThreads: number) {
  const short = dim <= SIMDGROUP_ROW;
  const together = short ? SIMDGROUPS : 1;
  const threads = short ? SIMD : Math.min(mostThreads, Math.ceil(dim / (perThread * SIMD)) * SIMD);
  return {
    threadgroups: [Math.ceil(rows / together), 1, 1] as const,
    threadsPerThreadgroup: [threads, Math.min(together, rows), 1] as const,
    scratch: { partial: [threads / SIMD] },
  };
}

function checkRows(op: string, sizes: NormRows) {
  namesOf(op, "sizes", sizes);
  checkCount(op, "rows", sizes.rows);
  checkCount(op, "dim", sizes.dim);
}

/** The threads for rows on a GPU. */
export function normRowsOnGpu(sizes: NormRows) {
  checkRows("normRowsOnGpu", sizes);
  return launchOf(sizes, PER_THREAD, MOST_THREADS);
}

/** The same on NVIDIA's GPUs. */
export function normRowsOnCuda(sizes: NormRows) {
  checkRows("normRowsOnCuda", sizes);
  return launchOf(sizes, CUDA_PER_THREAD, sizes.rows > MANY_ROWS ? ROW_THREADS_OF_MANY : MOST_THREADS);
}
