// What native/gathered_rows.h says of the pairs of a gathered product.
import { defineKernel, GATHERED_FAULTS, GATHERED_PARAMS, gatheredSlots, ORDERED_FAULTS } from "../../src/index.ts";
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

interface OrderedSizes {
  pairs: number;
  matrices: number;
}
const most = 4;
const slots = ({ pairs, matrices }: OrderedSizes) => [gatheredSlots(pairs, matrices, most), 1, 1] as const;

/**
 * rows [slots, 2]: the matrix of each slot, and how many rows it has; found [slots, 4, 2]: for each row its pair and
 * the matrix of x.
 */
export const gatheredOrderKernel = defineKernel({
  library: probeLibrary,
  name: "gathered_order",
  variants: ["u32"],
  buffers: { rhsIndices: "read", lhsIndices: "read?", order: "read", offsets: "read", rows: "write", found: "write" },
  params: GATHERED_PARAMS,
  faults: ORDERED_FAULTS,
  constants: { shared: { most } },
  launch: {
    cpu: (sizes: OrderedSizes) => ({ threadgroups: slots(sizes) }),
    gpu: (sizes: OrderedSizes) => ({ threadgroups: slots(sizes), threadsPerThreadgroup: [32, 1, 1] }),
  },
});
