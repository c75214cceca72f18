import type { Launch, Machine } from "@mlxts/core";

/** Where a norm is rounded to the output dtype. */
export const ROUNDING = {
  kind: "choice",
  values: ["once", "before-weight"],
  default: "once",
  doc: "round once at the store, or also before the weight",
} as const;

/** What is added to the weight before it multiplies. */
export const WEIGHT_OFFSET = { kind: "choice", values: [0, 1], default: 0, doc: "1: the weight means 1 + w" } as const;

/** Lanes of a simdgroup. */
const SIMD = 32;
/** A GPU gives rows up to this length one simdgroup, longer ones a threadgroup with four elements to a thread. */
const SIMDGROUP_ROW = 512;
const MOST_THREADS = 512;

/**
 * Rows of one threadgroup: short rows go together. On a CPU a handful of head vectors then runs inline, on a GPU eight
 * simdgroups work side by side.
 */
export const rowBlock = (dim: number, { gpu }: Pick<Machine, "gpu">) =>
  gpu ? (dim <= SIMDGROUP_ROW ? 8 : 1) : Math.max(1, Math.floor(4096 / dim));

/** The launch of every norm: threads in rows of the threadgroup, one such row to a row of the input. */
export function rowLaunch({ rows, dim }: { rows: number; dim: number }, machine: Machine): Launch {
  const block = rowBlock(dim, machine);
  const threads = dim <= SIMDGROUP_ROW ? SIMD : Math.min(MOST_THREADS, Math.ceil(dim / (4 * SIMD)) * SIMD);
  return {
    threadgroups: [Math.ceil(rows / block), 1, 1],
    threadsPerThreadgroup: machine.gpu ? [threads, Math.min(block, rows), 1] : [1, 1, 1],
    threadgroupBytes: machine.gpu ? (4 * threads) / SIMD : 0,
  };
}
