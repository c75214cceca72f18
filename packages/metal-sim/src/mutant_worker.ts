// A process that runs the cases of suites on simulated devices, with texts in place of their kernels; for mutant_jobs.ts.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { Device } from "@mlxts/core";
import { metalTexts, type Suite, type SuiteCase, suiteCases } from "@mlxts/core/testing";

/** Under which rules of the simulator cases run. */
export type Stage = "forward" | "check" | "schedules";

export interface BaselineCase {
  op: string;
  name: string;
  /** Of one run, with its reference. */
  ms: number;
  /** Symbols of the kernels that it dispatches; none where it fails as it is. */
  kernels: readonly string[];
  /** Why it fails as it is. */
  failure?: string;
}

/** Cases that run the same instances of the mutated kernels: only those are compiled. */
export interface Group {
  /** Indices of the cases, in the order in which they are to run. */
  cases: readonly number[];
  /** By .metal file. */
  symbols: Record<string, readonly string[]>;
}

interface MutantRequest {
  type: "mutant";
  /** The path of the module that exports the suites. */
  suites: string;
  texts: Record<string, string>;
  groups: readonly Group[];
  stages: readonly Stage[];
  /** No further case begins in a stage that has taken so long. */
  stageMs: number;
}

export type Request = { type: "baseline"; suites: string } | MutantRequest;

export type Reply =
  | { type: "started"; case: number; compiles: boolean }
  | { type: "baseline"; cases: readonly BaselineCase[] }
  | { type: "killed"; by: string; case: number; ended?: true }
  /** `complete` unless the time for a stage ended before its cases. */
  | { type: "survived"; complete: boolean }
  | { type: "failed"; message: string };

const modules = new Map<string, readonly SuiteCase[]>();
async function casesOf(path: string): Promise<readonly SuiteCase[]> {
  let cases = modules.get(path);
  if (!cases) {
    const { suites } = (await import(pathToFileURL(path).href)) as { suites: readonly Suite[] };
    cases = suites.flatMap((suite) => suiteCases(suite));
    modules.set(path, cases);
  }
  return cases;
}

function open(variables: Record<string, string>): Device {
  const names = Object.entries(variables).map(([name, value]) => [`MLXTS_METAL_SIM_${name}`, value] as const);
  for (const [name, value] of names) process.env[name] = value;
  try {
    return Device.open("metal");
  } finally {
    for (const [name] of names) delete process.env[name];
  }
}

const DEVICES: Record<Stage, readonly Record<string, string>[]> = {
  forward: [{ SCHEDULE: "forward" }],
  check: [{ CHECK: "1" }],
  schedules: ["forward", "reverse", "random:1", "random:2"].map((schedule) => ({ SCHEDULE: schedule })),
};

const send = (reply: Reply) => process.send?.(reply);
const firstLine = (text: string) => text.split("\n")[0] as string;

async function baseline(suites: string): Promise<Reply> {
  const device = open({});
  const cases: BaselineCase[] = [];
  for (const [i, each] of (await casesOf(suites)).entries()) {
    send({ type: "started", case: i, compiles: true });
    const label = `${each.op} ${each.dtype} ${each.name}`;
    try {
      const { kernels, outputs } = await each.run({ device, others: [] }, { trace: true });
      const wrong = outputs.find(({ pass }) => !pass);
      if (wrong) throw new Error(wrong.message);
      const start = performance.now();
      await each.run({ device, others: [] });
      cases.push({ op: each.op, name: label, ms: performance.now() - start, kernels });
    } catch (error) {
      cases.push({ op: each.op, name: label, ms: 0, kernels: [], failure: firstLine((error as Error).message) });
    }
  }
  device.dispose();
  return { type: "baseline", cases };
}

/** Puts the mutated texts in place; of the kernels that are made of them, only some instances. */
function place(texts: Record<string, string>, symbols: Record<string, readonly string[]>): void {
  metalTexts.clear();
  for (const [path, text] of Object.entries(texts)) metalTexts.set(path, text);
  for (const [path, names] of Object.entries(symbols))
    metalTexts.set(path, `${texts[path] ?? readFileSync(path, "utf8")}\n#pragma metal_sim_only ${names.join(" ")}\n`);
}

/** Runs a case; what it fails with, or nothing. */
async function failureOf({ run }: SuiteCase, [device, ...others]: readonly Device[]): Promise<string | undefined> {
  try {
    const { outputs } = await run({ device: device as Device, others });
    return outputs.find(({ pass }) => !pass)?.message;
  } catch (error) {
    return firstLine((error as Error).message);
  }
}

async function judge({ suites, texts, groups, stages, stageMs }: MutantRequest): Promise<Reply> {
  const all = await casesOf(suites);
  let complete = true;
  for (const stage of stages) {
    const start = performance.now();
    let late = false;
    for (const { cases, symbols } of groups) {
      if (late) break;
      place(texts, symbols);
      const devices = DEVICES[stage].map(open);
      for (const [i, index] of cases.entries()) {
        late = performance.now() - start > stageMs;
        if (late) break;
        send({ type: "started", case: index, compiles: i === 0 });
        const testCase = all[index] as SuiteCase;
        const failure = await failureOf(testCase, devices);
        const by = `${testCase.op} ${testCase.dtype} ${testCase.name}, ${stage}: ${failure}`;
        if (failure !== undefined) {
          for (const device of devices) device.dispose();
          return { type: "killed", by, case: index };
        }
      }
      for (const device of devices) device.dispose();
    }
    complete &&= !late;
  }
  return { type: "survived", complete };
}

process.on("message", async (request: Request) => {
  try {
    metalTexts.clear();
    send(request.type === "baseline" ? await baseline(request.suites) : await judge(request));
  } catch (error) {
    send({ type: "failed", message: (error as Error).stack ?? String(error) });
  }
});
process.on("disconnect", () => process.exit());
