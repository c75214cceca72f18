// Runs a TypeScript file of this repository on the packages' sources: node scripts/run-source.mjs FILE [ARGS]
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import "@mlxts/test-kit/source_hooks";

const [file, ...args] = process.argv.slice(2);
if (!file) {
  console.error("usage: node scripts/run-source.mjs FILE [ARGS]");
  process.exit(1);
}
process.argv.splice(1, process.argv.length - 1, resolve(file), ...args);
await import(pathToFileURL(resolve(file)).href);
