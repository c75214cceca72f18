// A process that runs cases of suites on one device, for kernel_cases.test.ts and choose_kernel_cases.ts.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { Device } from "@mlxts/core";
import { metalTexts, type Suite, type SuiteCase, suiteCases } from "@mlxts/core/testing";
import { root, suitesModule } from "./packages.ts";

export interface KernelCase {
  package: string;
  /** `op dtype name`. */
  label: string;
  /** Instruction-set level of the CPU; absent: a simulated GPU. */
  level?: string;
  /** The simulated GPU runs kernels as their CUDA translations. */
  cuda?: true;
  /** A header, from the repository's root, that is to have no barriers. */
  withoutBarriers?: string;
}

export interface KernelResult extends KernelCase {
  failure?: string;
  /** Symbols of the kernels that it dispatched. */
  kernels: readonly string[];
  milliseconds: number;
}

const known = new Map<string, readonly SuiteCase[]>();

/** The cases of all suites of a package. */
export async function casesOf(name: string): Promise<readonly SuiteCase[]> {
  const { suites } = (await import(suitesModule(name))) as { suites: readonly Suite[] };
  const cases = known.get(name) ?? suites.flatMap((suite) => suiteCases(suite));
  known.set(name, cases);
  return cases;
}

export const labelOf = ({ op, dtype, name }: SuiteCase): string => `${op} ${dtype} ${name}`;

async function run(wanted: KernelCase): Promise<KernelResult> {
  const started = performance.now();
  const result = (more: { failure?: string; kernels?: readonly string[] }): KernelResult => ({
    ...wanted,
    kernels: [],
    ...more,
    milliseconds: performance.now() - started,
  });
  const found = (await casesOf(wanted.package)).find((each) => labelOf(each) === wanted.label);
  if (found === undefined)
    return result({
      failure: "there is no such case: choose another in kernel_cases.json, or run choose_kernel_cases.ts",
    });
  if (wanted.withoutBarriers !== undefined) {
    const path = join(root, wanted.withoutBarriers);
    metalTexts.set(path, readFileSync(path, "utf8").replaceAll(/\bthreadgroup_barrier\(.*?\);/g, ""));
  }
  process.env.MLXTS_METAL_SIM_TRANSLATION = wanted.cuda ? "cuda" : "";
  try {
    using device = wanted.level === undefined ? Device.open("metal") : Device.open("cpu", { level: wanted.level });
    const { kernels, outputs } = await found.run({ device, others: [] }, { trace: true });
    const failure = outputs.find(({ pass }) => !pass)?.message;
    return result({ ...(failure !== undefined && { failure }), kernels });
  } catch (error) {
    return result({ failure: (error as Error).message });
  }
}

process.on("message", async (wanted: KernelCase) => process.send?.(await run(wanted)));
process.on("disconnect", () => process.exit());
