// A project of one package, to test the tool on: the norms of this repository.
import { fileURLToPath } from "node:url";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import type { KernelProject } from "../src/project.ts";

export const project: KernelProject = {
  root: fileURLToPath(new URL("../../..", import.meta.url)),
  packages: [
    {
      name: "norms",
      native: "packages/norms/native",
      suites: "packages/norms/test/suites.ts",
      sources: ["packages/norms/src", "packages/norms/test", "packages/norms/native"],
    },
  ],
  headers: ["packages/core/native"],
  build: "build/metal-mutants-of-norms",
  explained: { mutants: "none.json", lines: "none.json" },
  tests: () => [process.execPath, "--eval", "process.exitCode = 1"],
  otherTests: () => [process.execPath, "--eval", ""],
  nodeArguments: ["--import", SOURCE_HOOKS],
};
