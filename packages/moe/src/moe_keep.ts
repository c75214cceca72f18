import { defineKernel, defineOp } from "@mlxts/core";
import { moeLibrary } from "./library.ts";
import type { MoeKeep } from "./signatures.ts";
import { SIMD } from "./threads.ts";

export const moeKeepKernel = defineKernel({
  library: moeLibrary,
  name: "moe_keep",
  variants: ["u32"],
  buffers: { indices: "read", ages: "read", aged: "write", chosen: "write", evicted: "write" },
  params: { pairs: "u32", experts: "u32", keep: "u32" },
  inPlace: [["aged", "ages"]],
  faults: {
    index: ([index, position], { experts }) =>
      `\`indices\` must be from 0 to ${experts - 1}, got ${index} at position ${position}`,
  },
  // Bits of a word.
  constants: { gpu: { flagsTogether: 32 } },
  // wanted: whether each expert is chosen, on a GPU a bit. age: of each expert, 0 where it is not kept.
  // oldest: the experts that are kept, those to evict first.
  scratch: { cpu: { age: "u32", wanted: "u8", oldest: "u32" }, gpu: { wanted: "u32" } },
  launch: {
    cpu: ({ experts }: { experts: number }) => ({
      threadgroups: [1, 1, 1],
      scratch: { age: [experts], wanted: [experts], oldest: [experts] },
    }),
    gpu: ({ experts }, { constants: { flagsTogether } }) => ({
      threadgroups: [1, 1, 1],
      threadsPerThreadgroup: [SIMD, 1, 1],
      scratch: { wanted: [Math.ceil(experts / flagsTogether)] },
    }),
  },
});

/**
 * Decides which experts of a layer stay in memory, least recently used first: the chosen ones come in, and while there are
 * more than `keep`, those that were not chosen for the longest time go.
 *
 * - `indices` [N, topK] u32: the experts of all tokens, from `moeRoute`.
 * - `ages` [E] u32: by how many calls the last choice of each expert lies back, counted from 1; 0 for an expert that is
 *   not kept, so zeros to begin with. `aged`, the ages afterwards, may be exactly `ages`.
 * - `chosen` [E] u32: 1 for an expert that is among the indices, else 0. `evicted` [E] u32: 1 for one that was kept, or is
 *   chosen now, and does not stay.
 * - `keep`: how many stay at most. If more are chosen in one call, some of these are evicted at once; of equal ages the
 *   lower index goes first.
 *
 * The op only counts; `moePages` acts on `chosen` and `evicted`. Errors: `InvalidArgument` for shapes, dtypes, options and
 * overlap. An index of E or more fails the submission with `InvalidArgument`, naming the first such index and its position
 * in `indices`; nothing is written.
 */
export const moeKeep: MoeKeep = defineOp({
  name: "moeKeep",
  summary: "the experts that stay in memory, least recently used first",
  inputs: {
    indices: { dtype: ["u32"], shape: "N topK", doc: "the experts of each token" },
    ages: { dtype: ["u32"], shape: "E", doc: "calls since each expert was chosen, from 1; 0: not kept" },
  },
  outputs: {
    aged: { dtype: ["u32"], shape: "E", inPlace: ["ages"], doc: "the ages afterwards" },
    chosen: { dtype: ["u32"], shape: "E", doc: "1 for each expert that a token chose" },
    evicted: { dtype: ["u32"], shape: "E", doc: "1 for each expert that does not stay" },
  },
  params: { keep: { kind: "number", integer: true, min: 1, max: 65536, doc: "how many experts stay at most" } },
  rules({ tensors, dims, fail }) {
    if ((dims.E as number) > 65536) fail("ages", "have at most 65536 experts", dims.E);
    const pairs = tensors.indices?.size as number;
    if (pairs > 0x7fffffff) fail("indices", "have at most 2³¹ − 1 elements", pairs);
  },
  encode({ encoder, op, inputs: { indices, ages }, outputs: { aged, chosen, evicted }, options: { keep } }) {
    encoder.dispatch(moeKeepKernel, {
      op,
      variant: "u32",
      buffers: { indices, ages, aged, chosen, evicted },
      params: { pairs: indices.size, experts: ages.size, keep },
      sizes: { experts: ages.size },
    });
  },
});
