import type { Device } from "@mlxts/core";
import { roundedInputs, runCase, type Suite } from "@mlxts/core/testing";
import { dtypesOf } from "../../packages/core/src/testing/conformance.ts";
import { suitesModule } from "./packages.ts";

/** A case in one dtype, and the symbols of the kernels that it dispatches on the device, or why it fails. */
export interface CaseDispatches {
  label: string;
  kernels: readonly string[];
  failure?: string;
}

/** Those of all cases of a package's suites, in the order of `suiteCases`. No reference is computed, which takes longest. */
export async function caseDispatches(name: string, device: Device): Promise<CaseDispatches[]> {
  const { suites } = (await import(suitesModule(name))) as { suites: readonly Suite[] };
  const found: CaseDispatches[] = [];
  for (const suite of suites)
    for (const testCase of suite.cases.filter(({ only }) => only === undefined || only === device.kind))
      for (const act of dtypesOf(suite, testCase)) {
        const label = `${suite.op.op.name} ${act} ${testCase.name}`;
        const inputs = roundedInputs(testCase, act);
        try {
          const { dispatches } = await runCase({ suite, testCase, act, inputs, expected: {} }, device, { trace: true });
          found.push({ label, kernels: [...new Set(dispatches.map(({ kernel }) => kernel))] });
        } catch (error) {
          found.push({ label, kernels: [], failure: (error as Error).message });
        }
      }
  return found;
}
