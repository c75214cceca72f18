// Writes native/<kernel>.params.h for every kernel that a package's modules declare; `--check` only compares.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Kernel, paramsHeader } from "../packages/core/src/kernel.ts";

const packages = join(dirname(fileURLToPath(import.meta.url)), "..", "packages");
const check = process.argv.includes("--check");
const stale: string[] = [];

function isKernel(value: unknown): value is Kernel {
  return value !== null && typeof value === "object" && "bufferNames" in value && "launch" in value;
}

/** Folders with declarations, and where their headers go: the packages, and the kernels of core's own tests. */
const folders = readdirSync(packages)
  .filter((name) => name !== "core" && existsSync(join(packages, name, "native")))
  .map((name) => [join(packages, name, "src"), join(packages, name, "native")] as const);
const probes = join(packages, "core", "test", "kernels");

for (const [source, headers] of [...folders, [probes, probes] as const])
  for (const file of readdirSync(source).filter((entry) => entry.endsWith(".ts"))) {
    const module = (await import(pathToFileURL(join(source, file)).href)) as Record<string, unknown>;
    for (const kernel of Object.values(module).filter(isKernel)) {
      const path = join(headers, `${kernel.name}.params.h`);
      const text = paramsHeader(kernel);
      if (existsSync(path) && readFileSync(path, "utf8") === text) continue;
      if (check) stale.push(path);
      else writeFileSync(path, text);
    }
  }

if (stale.length > 0) {
  console.error(`stale params headers; run \`npm run gen\`:\n${stale.join("\n")}`);
  process.exit(1);
}
