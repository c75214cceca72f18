import { defineKernel, type Launch, type Machine, OLD_SCRATCH, oldLaunch } from "@mlxts/core";
import { nnLibrary } from "./library.ts";
import { rowThreads } from "./threads.ts";

/** Elements of one threadgroup. On a CPU a small tensor is one threadgroup, which runs inline; a GPU's thread has four. */
const block = ({ gpu }: Pick<Machine, "gpu">) => (gpu ? 1024 : 4096);

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
    scratch: OLD_SCRATCH,
    launch: oldLaunch(
      ({ size }: { size: number }, machine): Launch => ({
        threadgroups: [Math.ceil(size / block(machine)), 1, 1],
        threadsPerThreadgroup: [machine.gpu ? rowThreads(size, 256) : 256, 1, 1],
      }),
    ),
  });
}

/** The parameters of such a kernel for `size` elements. */
export const elementwiseParams = (size: number, machine: Pick<Machine, "gpu">) => ({
  block: block(machine),
  tail: ((size - 1) % block(machine)) + 1,
});
