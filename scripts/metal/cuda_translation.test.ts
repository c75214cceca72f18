// Every kernel once as its CUDA translation, in the simulator's check mode. All cases of a package run so with
// MLXTS_METAL_SIM_TRANSLATION=cuda MLXTS_DEVICE=metal MLXTS_METAL_SIM=1.
import { execFile, fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { availableParallelism } from "node:os";
import { basename } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { clangMissing } from "@mlxts/test-kit/clang";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { describe, expect, it } from "vitest";
import { simulatorMissing } from "../../packages/core/src/native.ts";
import { kernelFiles } from "../../packages/metal-sim/src/kernel_files.ts";
import { root } from "../check/packages.ts";
import type { CudaCase, CudaResult } from "./cuda_case.ts";
import { project } from "./kernels.ts";

const CASES = JSON.parse(readFileSync(new URL("cuda_cases.json", import.meta.url), "utf8")) as Record<string, string[]>;
const WORKER = fileURLToPath(new URL("cuda_case.ts", import.meta.url));

const TRANSLATED = { MLXTS_METAL_SIM: "1", MLXTS_METAL_SIM_TRANSLATION: "cuda", MLXTS_METAL_SIM_CHECK: "1" };
/** Tests of kernels that only translations have, and that suites do not take: their calls are too small, or ask no bits. */
const OWN_TESTS = [
  "packages/nn/test/warpgroups.test.ts",
  "packages/quant4/test/warpgroups.test.ts",
  "packages/quant4/test/gathered_warpgroups.test.ts",
  "packages/quant4/test/matvec_row.test.ts",
  "packages/delta-rule/test/warpgroups.test.ts",
];

/** A process that takes cases until none is left. */
function worker(waiting: CudaCase[], done: (result: CudaResult) => void): Promise<void> {
  const child = fork(WORKER, {
    execArgv: ["--import", SOURCE_HOOKS],
    env: { ...process.env, ...TRANSLATED },
  });
  const next = () => {
    const one = waiting.shift();
    if (one) child.send(one);
    else child.disconnect();
  };
  next();
  return new Promise((resolve, reject) => {
    child.on("message", (result: CudaResult) => {
      done(result);
      next();
    });
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`a worker ended with ${code}`))));
  });
}

const missing = process.platform === "linux" ? (simulatorMissing() ?? clangMissing()) : "not on this platform";

describe.skipIf(missing !== undefined)(`CUDA translations${missing ? ` (skipped: ${missing})` : ""}`, () => {
  it("give what the suites demand, without a finding: each kernel once", { timeout: 600_000 }, async () => {
    const waiting = Object.entries(CASES).flatMap(([name, labels]) =>
      labels.map((label) => ({ package: name, label })),
    );
    const results: CudaResult[] = [];
    const add = (result: CudaResult) => void results.push(result);
    await Promise.all(Array.from({ length: availableParallelism() }, () => worker(waiting, add)));
    expect(results.filter(({ failure }) => failure !== undefined)).toEqual([]);
    const files = kernelFiles(project).map(({ path, kernel }) => ({ name: basename(path, ".metal"), kernel }));
    const names = files.map(({ kernel }) => kernel).sort((a, b) => b.length - a.length);
    const seen = new Set(
      results.flatMap(({ kernels }) => kernels.map((symbol) => names.find((name) => symbol.startsWith(`${name}_`)))),
    );
    expect(
      names.filter((name) => !seen.has(name)),
      "kernels without a case in cuda_cases.json",
    ).toEqual([]);
  });

  it("pass tests of their own", { timeout: 600_000 }, async () => {
    const args = ["node_modules/vitest/vitest.mjs", "run", "--testTimeout=300000", ...OWN_TESTS];
    const env = { ...process.env, ...TRANSLATED, MLXTS_DEVICE: "metal", NO_COLOR: "1" };
    const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, env });
    expect(stdout).toMatch(/Tests {2}\d+ passed \(\d+\)/);
  });

  it("are found out when a barrier is missing", { timeout: 600_000 }, async () => {
    const label = CASES.norms?.find((each) => each.startsWith("rmsNormAdd ")) as string;
    const results: CudaResult[] = [];
    const planted = { package: "norms", label, withoutBarriers: "packages/core/native/metal_kernel.h" };
    await worker([planted], (result) => void results.push(result));
    expect(results.map(({ failure }) => failure)).toEqual([expect.stringContaining("race: ")]);
  });
});
