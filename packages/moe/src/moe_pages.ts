import { DTYPES, type Dtype, defineKernel, defineOp } from "@mlxts/core";
import { moeLibrary } from "./library.ts";
import type { MoePages } from "./signatures.ts";

const ALL_DTYPES = ["bf16", "f16", "f32", "u32", "i32", "u16", "i16", "u8", "i8"] as const satisfies readonly Dtype[];

export const moePagesKernel = defineKernel({
  library: moeLibrary,
  name: "moe_pages",
  variants: ["u32"],
  buffers: { stack: "read", starts: "read?", chosen: "read", resident: "write?" },
  anyByte: ["stack"],
  // expertBytes: of one expert. unit: bytes of an element, which `starts` counts. elements: of the stack.
  params: { experts: "u32", expertBytes: "u32", unit: "u32", elements: "u32", evicts: "u32" },
  faults: {
    start: ([start, expert], { elements, expertBytes, unit }) =>
      `\`starts\` must leave room for ${expertBytes / unit} of ${elements} elements, got ${start} at position ${expert}`,
  },
  constants: { gpu: { threads: 64 } },
  launch: {
    cpu: ({ experts }: { experts: number }) => ({ threadgroups: [experts, 1, 1] }),
    gpu: ({ experts }, { constants: { threads } }) => ({
      threadgroups: [Math.ceil(experts / threads), 1, 1],
      threadsPerThreadgroup: [threads, 1, 1],
    }),
  },
});

/**
 * Tells the operating system which experts of a mapped checkpoint will be needed, or are not needed for now. Contents never
 * change, whatever memory it is; what is not in memory when a kernel reads it is read from the file then.
 *
 * - `stack` [E, ..] of any dtype: the matrices of all experts. With `starts` [E] u32 and `elements` it is any tensor, and
 *   expert e has the `elements` elements from `starts[e]` on: a tensor of its own for each expert in a mapped file. Where
 *   `starts[e]` is `ELSEWHERE`, the stack does not hold expert e: nothing is done, and 0 bytes are resident.
 * - `chosen` [E] u32: not 0 for the experts that are meant, as `moeKeep` gives them.
 * - `advice`: `fetch` starts to read their pages and waits for none (`MADV_WILLNEED`). `evict` gives back the memory of
 *   those pages that no other expert shares (`MADV_PAGEOUT`, Linux); the system does so with files that the process's user
 *   owns or may write, and with pages that no other process maps, and leaves others alone.
 * - `resident` [E] u32, optional: how many bytes of each chosen expert were in memory before; 0 for the others. Of files that
 *   the process's user neither owns nor may write, Linux says that all are.
 *
 * Only the CPU device does this. A GPU's driver keeps whole buffers in memory: there the op does nothing, and all bytes are
 * resident. Where a system lacks an advice it does nothing either (macOS: `evict`). Errors: `InvalidArgument` for shapes,
 * dtypes, options and overlap; a start that leaves no room for an expert fails the submission.
 */
export const moePages: MoePages = defineOp({
  name: "moePages",
  summary: "fetches or evicts the pages of chosen experts",
  inputs: {
    stack: { dtype: ALL_DTYPES, shape: "...", doc: "the matrices of all experts: [E, ..], or with `starts` any shape" },
    starts: {
      dtype: ["u32"],
      shape: "E",
      optional: true,
      doc: "the first element of each expert; `ELSEWHERE` where another stack has it",
    },
    chosen: { dtype: ["u32"], shape: "E", doc: "not 0 for the experts that are meant" },
  },
  outputs: {
    resident: {
      dtype: ["u32"],
      shape: "E",
      optional: true,
      doc: "bytes of each chosen expert that were in memory before",
    },
  },
  params: {
    advice: { kind: "choice", values: ["fetch", "evict"], doc: "read their pages, or give them back" },
    elements: {
      kind: "number",
      integer: true,
      min: 1,
      max: 0x7fffffff,
      optional: true,
      doc: "of an expert, with `starts`",
    },
  },
  rules({ tensors, dims, options: { elements }, fail }) {
    const stack = tensors.stack as NonNullable<typeof tensors.stack>;
    const experts = dims.E as number;
    if ((tensors.starts === undefined) !== (elements === undefined))
      fail("elements", "be given with `starts`, and only then", elements);
    if (!tensors.starts && stack.shape[0] !== experts)
      fail("stack", `have ${experts} as its first dimension`, stack.shape);
    if (elements !== undefined && elements > stack.size)
      fail("elements", `be at most the ${stack.size} of \`stack\``, elements);
    const bytes = (elements ?? stack.size / experts) * DTYPES[stack.dtype].bytesPerElement;
    if (bytes > 0xffffffff) fail("stack", "have at most 2³² − 1 bytes for an expert", bytes);
    if (tensors.starts && stack.size > 0xffffffff) fail("stack", "have at most 2³² − 1 elements", stack.size);
  },
  encode({ encoder, op, inputs: { stack, starts, chosen }, outputs: { resident }, options: { advice, elements } }) {
    const unit = DTYPES[stack.dtype].bytesPerElement;
    const experts = chosen.size;
    encoder.dispatch(moePagesKernel, {
      op,
      variant: "u32",
      buffers: { stack, starts, chosen, resident },
      params: {
        experts,
        expertBytes: (elements ?? stack.size / experts) * unit,
        unit,
        elements: starts ? stack.size : 0,
        evicts: advice === "evict" ? 1 : 0,
      },
      sizes: { experts },
    });
  },
});
