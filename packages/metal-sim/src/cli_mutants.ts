// `metal-sim mutants`: seeds faults into the .metal files of a project and their headers, one at a time (mutations.ts),
// and runs the cases of its suites on the simulated device until one fails.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Command } from "commander";
import { Jobs } from "./mutant_jobs.ts";
import { Judge } from "./mutant_judge.ts";
import { allMutants, explanationsOf, keyOf, type Mutant, showMutant } from "./mutants.ts";
import { type KernelProject, readProject } from "./project.ts";

interface Options {
  op?: string;
  file?: string;
  bounds?: true;
  jobs: string;
  budget: string;
  survivors?: true;
  verbose?: true;
  list?: true;
}

const survivorsPath = ({ root, build }: KernelProject) => join(root, build, "survivors.json");

function chosenMutants(project: KernelProject, all: readonly Mutant[], { bounds, file, survivors }: Options): Mutant[] {
  const last = survivors ? new Set(JSON.parse(readFileSync(survivorsPath(project), "utf8")) as string[]) : undefined;
  return all.filter(
    (mutant) =>
      (mutant.kind === "bound") === (bounds ?? false) &&
      (!file || mutant.file.includes(file)) &&
      (!last || last.has(keyOf(mutant))),
  );
}

/** Judges mutants and says what survives; the number of failures. */
async function judgeAll(
  judge: Judge,
  mutants: readonly Mutant[],
  reasons: ReadonlyMap<string, string>,
  options: Options,
): Promise<{ survivors: Mutant[]; unexplained: number }> {
  const started = performance.now();
  const waiting = [...mutants];
  const survivors: Mutant[] = [];
  const tally = new Map<string, { killed: number; survived: number }>();
  let unexplained = 0;
  const judgeNext = async (mutant: Mutant) => {
    const begun = performance.now();
    const by = await judge.judge(mutant, Number(options.budget));
    const seconds = ((performance.now() - begun) / 1000).toFixed(1);
    if (options.verbose) console.log(`${seconds} s ${showMutant(mutant)}\n    ${by ?? "survives"}`);
    const counts = tally.get(mutant.file) ?? { killed: 0, survived: 0 };
    tally.set(mutant.file, counts);
    const reason = reasons.get(keyOf(mutant));
    if (by !== undefined) {
      counts.killed++;
      if (reason !== undefined) console.log(`  ${showMutant(mutant)}\n    is explained, but killed by ${by}`);
      return;
    }
    counts.survived++;
    survivors.push(mutant);
    if (reason === undefined) unexplained++;
    console.log(
      `${reason === undefined ? "✗" : "✓"} survives: ${showMutant(mutant)}${reason ? `\n    ${reason}` : ""}`,
    );
  };
  await Promise.all(
    Array.from({ length: Number(options.jobs) }, async () => {
      for (let mutant = waiting.shift(); mutant; mutant = waiting.shift()) await judgeNext(mutant);
    }),
  );
  for (const [file, { killed, survived }] of [...tally].sort(([a], [b]) => (a < b ? -1 : 1)))
    console.log(`${file}: ${killed} killed, ${survived} survived`);
  console.log(
    `${mutants.length} mutants, ${mutants.length - survivors.length} killed, ` +
      `${survivors.length - unexplained} explained, ${unexplained} unexplained, ` +
      `${((performance.now() - started) / 1000).toFixed(0)} s`,
  );
  return { survivors, unexplained };
}

async function testMutants(project: KernelProject, options: Options): Promise<number> {
  const all = allMutants(project);
  const { reasons, stale } = explanationsOf(project, all);
  for (const { file, line, mutation } of stale)
    console.log(`✗ ${project.explained.mutants} explains what does not exist: ${file}: ${line}: ${mutation}`);
  let mutants = chosenMutants(project, all, options);
  if (options.list) {
    for (const mutant of mutants) process.stdout.write(`${mutant.kind.padEnd(8)} ${showMutant(mutant)}\n`);
    process.stdout.write(`${mutants.length} mutants\n`);
    return 0;
  }
  const command = await project.command?.();
  const { nodeArguments = [] } = project;
  const jobs = new Jobs(Number(options.jobs), { command, nodeArguments });
  try {
    const judge = new Judge(project, jobs, { command, op: options.op });
    await judge.measure(mutants);
    if (options.op) mutants = mutants.filter((mutant) => judge.reaches(mutant));
    const { survivors, unexplained } = await judgeAll(judge, mutants, reasons, options);
    mkdirSync(join(project.root, project.build), { recursive: true });
    writeFileSync(survivorsPath(project), JSON.stringify(survivors.map(keyOf)));
    return unexplained + stale.length + judge.failing > 0 ? 1 : 0;
  } finally {
    jobs.close();
  }
}

export function addMutants(program: Command, finish: (code: number) => void): void {
  program
    .command("mutants")
    .description("seed faults into the kernels of a project, one at a time: a test must find each")
    .argument("<project>", "a module that exports `project`")
    .option("--op <name>", "only cases of this op judge")
    .option("--file <part>", "only faults in files whose path contains this")
    .option("--bounds", "comparisons off by one instead of the other faults: most that survive change nothing")
    .option("--jobs <n>", "processes at a time", "2")
    .option("--budget <seconds>", "time for the cases that judge one fault", "40")
    .option("--survivors", "only those that survived the last time")
    .option("--verbose", "say what finds each fault")
    .option("--list", "only list the faults")
    .action(async (path: string, options: Options) => finish(await testMutants(await readProject(path), options)));
}
