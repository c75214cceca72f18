import type { Place } from "./errors.ts";

export type AddressSpace = "device" | "constant" | "threadgroup";

/** A parameter of a kernel. */
export interface Argument {
  name: string;
  kind: "buffer" | "threadgroup" | "builtin";
  /** As written, without brackets: `buffer(0)`, `thread_position_in_grid`. */
  attribute: string;
  /** What the pointer or reference names; the type of a builtin. */
  type: string;
  /** Of a buffer or threadgroup argument. */
  index?: number;
  space?: AddressSpace;
  readOnly?: boolean;
  indirection?: "pointer" | "reference";
}

/** An entry point: a kernel, or an instance of a kernel template. */
export interface Kernel extends Place {
  /** What Metal's `newFunctionWithName` finds. */
  name: string;
  /** The C++ expression that names the function. */
  callee: string;
  arguments: Argument[];
  /** `[[max_total_threads_per_threadgroup(n)]]`. */
  maxThreads?: number;
}

/** Builtins that are vectors of positions or sizes, and how many components each has at most. */
export const POSITIONS = new Set([
  "thread_position_in_threadgroup",
  "threadgroup_position_in_grid",
  "threads_per_threadgroup",
  "dispatch_threads_per_threadgroup",
  "threadgroups_per_grid",
  "threads_per_grid",
  "thread_position_in_grid",
]);

/** Builtins that are one number. */
export const INDICES = new Set([
  "thread_index_in_threadgroup",
  "thread_index_in_simdgroup",
  "simdgroup_index_in_threadgroup",
  "simdgroups_per_threadgroup",
]);

export const SIMDGROUP_WIDTHS = new Set(["threads_per_simdgroup", "thread_execution_width"]);
