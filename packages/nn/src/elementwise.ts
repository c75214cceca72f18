import { defineKernel } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import { MOST_THREADS, rowThreads, vectorElements } from "./threads.ts";

/** Threadgroups of `block` elements; the last one has `tail`. */
const blocks = (size: number, block: number) => ({
  threadgroups: [Math.ceil(size / block), 1, 1] as const,
  params: { tail: ((size - 1) % block) + 1 },
});

/** A kernel `out[i] = f(a[i], b[i])`. */
export function elementwiseKernel<A extends string, B extends string>(name: string, a: A, b: B) {
  return defineKernel({
    library: nnLibrary,
    name,
    variants: ["f32", "f16", "bf16"],
    buffers: { [a]: "read", [b]: "read", out: "write" } as { [K in A | B]: "read" } & { out: "write" },
    params: {},
    inPlace: [
      ["out", a],
      ["out", b],
    ],
    launchParams: { cpu: { tail: "u32" }, gpu: { tail: "u32" } },
    // On a CPU a small tensor is one threadgroup, which runs inline.
    constants: { cpu: { block: 4096 }, gpu: { block: vectorElements(MOST_THREADS) } },
    launch: {
      cpu: ({ size }: { size: number }, { constants }) => blocks(size, constants.block),
      gpu: ({ size }, { constants }) => ({
        ...blocks(size, constants.block),
        threadsPerThreadgroup: [rowThreads(size), 1, 1],
      }),
    },
  });
}
