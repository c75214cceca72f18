// Writes native/<kernel>.params.h for every kernel that a package's modules declare, and for the ops of a package
// src/signatures.ts and the tables of its README; `--check` only compares.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Kernel, type OpDescriptor, opSignatures, paramsHeader } from "../../packages/core/src/index.ts";
import { withTables } from "./op_tables.ts";

const packages = join(dirname(fileURLToPath(import.meta.url)), "..", "..", "packages");
const check = process.argv.includes("--check");
const stale: string[] = [];

function isKernel(value: unknown): value is Kernel {
  return value !== null && typeof value === "object" && "bufferNames" in value && "launch" in value;
}

/** Compares a generated file with its text, and writes it. */
function update(path: string, text: string): void {
  if (existsSync(path) && readFileSync(path, "utf8") === text) return;
  if (check) stale.push(path);
  else writeFileSync(path, text);
}

/** The descriptors of the ops that a module exports. */
const opsOf = (module: Record<string, unknown>): OpDescriptor[] =>
  Object.values(module).flatMap((value) =>
    typeof value === "function" && "op" in value ? [value.op as OpDescriptor] : [],
  );

/** Folders with declarations, and where their headers go: the packages, the kernels of core's own tests, and those that
 * measure what the machine can do. */
const folders = readdirSync(packages)
  .filter((name) => name !== "core" && name !== "test-kit" && existsSync(join(packages, name, "native")))
  .map((name) => [join(packages, name, "src"), join(packages, name, "native")] as const);
const probes = join(packages, "core", "test", "kernels");
const limits = join(packages, "test-kit");

for (const [source, headers] of [
  ...folders,
  [probes, probes] as const,
  [join(limits, "bench"), join(limits, "native")] as const,
])
  for (const file of readdirSync(source).filter((entry) => entry.endsWith(".ts"))) {
    const module = (await import(pathToFileURL(join(source, file)).href)) as Record<string, unknown>;
    for (const kernel of Object.values(module).filter(isKernel)) {
      update(join(headers, `${kernel.name}.params.h`), paramsHeader(kernel));
    }
  }

for (const [source] of folders) {
  const index = join(source, "index.ts");
  if (!existsSync(index)) continue;
  const ops = opsOf((await import(pathToFileURL(index).href)) as Record<string, unknown>);
  if (ops.length === 0) continue;
  update(join(source, "signatures.ts"), opSignatures(ops));
  const readme = join(source, "..", "README.md");
  update(readme, withTables(readFileSync(readme, "utf8"), ops));
}

if (stale.length > 0) {
  console.error(`stale generated files; run \`npm run gen\`:\n${stale.join("\n")}`);
  process.exit(1);
}
