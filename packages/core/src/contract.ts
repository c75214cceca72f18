// What a kernel's compiled code relies on, as one number: core compares that of its declaration with that of its library.
import { checkKernel, type Kernel, runLaunchRule } from "./kernel.ts";

const HASH_BASIS = 0x811c9dc5;
/** FNV-1a. */
const hashOf = (text: string, basis = HASH_BASIS): number => {
  let hash = basis;
  for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 0x01000193);
  return hash >>> 0;
};

/** Sizes up to so many show what a launch rule does, on either side of its thresholds. */
const SAMPLES = [2, 9, 33, 200, 1500, 5000, 20_000];

/** An object that has a number for each name. */
const numbersUpTo = (most: number) =>
  new Proxy({}, { get: (_, name) => (typeof name === "string" ? 1 + (hashOf(name, most) % most) : undefined) });

/** What the launch rule for a kind of device gives for made-up sizes: threadgroups, params and shapes of scratch. */
function launches(kernel: Kernel, kind: string, gpu: boolean): unknown[] {
  return SAMPLES.map((most) => {
    const sizes = numbersUpTo(most);
    try {
      return runLaunchRule("contract", kernel, sizes, { kind, gpu, limits: sizes as never }).given;
    } catch {
      return "refused";
    }
  });
}

/**
 * A number that changes with what the compiled code of a kernel takes from its declaration for CPUs, or for CUDA's GPUs:
 * places of buffers, params, constants, and scratch with the sizes that its launch rule gives.
 */
export function contractOf(kernel: Kernel, kind: "cpu" | "cuda" = "cpu"): number {
  checkKernel("contractOf", kernel);
  const { buffers, params, launchParams, constants, scratch } = kernel;
  const world = kind === "cpu" ? "cpu" : "gpu";
  const numbers = kind === "cuda" && constants.cuda ? { ...constants.gpu, ...constants.cuda } : constants[world];
  const own = [buffers, params, launchParams[world], constants.shared, numbers, scratch[world]];
  return hashOf(JSON.stringify([...own, launches(kernel, kind, kind !== "cpu")]));
}

/** The text of `native/contracts.cpp`: the numbers that the compiled kernels were made for. */
export const contractsSource = (kernels: readonly Kernel[]): string =>
  [
    "// Generated from the declarations of kernels; `npm run gen` rewrites it.",
    '#include "contract.h"',
    "",
    ...kernels.map((kernel) => `MLXTS_CONTRACT(${kernel.name}, ${contractOf(kernel)}u)`),
    "",
  ].join("\n");
