#!/usr/bin/env node
// In a clone the command runs on the sources; an installed package has only its bundle.
import { existsSync } from "node:fs";

const args = process.argv.slice(2);

async function program() {
  const source = new URL("../src/main.ts", import.meta.url);
  if (!existsSync(source)) return "../dist/main.js";
  // The simulator starts it for each text that it compiles.
  if (args[0] === "compile") return (await import("@mlxts/test-kit/bundled")).bundled("packages/metal-sim/src/main.ts");
  // Others import projects in TypeScript.
  await import("@mlxts/test-kit/source_hooks");
  return source.href;
}
const { main } = await import(await program());
process.exitCode = await main(args);
