// A process that runs all cases of a package's suites on a stand-in for NVIDIA's driver whose kernels do nothing, and
// writes the symbols of its CUDA kernels and those that the cases dispatch: for cuda_cases.test.ts.
import { brotliCompressSync, constants } from "node:zlib";
import { Device } from "@mlxts/core";
import { ptxArchives, roundedInputs, runCase, type Suite } from "@mlxts/core/testing";
import { contractOf } from "../../packages/core/src/contract.ts";
import { dtypesOf } from "../../packages/core/src/testing/conformance.ts";
import { cudaKernels, cudaSymbols, emptyPtx } from "../native/cuda_kernels.ts";
import { suitesModule } from "./packages.ts";

const [, , name = ""] = process.argv;
const shipped: string[] = [];
for (const one of await cudaKernels([name])) {
  const symbols = cudaSymbols(one);
  const texts = Object.fromEntries(symbols.map((symbol) => [symbol, emptyPtx(one, symbol)]));
  const json = JSON.stringify({ contract: contractOf(one.kernel, "cuda"), symbols: texts });
  ptxArchives.set(one.output, brotliCompressSync(json, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }));
  shipped.push(...symbols);
}

const { suites } = (await import(suitesModule(name))) as { suites: readonly Suite[] };
const dispatched = new Set<string>();
const failures: string[] = [];
using device = Device.open("cuda");
for (const suite of suites)
  for (const testCase of suite.cases)
    for (const act of dtypesOf(suite, testCase)) {
      const inputs = roundedInputs(testCase, act);
      try {
        const { dispatches } = await runCase({ suite, testCase, act, inputs, expected: {} }, device, { trace: true });
        for (const { kernel } of dispatches) dispatched.add(kernel);
      } catch (error) {
        failures.push(`${suite.op.op.name} ${act} ${testCase.name}: ${(error as Error).message}`);
      }
    }
process.stdout.write(JSON.stringify({ shipped, dispatched: [...dispatched], failures }));
