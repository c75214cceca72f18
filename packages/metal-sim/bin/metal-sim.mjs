#!/usr/bin/env node
// In a clone the command runs on the sources; an installed package has only its bundle.
import { existsSync } from "node:fs";

const args = process.argv.slice(2);

async function program() {
  const source = new URL("../src/main.ts", import.meta.url);
  if (!existsSync(source)) return import("../dist/main.js");
  // These import projects, which may be in TypeScript.
  if (["mutants", "coverage"].includes(args[0])) {
    await import("@mlxts/test-kit/source_hooks");
    return import(source.href);
  }
  return (await import("@mlxts/test-kit/bundled")).importBundled("packages/metal-sim/src/main.ts");
}
const { main } = await program();
process.exitCode = await main(args);
