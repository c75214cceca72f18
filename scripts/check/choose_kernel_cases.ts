// Chooses the cases under `cpu` in kernel_cases.json: few and short ones, which together run every instance of the CPU
// kernels that the suites run and the cases under `everywhere` do not. Those, chosen by hand, also run each GPU kernel.
//   node scripts/run-source.mjs scripts/check/choose_kernel_cases.ts [PACKAGE...]
import { readFileSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { cpuLevels } from "@mlxts/core";
import { casesOf, type KernelResult, labelOf } from "./kernel_case.ts";
import { runCases } from "./kernel_workers.ts";
import { opPackages } from "./packages.ts";

const file = fileURLToPath(new URL("kernel_cases.json", import.meta.url));
const list = JSON.parse(readFileSync(file, "utf8")) as Record<"everywhere" | "cpu", Record<string, string[]>>;

/** The levels that run other code than the best: what they run has to be covered. */
const levels = cpuLevels().length > 1 ? cpuLevels().slice(1) : cpuLevels();

/** Labels that run what those of `kept` do not: always the one with the most new symbols a millisecond. */
function cover(results: readonly KernelResult[], kept: ReadonlySet<string>): string[] {
  const key = ({ level }: KernelResult, symbol: string) => `${level} ${symbol}`;
  const missing = new Set(results.flatMap((result) => result.kernels.map((symbol) => key(result, symbol))));
  const byLabel = new Map<string, KernelResult[]>();
  for (const result of results) byLabel.set(result.label, [...(byLabel.get(result.label) ?? []), result]);
  const chosen: string[] = [];
  const take = (label: string) => {
    for (const result of byLabel.get(label) ?? [])
      for (const symbol of result.kernels) missing.delete(key(result, symbol));
  };
  for (const label of byLabel.keys()) if (kept.has(label)) take(label);
  while (missing.size > 0) {
    let best: { label: string; value: number } | undefined;
    for (const [label, runs] of byLabel) {
      const gain = runs.flatMap((run) => run.kernels.filter((symbol) => missing.has(key(run, symbol)))).length;
      const value = gain / (20 + runs.reduce((sum, { milliseconds }) => sum + milliseconds, 0));
      if (gain > 0 && (best === undefined || value > best.value)) best = { label, value };
    }
    if (best === undefined) break;
    chosen.push(best.label);
    take(best.label);
  }
  return chosen;
}

const given = process.argv.slice(2);
for (const name of opPackages.filter((each) => given.length === 0 || given.includes(each))) {
  const labels = (await casesOf(name)).map(labelOf);
  const results = await runCases(labels.flatMap((label) => levels.map((level) => ({ package: name, label, level }))));
  const failed = results.filter(({ failure }) => failure !== undefined);
  if (failed.length > 0) throw new Error(`${failed[0]?.label}: ${failed[0]?.failure}`);
  const chosen = cover(results, new Set(list.everywhere[name]));
  list.cpu[name] = chosen;
  console.log(`${name}: ${chosen.length} of ${labels.length} cases`);
}
writeFileSync(file, `${JSON.stringify(list, null, 2)}\n`);
