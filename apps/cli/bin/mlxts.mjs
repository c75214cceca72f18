#!/usr/bin/env node
// In a clone the command runs on the sources; an installed package has only its bundle.
import { existsSync } from "node:fs";

const source = new URL("../src/main.ts", import.meta.url);
if (existsSync(source)) {
  await import("@mlxts/test-kit/build_missing");
  await import("@mlxts/test-kit/source_hooks");
}
const { main } = await import(existsSync(source) ? source.href : new URL("../dist/main.js", import.meta.url).href);
process.exitCode = await main(process.argv.slice(2));
