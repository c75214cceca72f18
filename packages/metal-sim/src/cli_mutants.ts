// npm run metal-mutants -- [--op NAME] [--file PART] [--bounds] [--jobs N] [--budget SECONDS] [--survivors] [--verbose]
//   [--list]
//
// Seeds faults into the .metal files and their headers, one at a time (metal_mutations.ts), and runs the suites' cases on
// the simulated device until one fails. What survives must stand in metal_mutants.json with the reason. With --bounds
// comparisons off by one instead of the other faults: a help for finding cases, for most that survive only do work that
// changes nothing.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { type MetalFile, metalFiles, root } from "./metal_files.ts";
import { type Baseline, bundleCompiler, Jobs, readBaseline, runTests } from "./metal_mutant_jobs.ts";
import type { BaselineCase, Group, Stage } from "./metal_mutant_worker.ts";
import { type Mutation, mutationsOf, staleHeaders } from "./metal_mutations.ts";

const { values } = parseArgs({
  options: {
    op: { type: "string" },
    file: { type: "string" },
    bounds: { type: "boolean", default: false },
    jobs: { type: "string", default: "2" },
    budget: { type: "string", default: "40" },
    survivors: { type: "boolean" },
    verbose: { type: "boolean" },
    list: { type: "boolean" },
  },
});

interface Mutant extends Omit<Mutation, "text"> {
  file: string;
  /** The line, trimmed, as it was. */
  source: string;
  text: string;
  /** The kernels that are compiled from the file. */
  kernels: readonly MetalFile[];
}

interface Explanation {
  file: string;
  line: string;
  mutation: string;
  reason: string;
}

const explanationsPath = join(root, "scripts", "metal", "metal_mutants.json");
const folder = join(root, "build", "metal-mutants");
const survivorsPath = join(folder, "survivors.json");
const read = (path: string) => readFileSync(join(root, path), "utf8");
const keyOf = ({ file, source, what }: Pick<Mutant, "file" | "source" | "what">) => `${file}\n${source}\n${what}`;

function allMutants(): Mutant[] {
  const files = metalFiles();
  const paths = [...new Set(files.flatMap(({ includes }) => includes))];
  return paths.flatMap((file) => {
    const kernels = files.filter(({ includes }) => includes.includes(file));
    const texts = [...new Set(kernels.flatMap(({ includes }) => includes))].filter((path) => path !== file).map(read);
    const source = read(file);
    const lines = source.split("\n");
    const used = (word: string) => texts.some((text) => new RegExp(`\\b${word}\\b`).test(text));
    const found = file.endsWith(".params.h") ? staleHeaders(source, used) : mutationsOf(source, texts);
    return found.map((mutation) => ({
      ...mutation,
      file,
      source: (lines[mutation.line - 1] as string).trim(),
      kernels,
    }));
  });
}

const explanations = JSON.parse(readFileSync(explanationsPath, "utf8")) as Explanation[];
const explained = new Map(
  explanations.map((e) => [keyOf({ file: e.file, source: e.line, what: e.mutation }), e.reason]),
);
const all = allMutants();
const known = new Set(all.map(keyOf));
const stale = explanations.filter((e) => !known.has(keyOf({ file: e.file, source: e.line, what: e.mutation })));
for (const { file, line, mutation } of stale)
  console.log(`✗ metal_mutants.json explains what does not exist: ${file}: ${line}: ${mutation}`);

const survivedBefore = () => new Set(JSON.parse(readFileSync(survivorsPath, "utf8")) as string[]);
const last = values.survivors ? survivedBefore() : undefined;
let mutants = all.filter(
  (mutant) =>
    (mutant.kind === "bound") === values.bounds &&
    (!values.file || mutant.file.includes(values.file)) &&
    (!last || last.has(keyOf(mutant))),
);
const show = ({ file, line, source, what }: Mutant) => `${file}:${line}: ${what}: ${source}`;

if (values.list) {
  for (const mutant of mutants) console.log(`${mutant.kind.padEnd(8)} ${show(mutant)}`);
  await new Promise((resolve) => process.stdout.write(`${mutants.length} mutants\n`, resolve));
  process.exit();
}

const command = await bundleCompiler();
const jobs = new Jobs(Number(values.jobs), command);
const baselines = new Map<string, Baseline>();
const wanted = [...new Set(mutants.flatMap(({ kernels }) => kernels.map((kernel) => kernel.package)))];
let failing = 0;
for (const name of wanted) {
  const baseline = await readBaseline(name, folder, jobs);
  baselines.set(name, baseline);
  const broken = baseline.cases.filter(({ failure }) => failure !== undefined);
  failing += broken.length;
  if (broken.length > 0)
    console.log(
      `✗ ${name}: ${broken.length} cases fail as they are, and judge nothing; the first is ` +
        `${broken[0]?.name}: ${broken[0]?.failure}`,
    );
}

const kernelNames = metalFiles().map((file) => [`${file.package} ${file.kernel}`, file] as const);
/** The file that a symbol's kernel is in: the one with the longest name that fits. */
function fileOf(name: string, symbol: string): MetalFile | undefined {
  const fits = kernelNames.filter(([key]) => `${name} ${symbol}`.startsWith(`${key}_`));
  return fits.sort(([a], [b]) => b.length - a.length)[0]?.[1];
}

