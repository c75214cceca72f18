import { type ChildProcess, fork } from "node:child_process";
import { DEVICE_KINDS, MlxtsError } from "@mlxts/core";
import { PROGRAM, systemAbout, versions } from "./about.ts";
import { command } from "./contract.ts";
import { opNames, publicOps, unknownOp } from "./op_list.ts";
import { choice, list, path, Reported, UsageError } from "./options.ts";
import { outputFile, writeOutput } from "./output_file.ts";
import { progressBar } from "./progress.ts";
import {
  type CaseName,
  type DeviceAbout,
  type Job,
  type KernelName,
  type Message,
  type Outcome,
  runVerifyChild,
} from "./verify_child.ts";
import {
  type CaseReport,
  caseReport,
  type Report,
  reportJson,
  reportText,
  rounded,
  rowsOf,
  symbolsOf,
} from "./verify_report.ts";

/** Called when the cases are known, and after each one. */
type OnProgress = (done: number, cases: readonly CaseName[]) => void;

interface Session {
  device: DeviceAbout;
  cases: readonly CaseName[];
  outcomes: readonly Outcome[];
  kernels: readonly KernelName[];
  /** Kernels that the device does not have; undefined when not all cases were run. */
  missing: readonly KernelName[] | undefined;
  /** Why not all cases were run, or null. */
  stopped: string | null;
}

const failed = (message: string): Outcome => ({
  pass: false,
  message,
  outputs: [],
  kernels: [],
  ms: 0,
  deviceMs: 0,
});

/**
 * Starts a process for a job, passes on what it reports, and waits for its end; `signal` ends it. It has a process group of
 * its own, so that an interrupt from the terminal does not reach it directly.
 */
function runChild(job: Job, signal: AbortSignal | undefined, onMessage: (message: Message) => void): Promise<string> {
  return new Promise((resolve, reject) => {
    // "advanced" keeps numbers that are not finite. Warnings would repeat what the report says.
    const child: ChildProcess = fork(PROGRAM, ["verify-child"], {
      execArgv: [...process.execArgv, "--no-warnings"],
      serialization: "advanced",
      detached: process.platform !== "win32",
    });
    const kill = () => child.kill("SIGKILL");
    const ended = () => {
      process.off("exit", kill);
      signal?.removeEventListener("abort", kill);
    };
    process.on("exit", kill);
    signal?.addEventListener("abort", kill);
    child.once("error", (error) => {
      ended();
      reject(error);
    });
    child.on("message", (message) => onMessage(message as Message));
    child.once("close", (code, by) => {
      ended();
      if (signal?.aborted) reject(signal.reason);
      else resolve(by ? `signal ${by}` : `exit code ${code}`);
    });
    child.send(job, (error) => error && child.exitCode === null && !signal?.aborted && reject(error));
  });
}

/** Runs the cases in a process of their own. A case that ends its process has failed; another process runs the rest. */
export async function runCases(
  job: Omit<Job, "from">,
  { signal, onProgress }: { signal?: AbortSignal; onProgress?: OnProgress } = {},
): Promise<Session> {
  signal?.throwIfAborted();
  let device: DeviceAbout | undefined;
  let cases: readonly CaseName[] = [];
  let kernels: Session["kernels"] = [];
  let missing: Session["missing"];
  let stopped: string | null = null;
  const outcomes: Outcome[] = [];
  const add = (outcome: Outcome) => {
    outcomes.push(outcome);
    onProgress?.(outcomes.length, cases);
  };
  while (!missing && stopped === null) {
    let refused: MlxtsError | undefined;
    let started = false;
    const end = await runChild({ ...job, from: outcomes.length }, signal, (message) => {
      if (message.kind === "plan") {
        started = true;
        ({ device, cases, kernels } = message);
        onProgress?.(outcomes.length, cases);
      } else if (message.kind === "done") {
        add(message.outcome);
        if (message.lost) stopped = `the device was lost: ${message.outcome.message}`;
      } else if (message.kind === "end") missing = message.missing;
      else if (message.kind === "refused") refused = new MlxtsError(message.code, message.message);
    });
    if (!device) throw refused ?? new Error(`verify: the process that runs the cases did not start: ${end}`);
    if (missing || stopped !== null) break;
    if (!started) stopped = `the process that runs the cases did not start again: ${refused?.message ?? end}`;
    else if (outcomes.length < cases.length) add(failed(`the process that ran this case ended with ${end}`));
    else stopped = `the process that ran the cases ended after the last one with ${end}`;
  }
  return { device: device as DeviceAbout, cases, outcomes, kernels, missing, stopped };
}

