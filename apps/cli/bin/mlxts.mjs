#!/usr/bin/env node
// In a clone the command runs on the sources; an installed package has only its bundle.
import { existsSync } from "node:fs";

async function program() {
  if (!existsSync(new URL("../src/main.ts", import.meta.url))) return import("../dist/main.js");
  await import("@mlxts/test-kit/build_missing");
  const { importBundled } = await import("@mlxts/test-kit/bundled");
  return importBundled("apps/cli/src/main.ts", { packages: true });
}
const { main } = await program();
process.exitCode = await main(process.argv.slice(2));
