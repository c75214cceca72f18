import { availableParallelism } from "node:os";
import { defineConfig } from "vitest/config";
import LongFirst from "./packages/test-kit/src/sequencer.ts";

export default defineConfig({
  resolve: { conditions: ["mlxts-source"] },
  ssr: { resolve: { conditions: ["mlxts-source"], externalConditions: ["mlxts-source"] } },
  test: {
    include: ["packages/*/test/**/*.{test,suite}.ts", "apps/*/test/**/*.test.ts", "scripts/**/*.test.ts"],
    // Runs the suites that *.suite.ts files export.
    runner: "packages/test-kit/src/runner.ts",
    setupFiles: ["packages/test-kit/src/setup.ts"],
    // Native addons and worker tests need processes of their own.
    pool: "forks",
    maxWorkers: availableParallelism(),
    sequence: { sequencer: LongFirst },
    testTimeout: 60_000,
    env: { MLXTS_POISON: "1" },
  },
});
