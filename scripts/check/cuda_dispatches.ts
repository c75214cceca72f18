// A process that runs all cases of a package's suites on a stand-in for NVIDIA's driver whose kernels do nothing, and
// writes the symbols of its CUDA kernels and those that the cases dispatch: for cuda_cases.test.ts.
import { brotliCompressSync, constants } from "node:zlib";
import { Device } from "@mlxts/core";
import { ptxArchives } from "@mlxts/core/testing";
import { contractOf } from "../../packages/core/src/contract.ts";
import { cudaKernels, cudaSymbols, emptyPtx } from "../native/cuda_kernels.ts";
import { caseDispatches } from "./case_dispatches.ts";

const [, , name = ""] = process.argv;
const shipped: string[] = [];
for (const one of await cudaKernels([name])) {
  const symbols = cudaSymbols(one);
  const texts = Object.fromEntries(symbols.map((symbol) => [symbol, emptyPtx(one, symbol)]));
  const json = JSON.stringify({ contract: contractOf(one.kernel, "cuda"), symbols: texts });
  ptxArchives.set(one.output, brotliCompressSync(json, { params: { [constants.BROTLI_PARAM_QUALITY]: 1 } }));
  shipped.push(...symbols);
}

using device = Device.open("cuda");
const cases = await caseDispatches(name, device);
const dispatched = [...new Set(cases.flatMap(({ kernels }) => kernels))];
const failures = cases.flatMap(({ label, failure }) => (failure === undefined ? [] : [`${label}: ${failure}`]));
process.stdout.write(JSON.stringify({ shipped, dispatched, failures }));
