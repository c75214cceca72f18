// The cases of kernel_cases.json wherever this machine runs kernels and `npm test` runs no suites: on the processor's
// other levels, on simulated Metal and as CUDA translations, both in the simulator's check mode.
// All cases of a package run as CUDA translations with MLXTS_METAL_SIM_TRANSLATION=cuda MLXTS_DEVICE=metal MLXTS_METAL_SIM=1.
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { promisify } from "node:util";
import { cpuLevels } from "@mlxts/core";
import { clangMissing } from "@mlxts/test-kit/clang";
import { firstRing } from "@mlxts/test-kit/rings";
import { describe, expect, it } from "vitest";
import { simulatorMissing } from "../../packages/core/src/native.ts";
import { kernelFiles } from "../../packages/metal-sim/src/kernel_files.ts";
import { project } from "../metal/kernels.ts";
import { runCases } from "./kernel_workers.ts";
import { opPackages, root } from "./packages.ts";

const chosen = (process.env.MLXTS_TEST_PACKAGES ?? "").split(",").filter(Boolean);
/** Core's headers are part of every kernel. */
const tested = (name: string) => chosen.length === 0 || chosen.includes("core") || chosen.includes(name);
const packages = opPackages.filter(tested);

const LIST = JSON.parse(readFileSync(new URL("kernel_cases.json", import.meta.url), "utf8")) as {
  everywhere: Record<string, string[]>;
  cpu: Record<string, string[]>;
};
const casesOf = (...lists: Record<string, string[]>[]) =>
  packages.flatMap((name) => lists.flatMap((list) => list[name] ?? []).map((label) => ({ package: name, label })));

const missing = process.platform === "linux" ? (simulatorMissing() ?? clangMissing()) : "not on this platform";
const SIMULATED = { MLXTS_METAL_SIM: "1", MLXTS_METAL_SIM_CHECK: "1", MLXTS_METAL_SIM_INSTANCES: "1" };

/** Tests of kernels that only translations have, and that suites do not take: their calls are too small, or ask no bits. */
const OWN_TESTS = [
  "packages/nn/test/warpgroups.test.ts",
  "packages/quant4/test/warpgroups.test.ts",
  "packages/quant4/test/gathered_warpgroups.test.ts",
  "packages/quant4/test/matvec_row.test.ts",
  "packages/delta-rule/test/warpgroups.test.ts",
].filter((path) => packages.some((name) => path.startsWith(`packages/${name}/`)));

const failed = (results: Awaited<ReturnType<typeof runCases>>) =>
  results.filter(({ failure }) => failure !== undefined);

it("every package with kernels has cases", () => {
  expect(Object.keys(LIST.everywhere).sort()).toEqual([...opPackages].sort());
});

const others = firstRing ? cpuLevels().slice(1) : [];

/** All of them at once: a process that runs a package's cases has loaded its suites, which takes seconds. */
const results = (() => {
  let running: ReturnType<typeof runCases> | undefined;
  const onLevels = others.flatMap((level) => casesOf(LIST.everywhere, LIST.cpu).map((each) => ({ ...each, level })));
  const onGpus = missing ? [] : casesOf(LIST.everywhere).flatMap((each) => [each, { ...each, cuda: true as const }]);
  return () => {
    running ??= runCases([...onLevels, ...onGpus], missing ? {} : SIMULATED);
    return running;
  };
})();

it.skipIf(others.length === 0 || packages.length === 0)(
  "each instance of a CPU kernel that suites run gives what its suite demands, at the processor's other levels",
  { timeout: 600_000 },
  async () => {
    const run = (await results()).filter(({ level }) => level !== undefined);
    expect(failed(run)).toEqual([]);
    expect(run.length).toBe(others.length * casesOf(LIST.everywhere, LIST.cpu).length);
  },
);

describe.skipIf(missing !== undefined || packages.length === 0)(
  `each GPU kernel${missing ? ` (skipped: ${missing})` : ""}`,
  () => {
    const files = () => kernelFiles(project).filter(({ package: name }) => packages.includes(name));

    it.each([
      ["on simulated Metal", undefined],
      ["as its CUDA translation", true],
    ])("gives what its suite demands, without a finding, %s", { timeout: 600_000 }, async (_, wanted) => {
      const run = (await results()).filter(({ level, cuda }) => level === undefined && cuda === wanted);
      expect(failed(run)).toEqual([]);
      const names = files()
        .map(({ path }) => basename(path, ".metal"))
        .sort((a, b) => b.length - a.length);
      const seen = new Set(
        run.flatMap(({ kernels }) => kernels.map((symbol) => names.find((name) => symbol.startsWith(`${name}_`)))),
      );
      expect(
        names.filter((name) => !seen.has(name)),
        "kernels without a case in kernel_cases.json",
      ).toEqual([]);
    });

    it.skipIf(OWN_TESTS.length === 0)(
      "passes tests of its own as a CUDA translation",
      { timeout: 600_000 },
      async () => {
        const args = ["node_modules/vitest/vitest.mjs", "run", "--testTimeout=300000", ...OWN_TESTS];
        const cuda = { MLXTS_METAL_SIM_TRANSLATION: "cuda", MLXTS_DEVICE: "metal" };
        const env = { ...process.env, ...SIMULATED, ...cuda, NO_COLOR: "1" };
        const { stdout } = await promisify(execFile)(process.execPath, args, { cwd: root, env });
        expect(stdout).toMatch(/Tests {2}\d+ passed \(\d+\)/);
      },
    );

    it.skipIf(!packages.includes("norms"))("is found out when a barrier is missing", { timeout: 600_000 }, async () => {
      const label = LIST.everywhere.norms?.find((each) => each.startsWith("rmsNormAdd ")) as string;
      const withoutBarriers = "packages/core/native/metal_kernel.h";
      const found = await runCases([{ package: "norms", label, cuda: true, withoutBarriers }], SIMULATED);
      expect(found.map(({ failure }) => failure)).toEqual([expect.stringContaining("race: ")]);
    });
  },
);