/** The package's cases that run one of the kernels, by the instances that they run; the likeliest to fail first. */
function groupsFor(name: string, { kernels, file }: Mutant): Group[] {
  const { cases, kills } = baselines.get(name) as Baseline;
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
    if (values.op && op !== values.op) continue;
    const own = all.filter((symbol) => paths.has(fileOf(name, symbol)?.path ?? "")).sort();
    if (own.length === 0) continue;
    const group = groups.get(own.join()) ?? { cases: [], symbols: {} };
    if (group.cases.length === 0)
      for (const symbol of own) {
        const path = join(root, fileOf(name, symbol)?.path as string);
        group.symbols[path] = [...(group.symbols[path] ?? []), symbol];
      }
    group.cases.push(i);
    groups.set(own.join(), group);
  }
  return [...groups.values()];
}

const packagesOf = ({ kernels }: Mutant) => [...new Set(kernels.map((kernel) => kernel.package))];
if (values.op)
  mutants = mutants.filter((mutant) => packagesOf(mutant).some((name) => groupsFor(name, mutant).length > 0));

/** For each of the kernels a few cases: they tell most. */
function few(groups: readonly Group[]): Group[] {
  const seen = new Set<string>();
  return groups.flatMap(({ cases, symbols }) => {
    if (Object.keys(symbols).every((path) => seen.has(path))) return [];
    for (const path of Object.keys(symbols)) seen.add(path);
    return [{ cases: cases.slice(0, 4), symbols }];
  });
}

const unmutated = new Map<string, Promise<string | undefined>>();
/** What of the package's other tests fails; those that fail as they are say nothing. */
async function otherTests(name: string, texts: Record<string, string>): Promise<string | undefined> {
  let before = unmutated.get(name);
  if (!before) {
    before = runTests(name, {}, folder, command);
    unmutated.set(name, before);
    const failure = await before;
    if (failure) console.log(`✗ ${name}: ${failure}, as it is: these tests judge nothing`);
    if (failure) failing++;
  }
  return (await before) === undefined ? runTests(name, texts, folder, command) : undefined;
}

const packageKills = new Map<string, number>();
/** What killed a mutant, or nothing. */
async function judge(mutant: Mutant): Promise<string | undefined> {
  const texts = { [join(root, mutant.file)]: mutant.text };
  const stages: Stage[] = mutant.kind === "barrier" ? ["check", "schedules"] : ["forward", "check"];
  // Where a file's mutants were killed before, the next may be.
  const killsIn = (name: string) => packageKills.get(`${mutant.file} ${name}`) ?? 0;
  const packages = packagesOf(mutant).sort((a, b) => killsIn(b) - killsIn(a));
  const killedIn = (name: string) => packageKills.set(`${mutant.file} ${name}`, killsIn(name) + 1);
  let complete = true;
  /** What some of the cases say. */
  const ask = async (choose: (groups: Group[]) => Group[], seconds: number): Promise<string | undefined> => {
    complete = true;
    for (const name of packages) {
      const { cases, kills } = baselines.get(name) as Baseline;
      const groups = choose(groupsFor(name, mutant));
      const request = { type: "mutant", package: name, texts, groups, stages, stageMs: seconds * 1000 } as const;
      const reply = await jobs.judge(request, (index) => 10_000 + 100 * (cases[index]?.ms ?? 0));
      if (reply.type === "killed") {
        const key = `${mutant.file} ${reply.case}`;
        kills.set(key, (kills.get(key) ?? 0) + 1);
        killedIn(name);
        return reply.by;
      }
      complete &&= reply.complete;
    }
    return undefined;
  };
  const every = (groups: Group[]) => groups;
  let by = (await ask(few, 20)) ?? (await ask(every, Math.min(8, Number(values.budget))));
  for (const name of packages) by ??= await otherTests(name, texts);
  // The cheapest first: cases once more, those that the time did not suffice for.
  return by ?? (complete ? undefined : ask(every, Number(values.budget)));
}

const started = performance.now();
const survivors: Mutant[] = [];
const unexplained: string[] = [];
const tally = new Map<string, { killed: number; survived: number }>();
let done = 0;
await Promise.all(
  Array.from({ length: Number(values.jobs) }, async () => {
    for (let mutant = mutants.shift(); mutant; mutant = mutants.shift()) {
      const begun = performance.now();
      const by = await judge(mutant);
      if (values.verbose)
        console.log(`${((performance.now() - begun) / 1000).toFixed(1)} s ${show(mutant)}\n    ${by ?? "survives"}`);
      const counts = tally.get(mutant.file) ?? { killed: 0, survived: 0 };
      tally.set(mutant.file, counts);
      done++;
      if (by !== undefined) {
        counts.killed++;
        if (explained.has(keyOf(mutant))) console.log(`  ${show(mutant)}\n    is explained, but killed by ${by}`);
        continue;
      }
      counts.survived++;
      survivors.push(mutant);
      const reason = explained.get(keyOf(mutant));
      if (reason === undefined) unexplained.push(show(mutant));
      console.log(`${reason === undefined ? "✗" : "✓"} survives: ${show(mutant)}${reason ? `\n    ${reason}` : ""}`);
    }
  }),
);
jobs.close();

mkdirSync(folder, { recursive: true });
writeFileSync(survivorsPath, JSON.stringify(survivors.map(keyOf)));
for (const [file, { killed, survived }] of [...tally].sort(([a], [b]) => (a < b ? -1 : 1)))
  console.log(`${file}: ${killed} killed, ${survived} survived`);
const seconds = ((performance.now() - started) / 1000).toFixed(0);
console.log(
  `${done} mutants, ${done - survivors.length} killed, ${survivors.length - unexplained.length} explained, ` +
    `${unexplained.length} unexplained, ${seconds} s`,
);
process.exitCode = unexplained.length + stale.length + failing > 0 ? 1 : 0;
