// Writes native/<kernel>.params.h for every kernel that a package's modules declare, their native/contracts.cpp, and for
// a package of ops src/signatures.ts, test/suites.ts, bench/benches.ts and the tables of its README; `--check` only compares.
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { contractsSource } from "../../packages/core/src/contract.ts";
import { type Kernel, type OpDescriptor, opSignatures, paramsHeader } from "../../packages/core/src/index.ts";
import { withTables } from "./op_tables.ts";
import { benchesModule, type KernelModule, type SuiteFile, suitesModule } from "./suites.ts";

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

/** Folders with declarations, and where their headers go: the packages, and the kernels of core's own tests. */
const folders = readdirSync(packages)
  .filter((name) => name !== "core" && existsSync(join(packages, name, "native")))
  .map((name) => [join(packages, name, "src"), join(packages, name, "native")] as const);
const probes = join(packages, "core", "test", "kernels");

/** Writes what C++ takes from a folder's kernels, and tells which of its modules declare any. */
async function writeHeaders(source: string, headers: string): Promise<KernelModule[]> {
  const modules: KernelModule[] = [];
  const declared = new Set<Kernel>();
  for (const file of readdirSync(source)
    .sort()
    .filter((entry) => entry.endsWith(".ts"))) {
    const module = (await import(pathToFileURL(join(source, file)).href)) as Record<string, unknown>;
    const kernels = Object.entries(module).filter(([, value]) => isKernel(value)) as [string, Kernel][];
    for (const [, kernel] of kernels) {
      update(join(headers, `${kernel.name}.params.h`), paramsHeader(kernel));
      declared.add(kernel);
    }
    if (kernels.length > 0) modules.push({ stem: file.slice(0, -3), kernels: kernels.map(([name]) => name) });
  }
  if (headers !== probes && declared.size > 0) update(join(headers, "contracts.cpp"), contractsSource([...declared]));
  return modules;
}

/** What stands before the ending in the names of a folder's files that have it. */
const stemsOf = (folder: string, ending: string): string[] =>
  readdirSync(folder)
    .filter((file) => file.endsWith(ending))
    .sort()
    .map((file) => file.slice(0, -ending.length));

/** The suites of a package, by what their files export. */
const suitesOf = (folder: string): SuiteFile[] =>
  stemsOf(folder, ".suite.ts").map((stem) => {
    const path = join(folder, `${stem}.suite.ts`);
    const name = /^export const (suites?)\b/m.exec(readFileSync(path, "utf8"))?.[1];
    if (!name) throw new Error(`${path} exports neither \`suite\` nor \`suites\``);
    return { stem, name: name as SuiteFile["name"] };
  });

await writeHeaders(probes, probes);
for (const [source, headers] of folders) {
  const modules = await writeHeaders(source, headers);
  const index = join(source, "index.ts");
  if (!existsSync(index)) continue;
  const ops = opsOf((await import(pathToFileURL(index).href)) as Record<string, unknown>);
  if (ops.length === 0) continue;
  update(join(source, "signatures.ts"), opSignatures(ops));
  const readme = join(source, "..", "README.md");
  update(readme, withTables(readFileSync(readme, "utf8"), ops));
  const tests = join(source, "..", "test");
  update(join(tests, "suites.ts"), suitesModule(suitesOf(tests), modules));
  const bench = join(source, "..", "bench");
  update(join(bench, "benches.ts"), benchesModule(stemsOf(bench, ".bench.ts")));
}

if (stale.length > 0) {
  console.error(`stale generated files; run \`npm run gen\`:\n${stale.join("\n")}`);
  process.exit(1);
}
