// `metal-sim coverage`: runs the tests of a project on the simulated Metal device, with kernels that count lines, and
// lists the lines of .metal files and their headers that nothing executed.
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { type Exception, executedLines, executedWords, type Lines, missedLines, uncompiled } from "./executed_lines.ts";
import { type KernelFile, kernelFiles } from "./kernel_files.ts";
import { type KernelProject, readProject, simulatedDevice } from "./project.ts";

/** Runs the tests; what the processes have written down, and whether all passed. */
function runTests(project: KernelProject, packages: readonly string[]): { logs: string[]; passed: boolean } {
  const folder = join(project.root, project.build, "lines");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const [program, ...args] = project.tests(packages) as [string, ...string[]];
  const { status } = spawnSync(program, args, {
    cwd: project.root,
    stdio: "inherit",
    env: { ...simulatedDevice(), MLXTS_METAL_SIM_COVERAGE: folder },
  });
  const files = readdirSync(folder).filter((name) => name.endsWith(".lines"));
  return { logs: files.map((name) => readFileSync(join(folder, name), "utf8")), passed: status === 0 };
}

/** Adds to executed lines the functions that no kernel calls: they have no lines at all. */
function addUncompiled(lines: Lines, paths: readonly string[], read: (path: string) => string): void {
  const named = executedWords(lines, read);
  for (const path of paths)
    for (const line of uncompiled(read(path), lines.get(path), named))
      lines.set(path, (lines.get(path) ?? new Map<number, boolean>()).set(line, false));
}

function exceptionsOf(project: KernelProject, inScope: ReadonlySet<string>): Exception[] {
  const path = join(project.root, project.explained.lines);
  const all = existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as Exception[]) : [];
  return all.filter(({ file }) => inScope.has(file));
}

/** Prints what was executed and what was not; whether nothing is amiss. */
function report(project: KernelProject, kernels: readonly KernelFile[], lines: Lines): boolean {
  const read = (path: string) => readFileSync(join(project.root, path), "utf8");
  const inScope = new Set(kernels.flatMap(({ includes }) => includes));
  const { missed, excepted, stale } = missedLines(lines, read, exceptionsOf(project, inScope));
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
    console.log(`✗ ${project.explained.lines} excepts what is executed or not there: ${file}: ${line}`);
  console.log(`${executed} of ${total} lines of Metal kernels executed, ${excepted.length} excepted`);
  return never.length + missed.length + stale.length === 0 && total > 0;
}

function testCoverage(project: KernelProject, only: string | undefined): number {
  const kernels = kernelFiles(project).filter((kernel) => !only || kernel.package === only);
  const { logs, passed } = runTests(project, [...new Set(kernels.map((kernel) => kernel.package))]);
  if (!passed) console.log("✗ tests fail");
  const lines = executedLines(logs, kernels);
  const folder = project.packages.find(({ name }) => name === only)?.native;
  const paths = [...new Set(kernels.flatMap(({ includes }) => includes))];
  // Of one package alone its own files: headers of all packages have functions that others call.
  const own = paths.filter((path) => folder === undefined || path.startsWith(`${folder}/`));
  addUncompiled(lines, own, (path) => readFileSync(join(project.root, path), "utf8"));
  return report(project, kernels, lines) && passed ? 0 : 1;
}

export function addCoverage(program: Command, finish: (code: number) => void): void {
  program
    .command("coverage")
    .description("run the tests of a project and list the lines of its kernels that nothing executed")
    .argument("<project>", "a module that exports `project`")
    .option("--package <name>", "only this package")
    .action(async (path: string, options: { package?: string }) =>
      finish(testCoverage(await readProject(path), options.package)),
    );
}
