import { availableParallelism } from "node:os";
import { configDefaults, defineConfig } from "vitest/config";
import { leftOut } from "./packages/test-kit/src/rings.ts";
import LongFirst from "./packages/test-kit/src/sequencer.ts";

const all = ["packages/*/test/**/*.{test,suite}.ts", "apps/*/test/**/*.test.ts", "scripts/**/*.test.ts"];
/** Tests that leave their process as it was: it runs one file after another, and loads only once what they share. */
const together = ["packages/{norms,quant4,nn,delta-rule,moe,mla,models}/test/**/*.{test,suite}.ts"];
const exclude = [...configDefaults.exclude, ...leftOut];

export default defineConfig({
  resolve: { conditions: ["mlxts-source"] },
  ssr: { resolve: { conditions: ["mlxts-source"], externalConditions: ["mlxts-source"] } },
  test: {
    // Runs the suites that *.suite.ts files export.
    runner: "packages/test-kit/src/runner.ts",
    setupFiles: ["packages/test-kit/src/setup.ts"],
    // Native addons and worker tests need processes.
    pool: "forks",
    // References and devices make many arrays that live briefly. With room for them half as much time goes to collecting
    // young ones, and all of the heap is looked at a tenth as often.
    execArgv: ["--min-semi-space-size=32", "--max-semi-space-size=64", "--heap-growing-percent=1000"],
    maxWorkers: availableParallelism(),
    sequence: { sequencer: LongFirst },
    testTimeout: 60_000,
    env: { MLXTS_POISON: "1" },
    projects: [
      { extends: true, test: { name: "together", include: together, exclude, isolate: false } },
      { extends: true, test: { name: "alone", include: all, exclude: [...exclude, ...together] } },
    ],
  },
});
