/** Where a norm is rounded to the output dtype. */
export const ROUNDING = {
  kind: "choice",
  values: ["once", "before-weight"],
  default: "once",
  doc: "round once at the store, or also before the weight",
} as const;

/** What is added to the weight before it multiplies. */
export const WEIGHT_OFFSET = { kind: "choice", values: [0, 1], default: 0, doc: "1: the weight means 1 + w" } as const;

/** Rows of one threadgroup: short rows go together, so that a handful of head vectors runs inline. */
export const rowBlock = (dim: number) => Math.max(1, Math.floor(4096 / dim));
