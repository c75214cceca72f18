// npm run metal-coverage -- [--package NAME]
//
// Runs the packages' tests on the simulated Metal device, with kernels that count lines, and lists the lines of .metal
// files and their headers that nothing executed. Exceptions stand in metal_coverage.json with the reason.
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { executedLines, executedWords, missedLines, uncompiled } from "./metal_coverage_lines.ts";
import { metalFiles, root } from "./metal_files.ts";

const { values } = parseArgs({ options: { package: { type: "string" } } });
const kernels = metalFiles().filter((kernel) => !values.package || kernel.package === values.package);
const packages = [...new Set(kernels.map((kernel) => kernel.package))];
const folder = join(root, "build", "metal-coverage");
rmSync(folder, { recursive: true, force: true });
mkdirSync(folder, { recursive: true });

const vitest = [join(root, "node_modules", "vitest", "vitest.mjs"), "run", "--testTimeout=600000"];
const { status } = spawnSync(process.execPath, [...vitest, ...packages.map((name) => `packages/${name}/`)], {
  cwd: root,
  stdio: "inherit",
  env: { ...process.env, MLXTS_DEVICE: "metal", MLXTS_METAL_SIM: "1", MLXTS_METAL_SIM_COVERAGE: folder },
});
if (status !== 0) console.log("✗ tests fail");

const logs = readdirSync(folder)
  .filter((name) => name.endsWith(".lines"))
  .map((name) => readFileSync(join(folder, name), "utf8"));
const lines = executedLines(logs, kernels);
const exceptions = JSON.parse(readFileSync(join(root, "scripts", "metal", "metal_coverage.json"), "utf8"));
const read = (path: string) => readFileSync(join(root, path), "utf8");
const inScope = new Set(kernels.flatMap(({ includes }) => includes));
// A function that no kernel calls has no lines at all.
const named = executedWords(lines, read);
for (const path of inScope) {
  if (values.package && !path.startsWith(`packages/${values.package}/`)) continue;
  for (const line of uncompiled(read(path), lines.get(path), named))
    lines.set(path, (lines.get(path) ?? new Map<number, boolean>()).set(line, false));
}
const { missed, excepted, stale } = missedLines(
  lines,
  read,
  exceptions.filter(({ file }: { file: string }) => inScope.has(file)),
);

const never = kernels.filter(({ path }) => !lines.has(path));
for (const { path } of never) console.log(`✗ ${path} is compiled by no test`);
let executed = 0;
let total = 0;
for (const [path, all] of [...lines].sort(([a], [b]) => (a < b ? -1 : 1))) {
  const hit = [...all.values()].filter(Boolean).length;
  executed += hit;
  total += all.size;
  console.log(`${hit} of ${all.size} lines executed: ${path}`);
}
for (const { file, line, text } of missed) console.log(`✗ not executed: ${file}:${line}: ${text}`);
for (const { file, line, text, reason } of excepted)
  console.log(`  not executed: ${file}:${line}: ${text} — ${reason}`);
for (const { file, line } of stale)
  console.log(`✗ metal_coverage.json excepts what is executed or not there: ${file}: ${line}`);
console.log(`${executed} of ${total} lines of Metal kernels executed, ${excepted.length} excepted`);
process.exitCode = status !== 0 || never.length + missed.length + stale.length > 0 || total === 0 ? 1 : 0;
