// A process that runs cases of suites on CUDA translations in the simulator's check mode; for cuda_translation.test.ts.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { Device } from "@mlxts/core";
import { metalTexts, type Suite, type SuiteCase, suiteCases } from "@mlxts/core/testing";
import { root } from "../check/packages.ts";

export interface CudaCase {
  package: string;
  /** `op dtype name`. */
  label: string;
  /** A header, from the repository's root, that is to have no barriers. */
  withoutBarriers?: string;
}

export interface CudaResult extends CudaCase {
  failure?: string;
  /** Symbols of the kernels that it dispatched. */
  kernels: readonly string[];
}

const known = new Map<string, readonly SuiteCase[]>();
async function casesOf(name: string): Promise<readonly SuiteCase[]> {
  const path = pathToFileURL(join(root, "packages", name, "test", "suites.ts")).href;
  const { suites } = (await import(path)) as { suites: readonly Suite[] };
  const cases = known.get(name) ?? suites.flatMap((suite) => suiteCases(suite));
  known.set(name, cases);
  return cases;
}

async function run(wanted: CudaCase): Promise<CudaResult> {
  const found = (await casesOf(wanted.package)).find(
    ({ op, dtype, name }) => `${op} ${dtype} ${name}` === wanted.label,
  );
  if (found === undefined) return { ...wanted, failure: "there is no such case: choose another", kernels: [] };
  if (wanted.withoutBarriers !== undefined) {
    const path = join(root, wanted.withoutBarriers);
    metalTexts.set(path, readFileSync(path, "utf8").replaceAll(/\bthreadgroup_barrier\(.*?\);/g, ""));
  }
  try {
    using device = Device.open("metal");
    const { kernels, outputs } = await found.run({ device, others: [] }, { trace: true });
    const failure = outputs.find(({ pass }) => !pass)?.message;
    return { ...wanted, ...(failure !== undefined && { failure }), kernels };
  } catch (error) {
    return { ...wanted, failure: (error as Error).message, kernels: [] };
  }
}

process.on("message", async (wanted: CudaCase) => process.send?.(await run(wanted)));
process.on("disconnect", () => process.exit());
