// Looks for a test that rejects a mutant: cases of suites that run the changed kernels, then the packages' other tests.
import { join } from "node:path";
import { type KernelFile, kernelFiles } from "./kernel_files.ts";
import { type Baseline, type Jobs, readBaseline, runOtherTests } from "./mutant_jobs.ts";
import type { BaselineCase, Group, Stage } from "./mutant_worker.ts";
import type { Mutant } from "./mutants.ts";
import type { KernelPackage, KernelProject } from "./project.ts";

const packagesOf = ({ kernels }: Mutant) => [...new Set(kernels.map((kernel) => kernel.package))];

/** For each of the kernels a few cases: they tell most. */
function few(groups: readonly Group[]): Group[] {
  const seen = new Set<string>();
  return groups.flatMap(({ cases, symbols }) => {
    if (Object.keys(symbols).every((path) => seen.has(path))) return [];
    for (const path of Object.keys(symbols)) seen.add(path);
    return [{ cases: cases.slice(0, 4), symbols }];
  });
}

export class Judge {
  /** Cases and tests that fail without any mutation: they judge nothing. */
  failing = 0;
  private readonly project: KernelProject;
  private readonly jobs: Jobs;
  private readonly command: string | undefined;
  /** Only cases of this op. */
  private readonly op: string | undefined;
  private readonly packages: ReadonlyMap<string, KernelPackage>;
  private readonly kernelNames: readonly (readonly [name: string, file: KernelFile])[];
  private readonly baselines = new Map<string, Baseline>();
  private readonly unmutated = new Map<string, Promise<string | undefined>>();
  /** How many mutants of a file a package has killed, by `FILE PACKAGE`. */
  private readonly packageKills = new Map<string, number>();

  constructor(project: KernelProject, jobs: Jobs, options: { command?: string | undefined; op?: string | undefined }) {
    this.project = project;
    this.jobs = jobs;
    this.command = options.command;
    this.op = options.op;
    this.packages = new Map(project.packages.map((each) => [each.name, each]));
    this.kernelNames = kernelFiles(project).map((file) => [`${file.package} ${file.kernel}`, file] as const);
  }

  /** Measures the cases of the packages that judge these mutants. */
  async measure(mutants: readonly Mutant[]): Promise<void> {
    for (const name of new Set(mutants.flatMap(packagesOf))) {
      const baseline = await readBaseline(this.project, this.packages.get(name) as KernelPackage, this.jobs);
      this.baselines.set(name, baseline);
      const broken = baseline.cases.filter(({ failure }) => failure !== undefined);
      this.failing += broken.length;
      if (broken.length > 0)
        console.log(
          `✗ ${name}: ${broken.length} cases fail as they are, and judge nothing; the first is ` +
            `${broken[0]?.name}: ${broken[0]?.failure}`,
        );
    }
  }

  /** Whether any case runs what a mutant changes. */
  reaches(mutant: Mutant): boolean {
    return packagesOf(mutant).some((name) => this.groupsFor(name, mutant).length > 0);
  }

  /** The file that a symbol's kernel is in: the one with the longest name that fits. */
  private fileOf(name: string, symbol: string): KernelFile | undefined {
    const fits = this.kernelNames.filter(([key]) => `${name} ${symbol}`.startsWith(`${key}_`));
    return fits.sort(([a], [b]) => b.length - a.length)[0]?.[1];
  }

  /** The package's cases that run one of the kernels, by the instances that they run; the likeliest to fail first. */
  private groupsFor(name: string, { kernels, file }: Mutant): Group[] {
    const { cases, kills } = this.baselines.get(name) as Baseline;
    const paths = new Set(kernels.map(({ path }) => path));
    // What has found faults in the file before is likely to find the next; else the cheapest.
    const order = cases
      .map((_, i) => i)
      .sort(
        (a, b) =>
          (kills.get(`${file} ${b}`) ?? 0) - (kills.get(`${file} ${a}`) ?? 0) ||
          (cases[a]?.ms ?? 0) - (cases[b]?.ms ?? 0),
      );
    const groups = new Map<string, { cases: number[]; symbols: Record<string, string[]> }>();
    for (const i of order) {
      const { op, kernels: all } = cases[i] as BaselineCase;
      if (this.op && op !== this.op) continue;
      const own = all.filter((symbol) => paths.has(this.fileOf(name, symbol)?.path ?? "")).sort();
      if (own.length === 0) continue;
      const group = groups.get(own.join()) ?? { cases: [], symbols: {} };
      if (group.cases.length === 0)
        for (const symbol of own) {
          const path = join(this.project.root, this.fileOf(name, symbol)?.path as string);
          group.symbols[path] = [...(group.symbols[path] ?? []), symbol];
        }
      group.cases.push(i);
      groups.set(own.join(), group);
    }
    return [...groups.values()];
  }

  /** What of the package's other tests fails; those that fail as they are say nothing. */
  private async otherTests(name: string, texts: Record<string, string>): Promise<string | undefined> {
    const run = (changed: Record<string, string>) => runOtherTests(this.project, name, changed, this.command);
    let before = this.unmutated.get(name);
    if (!before) {
      before = run({});
      this.unmutated.set(name, before);
      const failure = await before;
      if (failure) console.log(`✗ ${name}: ${failure}, as it is: these tests judge nothing`);
      if (failure) this.failing++;
    }
    return (await before) === undefined ? run(texts) : undefined;
  }

  /** What killed a mutant, or nothing. `budget` is the time in seconds for the cases of a stage. */
  async judge(mutant: Mutant, budget: number): Promise<string | undefined> {
    const { root } = this.project;
    const texts = { [join(root, mutant.file)]: mutant.text };
    const stages: Stage[] = mutant.kind === "barrier" ? ["check", "schedules"] : ["forward", "check"];
    // Where a file's mutants were killed before, the next may be.
    const killsIn = (name: string) => this.packageKills.get(`${mutant.file} ${name}`) ?? 0;
    const names = packagesOf(mutant).sort((a, b) => killsIn(b) - killsIn(a));
    let complete = true;
    /** What some of the cases say. */
    const ask = async (choose: (groups: Group[]) => Group[], seconds: number): Promise<string | undefined> => {
      complete = true;
      for (const name of names) {
        const { cases, kills } = this.baselines.get(name) as Baseline;
        const suites = join(root, (this.packages.get(name) as KernelPackage).suites);
        const groups = choose(this.groupsFor(name, mutant));
        const request = { type: "mutant", suites, texts, groups, stages, stageMs: seconds * 1000 } as const;
        const reply = await this.jobs.judge(request, (index) => 10_000 + 100 * (cases[index]?.ms ?? 0));
        if (reply.type === "killed") {
          const key = `${mutant.file} ${reply.case}`;
          kills.set(key, (kills.get(key) ?? 0) + 1);
          this.packageKills.set(`${mutant.file} ${name}`, killsIn(name) + 1);
          return reply.by;
        }
        complete &&= reply.complete;
      }
      return undefined;
    };
    const every = (groups: Group[]) => groups;
    let by = (await ask(few, 20)) ?? (await ask(every, Math.min(8, budget)));
    for (const name of names) by ??= await this.otherTests(name, texts);
    // The cheapest first: cases once more, those that the time did not suffice for.
    return by ?? (complete ? undefined : ask(every, budget));
  }
}