/** The report of a session. `ops` must have cases; with `complete` every kernel must have run. */
export function makeReport(session: Session, ops: readonly string[], complete: boolean): Report {
  const { device, cases, outcomes, kernels, missing, stopped } = session;
  const reports: CaseReport[] = outcomes.map((outcome, i) => caseReport(cases[i] as CaseName, outcome));
  const symbol = ({ name, variant }: KernelName) => `${name}_${variant}`;
  const dispatched = new Set(reports.flatMap((each) => each.kernels));
  const absent = new Set(missing?.map(symbol));
  const rest = kernels.filter((kernel) => !dispatched.has(symbol(kernel)));
  const unseen = (onDevice: boolean) =>
    complete && missing ? symbolsOf(rest.filter((kernel) => absent.has(symbol(kernel)) !== onDevice)) : null;
  const passed = outcomes.filter(({ pass }) => pass).length;
  const neverRun = unseen(true);
  const withoutCases = ops.filter((name) => !cases.some(({ op }) => op === name));
  const [failures, notRun] = [outcomes.length - passed, cases.length - outcomes.length];
  return {
    tool: "mlxts verify",
    versions: versions(),
    system: systemAbout(),
    device,
    date: new Date().toISOString(),
    pass:
      passed === cases.length &&
      stopped === null &&
      withoutCases.length === 0 &&
      Object.keys(neverRun ?? {}).length === 0,
    stopped,
    withoutCases,
    summary: {
      cases: cases.length,
      passed,
      failed: failures,
      notRun,
      ms: rounded(outcomes.reduce((sum, { ms }) => sum + ms, 0)),
    },
    rows: rowsOf(reports),
    kernels: {
      run: symbolsOf(kernels.filter((kernel) => dispatched.has(symbol(kernel)))),
      neverRun,
      notOnDevice: unseen(false),
    },
    cases: reports,
  };
}

/** The ops to verify, all or the named ones, and the modules with their suites. */
function selected(names: readonly string[] | undefined): { modules: string[]; ops: string[] } {
  const known = publicOps();
  const ops = [...new Set(names ?? known.keys())];
  const packages = ops.map((name) => {
    const found = known.get(name);
    if (found) return found.package;
    throw unknownOp("verify", name);
  });
  return { modules: [...new Set(packages)].map((name) => `${name}/testing`), ops };
}

export const verify = command({
  name: "verify",
  summary: "Run the conformance cases of every op on this machine's device, against exact references.",
  arguments: {},
  options: {
    device: choice("<kind>", "instead of the default device", DEVICE_KINDS),
    op: list("<name>", "only these ops", { values: opNames }),
    json: path("<file>", "write a report, to attach to a bug report"),
  },
  async run({ device, op, json }, signal) {
    const { modules, ops } = selected(op.length > 0 ? op : undefined);
    // Checked now, not after minutes of work.
    const file = json === undefined ? undefined : outputFile("verify", "--json", json, { inPlace: true });
    const bar = progressBar();
    const onProgress: OnProgress = (done, cases) => {
      const next = cases[done];
      bar.show(done, cases.length, next ? `${next.op} ${next.dtype}` : "");
    };
    const job = { device: device ?? null, modules, ops };
    const session = await runCases(job, { signal, onProgress }).finally(bar.stop);
    const report = makeReport(session, ops, op.length === 0);
    process.stdout.write(reportText(report));
    if (file !== undefined) writeOutput(file, reportJson(report));
    if (!report.pass) throw new Reported();
  },
});

export const verifyChild = command({
  name: "verify-child",
  summary: "The process in which `verify` runs the cases.",
  hidden: true,
  arguments: {},
  options: {},
  run(_, signal) {
    signal.addEventListener("abort", () => process.exit(1));
    if (process.send) return runVerifyChild();
    throw new UsageError("verify-child", "parent", "be `mlxts verify`", "none");
  },
});
