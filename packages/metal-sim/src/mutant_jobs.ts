// The processes that judge mutants: started when needed, ended when one hangs or crashes, replaced when they grow.
import { type ChildProcess, fork, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join, relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { BaselineCase, Reply, Request } from "./mutant_worker.ts";
import { type KernelPackage, type KernelProject, simulatedDevice } from "./project.ts";

export interface JobOptions {
  /** The path of the `metal-sim` command that compiles kernels. */
  command?: string | undefined;
  /** For what a case's time does not hold. */
  compileMs?: number;
  nodeArguments?: readonly string[];
}

const WORKER = fileURLToPath(
  new URL(import.meta.url.endsWith(".ts") ? "mutant_worker.ts" : "mutant_worker.js", import.meta.url),
);

/** Mutants that one process judges: it keeps each that it has compiled. */
const MOST_MUTANTS = 200;
class Worker {
  judged = 0;
  readonly child: ChildProcess;
  /** For what a case's time does not hold: starting and compiling. */
  private readonly compileMs: number;
  constructor({ command, compileMs, nodeArguments }: Required<JobOptions>) {
    this.compileMs = compileMs;
    this.child = fork(WORKER, {
      execArgv: [...nodeArguments],
      env: simulatedDevice(command),
      stdio: ["ignore", "ignore", "pipe", "ipc"],
    });
  }

  /** The reply; a process that ends or hangs is one too. */
  ask(request: Request, limitMs: (index: number) => number): Promise<Reply> {
    return new Promise((resolve) => {
      let running = -1;
      let stderr = "";
      let timer: NodeJS.Timeout | undefined;
      const finish = (reply: Reply) => {
        clearTimeout(timer);
        this.child.removeAllListeners();
        this.child.stderr?.removeAllListeners();
        resolve(reply);
      };
      const watch = (ms: number) => {
        clearTimeout(timer);
        timer = setTimeout(() => {
          this.child.kill("SIGKILL");
          finish({ type: "killed", by: "it does not end", case: running });
        }, ms);
      };
      watch(this.compileMs);
      this.child.stderr?.on("data", (text) => {
        stderr = `${stderr}${text}`.slice(-2000);
      });
      this.child.on("exit", (code, signal) => {
        const reason = stderr.trim().split("\n").at(-1) || signal || `code ${code}`;
        if (running < 0) finish({ type: "failed", message: `the worker ended: ${stderr || reason}` });
        else finish({ type: "killed", by: `the process ended: ${reason}`, case: running, ended: true });
      });
      this.child.on("message", (reply: Reply) => {
        if (reply.type !== "started") return finish(reply);
        running = reply.case;
        watch(limitMs(running) + (reply.compiles ? this.compileMs : 0));
      });
      this.child.send(request);
    });
  }

  get usable(): boolean {
    return this.child.connected && this.child.exitCode === null && !this.child.killed && this.judged < MOST_MUTANTS;
  }
}

type Verdict = Extract<Reply, { type: "killed" | "survived" }>;

export class Jobs {
  private readonly idle: Worker[] = [];
  private readonly options: Required<JobOptions>;
  constructor(count: number, { command, compileMs = 60_000, nodeArguments = [] }: JobOptions = {}) {
    this.options = { command, compileMs, nodeArguments };
    if (!Number.isInteger(count) || count < 1) throw new RangeError("--jobs must be at least 1");
  }

  async ask(request: Request, limitMs: (index: number) => number, fresh = false): Promise<Reply> {
    const worker = (fresh ? undefined : this.idle.pop()) ?? new Worker(this.options);
    const reply = await worker.ask(request, limitMs);
    worker.judged++;
    if (worker.usable) this.idle.push(worker);
    else worker.child.kill("SIGKILL");
    return reply;
  }

  async judge(request: Request, limitMs: (index: number) => number): Promise<Verdict> {
    let reply = await this.ask(request, limitMs);
    // A process can end of what an earlier mutant has done to its memory.
    if (reply.type === "failed" || (reply.type === "killed" && reply.ended))
      reply = await this.ask(request, limitMs, true);
    if (reply.type !== "killed" && reply.type !== "survived")
      throw new Error(reply.type === "failed" ? reply.message : `an unexpected reply: ${reply.type}`);
    return reply;
  }

  close(): void {
    for (const { child } of this.idle) child.kill("SIGKILL");
  }
}

export interface Baseline {
  cases: readonly BaselineCase[];
  /** How often a case has killed a mutant of a file, by `FILE CASE`. */
  kills: Map<string, number>;
}

function filesUnder(folder: string, pattern: RegExp): string[] {
  if (!existsSync(folder)) return [];
  return readdirSync(folder, { recursive: true, encoding: "utf8" })
    .filter((name) => pattern.test(name) && !name.includes("node_modules"))
    .sort()
    .map((name) => join(folder, name));
}

/** The package's cases with their times and kernels; measured again when a source has changed. */
export async function readBaseline(
  project: KernelProject,
  { name, suites, sources }: KernelPackage,
  jobs: Jobs,
): Promise<Baseline> {
  const digest = createHash("sha256");
  for (const each of sources)
    for (const path of filesUnder(join(project.root, each), /\.(ts|metal|h)$/))
      digest.update(relative(project.root, path)).update(readFileSync(path));
  const folder = join(project.root, project.build);
  const path = join(folder, `baseline-${name}-${digest.digest("hex").slice(0, 16)}.json`);
  if (!existsSync(path)) {
    console.log(`${name}: which case runs which kernel …`);
    const reply = await jobs.ask({ type: "baseline", suites: join(project.root, suites) }, () => 300_000);
    if (reply.type !== "baseline")
      throw new Error(`${name}: ${"message" in reply ? reply.message : "by" in reply ? reply.by : reply.type}`);
    mkdirSync(folder, { recursive: true });
    for (const old of readdirSync(folder)) if (old.startsWith(`baseline-${name}-`)) rmSync(join(folder, old));
    writeFileSync(path, JSON.stringify(reply.cases));
  }
  return { cases: JSON.parse(readFileSync(path, "utf8")) as BaselineCase[], kills: new Map() };
}

let testRuns = 0;

/** Runs the package's tests beside its suites; what failed, or nothing. */
export async function runOtherTests(
  project: KernelProject,
  name: string,
  texts: Record<string, string>,
  command: string | undefined,
): Promise<string | undefined> {
  const folder = join(project.root, project.build);
  mkdirSync(folder, { recursive: true });
  const path = join(folder, `texts-${process.pid}-${testRuns++}.json`);
  writeFileSync(path, JSON.stringify(texts));
  const [program, ...args] = project.otherTests(name) as [string, ...string[]];
  const tests = spawn(program, args, {
    cwd: project.root,
    env: { ...simulatedDevice(command), MLXTS_METAL_TEXTS: path },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  tests.stdout.on("data", (text) => {
    stdout += text;
  });
  tests.stderr.on("data", (text) => {
    stderr += text;
  });
  let late = false;
  const timer = setTimeout(() => {
    late = true;
    tests.kill("SIGKILL");
  }, 300_000);
  const code = await new Promise<number | null>((resolve) => tests.on("close", resolve));
  clearTimeout(timer);
  rmSync(path, { force: true });
  if (late) return "the other tests: they do not end";
  if (code === 0) return undefined;
  const failed = /"fullName":"([^"]*)","status":"failed"/.exec(stdout)?.[1];
  if (failed === undefined && !stdout.startsWith("{")) throw new Error(`${name}: its tests do not run: ${stderr}`);
  return `the other tests: ${failed ?? "a file fails"}`;
}
