// What native/gathered_rows.h says of the pairs of a gathered product.
import { defineKernel, GATHERED_FAULTS, GATHERED_PARAMS, ORDERED_FAULTS } from "../../src/index.ts";
import { probeLibrary } from "./probe.ts";

/** matrices [pairs, 2]: the matrix of x and that of the stack of each pair. */
export const gatheredPairsKernel = defineKernel({
  library: probeLibrary,
  name: "gathered_pairs",
  variants: ["u32"],
  buffers: { rhsIndices: "read", lhsIndices: "read?", matrices: "write" },
  params: GATHERED_PARAMS,
  faults: GATHERED_FAULTS,
  launch: {
    cpu: ({ pairs }: { pairs: number }) => ({ threadgroups: [pairs, 1, 1] }),
    gpu: ({ pairs }: { pairs: number }) => ({ threadgroups: [pairs, 1, 1], threadsPerThreadgroup: [32, 1, 1] }),
  },
});

const most = 4;
const slots = (sizes: { slots: number }) => [sizes.slots, 1, 1] as const;

/** Rows that a slot has at most. */
export const MOST_ROWS = most;

/**
 * rows [slots, 2]: the matrix of each slot, and how many rows it has; found [slots, 4, 2]: for each row that of the
 * output and that of x.
 */
export const gatheredOrderKernel = defineKernel({
  library: probeLibrary,
  name: "gathered_order",
  variants: ["u32"],
  buffers: { rhsIndices: "read", lhsIndices: "read?", order: "read?", offsets: "read?", rows: "write", found: "write" },
  params: GATHERED_PARAMS,
  faults: ORDERED_FAULTS,
  constants: { shared: { most } },
  launch: {
    cpu: (sizes: { slots: number }) => ({ threadgroups: slots(sizes) }),
    gpu: (sizes: { slots: number }) => ({ threadgroups: slots(sizes), threadsPerThreadgroup: [32, 1, 1] }),
  },
});

/**
 * taken [rows, blocks]: how often each row of the output and block of columns was multiplied; by, the same: the first
 * threadgroup of the range that did it.
 */
export const slotPartsKernel = defineKernel({
  library: probeLibrary,
  name: "slot_parts",
  variants: ["u32"],
  buffers: { rhsIndices: "read", order: "read?", offsets: "read?", taken: "write", by: "write" },
  params: GATHERED_PARAMS,
  constants: { shared: { most } },
  launch: {
    cpu: (sizes: { slots: number; blocks: number }) => ({ threadgroups: [sizes.blocks, sizes.slots, 1] }),
  },
});
