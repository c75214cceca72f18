import { defineKernel, type Launch } from "@mlxts/core";
import { nnLibrary } from "./library.ts";

/** Elements of one threadgroup of an elementwise kernel: a small tensor is one threadgroup, which runs inline. */
const BLOCK = 4096;

/** A kernel `out[i] = f(a[i], b[i])` in blocks; the last block has `tail` elements. */
export function elementwiseKernel<A extends string, B extends string>(name: string, a: A, b: B) {
  return defineKernel({
    library: nnLibrary,
    name,
    variants: ["f32", "f16", "bf16"],
    buffers: { [a]: "read", [b]: "read", out: "write" } as { [K in A | B]: "read" } & { out: "write" },
    params: { block: "u32", tail: "u32" },
    inPlace: [
      ["out", a],
      ["out", b],
    ],
    launch: ({ size }: { size: number }): Launch => ({
      threadgroups: [Math.ceil(size / BLOCK), 1, 1],
      threadsPerThreadgroup: [256, 1, 1],
    }),
  });
}

/** The parameters of such a kernel for `size` elements. */
export const elementwiseParams = (size: number) => ({ block: BLOCK, tail: ((size - 1) % BLOCK) + 1 });
