// The Metal kernels of this repository, for `metal-sim mutants` and `metal-sim coverage`: npm run metal-mutants and
// npm run metal-coverage.
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { build } from "tsup";
import type { KernelProject } from "../../packages/metal-sim/src/project.ts";
import { opPackages, root } from "../check/packages.ts";

const vitest = [process.execPath, "node_modules/vitest/vitest.mjs", "run"];

/** Files of a package's tests that are not suites; mutants of references run on no device. */
const otherTests = (name: string) =>
  readdirSync(join(root, "packages", name, "test"))
    .filter((file) => file.endsWith(".test.ts") && file !== "mutants.test.ts")
    .map((file) => `packages/${name}/test/${file}`);

/** The simulator's command as one file of JavaScript. */
async function bundleCommand(): Promise<string> {
  const folder = join(root, "packages", "metal-sim");
  await build({
    entry: { "mutants-cli": join(folder, "src", "main.ts") },
    outDir: join(folder, "build"),
    format: "esm",
    platform: "node",
    noExternal: [/./],
    banner: { js: 'import { createRequire } from "node:module"; const require = createRequire(import.meta.url);' },
    footer: { js: "process.exitCode = await main(process.argv.slice(2));" },
    config: false,
    silent: true,
    clean: false,
  });
  return join(folder, "build", "mutants-cli.js");
}

export const project: KernelProject = {
  root,
  packages: opPackages.map((name) => ({
    name,
    native: `packages/${name}/native`,
    suites: `packages/${name}/test/suites.ts`,
    sources: [...["src", "test", "native"].map((each) => `packages/${name}/${each}`), "packages/core/src/testing"],
  })),
  headers: ["packages/core/native"],
  build: "build/metal-mutants",
  explained: { mutants: "scripts/metal/metal_mutants.json", lines: "scripts/metal/metal_coverage.json" },
  tests: (packages) => [...vitest, "--testTimeout=600000", ...packages.map((name) => `packages/${name}/`)],
  otherTests: (name) => [...vitest, "--bail=1", "--reporter=json", "--silent=true", ...otherTests(name)],
  nodeArguments: ["--import", SOURCE_HOOKS],
  command: bundleCommand,
};
