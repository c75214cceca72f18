import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { engine, type Program } from "./compile.ts";
import { MetalSimError, type Place } from "./errors.ts";

/** Which thread did it. */
export interface Who {
  threadgroup: [x: number, y: number, z: number];
  /** Index in the threadgroup. */
  thread: number;
  simdgroup: number;
}

export type ReportKind =
  | "race"
  | "out-of-bounds"
  | "uninitialized"
  | "read-only"
  | "divergent-barrier"
  | "divergent-simdgroup"
  | "inactive-lane"
  | "split-warpgroup"
  | "array-index"
  | "misaligned"
  | "division"
  | "shift"
  | "threadgroup-memory"
  | "stack"
  | "fault"
  | "timeout"
  | "out-of-memory"
  | "invalid-dispatch";

/** One finding about a kernel. */
export interface Report {
  kind: ReportKind;
  /** One sentence with everything below in it. */
  message: string;
  /** Line of the `.metal` file; null where it is not known. */
  place: Place | null;
  who: Who;
  /** How often the same was found at the same places. */
  count: number;
  /** Name of the argument or variable that is accessed. */
  argument?: string;
  byteOffset?: number;
  bytes?: number;
  isWrite?: boolean;
  /** The other access of a race; where the other threads wait. */
  otherPlace?: Place;
  other?: Who;
}

export type Schedule = "forward" | "reverse" | { random: number };

export type Bytes = ArrayBufferView<ArrayBuffer>;

/** What a dispatch binds: a buffer of the job from a byte offset on, or bytes given on the spot (`setBytes`). */
export type Binding = { buffer: string; byteOffset?: number; byteLength?: number } | { bytes: Bytes };

export interface DispatchSpec {
  kernel: string;
  /** Exactly one of `threadgroups` and `threads` (smaller threadgroups at the edges). */
  threadgroups?: readonly number[];
  threads?: readonly number[];
  threadsPerThreadgroup: readonly number[];
  /** By index, or by the parameter's name. */
  bindings: Readonly<Record<string, Binding>>;
  /** Lengths of `[[threadgroup(n)]]` memory, by index or name. */
  threadgroupBytes?: Readonly<Record<string, number>>;
  schedule?: Schedule;
}

export interface Job {
  /** Read and, when the job is done, overwritten with what the kernels left. */
  buffers: Readonly<Record<string, Bytes>>;
  /** Run one after another. */
  dispatches: readonly DispatchSpec[];
  /** OS threads, 1 to 1024. Default 1; results do not depend on it. */
  workers?: number;
  /** For the whole job, from 1. Default 60 000. */
  timeoutMs?: number;
}

export interface DispatchResult {
  reports: Report[];
  milliseconds: number;
  /** Changes from one simulated thread to another. */
  switches: number;
  threadgroupBytes: number;
}

export interface LineCoverage extends Place {
  executed: boolean;
}

export interface JobResult {
  dispatches: DispatchResult[];
  /** Reports of all dispatches. */
  reports: Report[];
  /** Lines with code, of a coverage build. */
  coverage: LineCoverage[];
}

const invalid = (message: string) => new MetalSimError("InvalidArgument", message);

export const MAX_WORKERS = 1024;
/** A timer of Node.js takes no more, with what is added to it. */
export const MAX_TIMEOUT_MS = 2_000_000_000;

function checkInteger(name: string, value: number, max: number): void {
  if (Number.isInteger(value) && value >= 1 && value <= max) return;
  throw invalid(`${name} must be an integer from 1 to ${max}, got ${value}`);
}

const three = (name: string, sizes: readonly number[]) => {
  const [x = 1, y = 1, z = 1] = sizes;
  for (const n of [x, y, z])
    if (!Number.isInteger(n) || n < 0 || n > 0xffffffff) throw invalid(`${name} must be integers, got ${sizes}`);
  return `${x} ${y} ${z}`;
};

const bytesOf = ({ buffer, byteOffset, byteLength }: Bytes) => new Uint8Array(buffer, byteOffset, byteLength);

/** The instructions of `native/run_main.cpp`, and the files that they name. */
function instructions(program: Program, job: Job, folder: string): { lines: string[]; files: Map<string, string> } {
  const files = new Map<string, string>();
  const lines = [`module ${program.modulePath}`, `workers ${job.workers ?? 1}`, `timeout ${job.timeoutMs ?? 60_000}`];
  const ids = new Map<string, string>();
  const addFile = (bytes: Bytes) => {
    const id = `b${files.size}`;
    const path = join(folder, id);
    if (bytes.byteLength === 0) throw invalid("a buffer must have at least one byte");
    writeFileSync(path, bytesOf(bytes));
    files.set(id, path);
    lines.push(`buffer ${id} ${path}`);
    return id;
  };
  for (const [name, bytes] of Object.entries(job.buffers)) ids.set(name, addFile(bytes));
  for (const dispatch of job.dispatches) {
    const kernel = program.kernels.find(({ name }) => name === dispatch.kernel);
    if (!kernel) {
      const names = program.kernels.map(({ name }) => name).join(", ");
      throw invalid(`no kernel is called \`${dispatch.kernel}\`; there is ${names || "none"}`);
    }
    const indexOf = (key: string, kind: "buffer" | "threadgroup") => {
      if (/^\d+$/.test(key)) return Number(key);
      const index = kernel.arguments.find((a) => a.name === key && a.kind === kind)?.index;
      if (index === undefined) throw invalid(`\`${kernel.name}\` has no ${kind} argument \`${key}\``);
      return index;
    };
    lines.push("unbind");
    for (const [key, binding] of Object.entries(dispatch.bindings)) {
      const index = indexOf(key, "buffer");
      if ("bytes" in binding) {
        lines.push(`bind ${index} ${addFile(binding.bytes)} 0 ${binding.bytes.byteLength}`);
        continue;
      }
      const bytes = job.buffers[binding.buffer];
      if (!bytes) throw invalid(`\`${key}\` is bound to \`${binding.buffer}\`, which is no buffer of the job`);
      const { byteOffset = 0, byteLength = bytes.byteLength - byteOffset } = binding;
      lines.push(`bind ${index} ${ids.get(binding.buffer)} ${byteOffset} ${byteLength}`);
    }
    for (const [key, length] of Object.entries(dispatch.threadgroupBytes ?? {}))
      lines.push(`memory ${indexOf(key, "threadgroup")} ${length}`);
    if ((dispatch.threads === undefined) === (dispatch.threadgroups === undefined))
      throw invalid("a dispatch must have either threadgroups or threads");
    if (dispatch.threads) lines.push(`grid threads ${three("threads", dispatch.threads)}`);
    else lines.push(`grid threadgroups ${three("threadgroups", dispatch.threadgroups ?? [])}`);
    lines.push(`group ${three("threadsPerThreadgroup", dispatch.threadsPerThreadgroup)}`);
    const { schedule = "forward" } = dispatch;
    lines.push(typeof schedule === "string" ? `schedule ${schedule} 0` : `schedule random ${schedule.random}`);
    lines.push(`run ${dispatch.kernel}`);
  }
  if (program.build === "coverage") lines.push("coverage");
  return { lines, files };
}

interface Output {
  stdout: string;
  stderr: string;
  end: string;
}

/** Runs the process to its end; a kernel that crashes it, or does not end, is a failure of the job only. */
function execute(runner: string, input: string, timeoutMs: number): Promise<Output> {
  return new Promise((resolve, reject) => {
    const child = spawn(runner, [], { stdio: ["pipe", "pipe", "pipe"] });
    let stdout = "";
    let stderr = "";
    let late = false;
    // The engine itself notices at barriers and atomics; this ends a loop without them.
    const timer = setTimeout(() => {
      late = true;
      child.kill("SIGKILL");
    }, timeoutMs + 2000);
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      stdout += text;
    });
    child.stderr.setEncoding("utf8").on("data", (text: string) => {
      stderr += text;
    });
    child.stdin.on("error", () => {});
    child.on("error", (error) => {
      clearTimeout(timer);
      reject(new MetalSimError("Runner", `${runner}: ${error.message}`));
    });
    child.on("close", (code, signal) => {
      clearTimeout(timer);
      resolve({
        stdout,
        stderr,
        end: late
          ? `did not end in ${timeoutMs} ms`
          : signal
            ? `was ended by ${signal}`
            : code
              ? `failed with code ${code}`
              : "",
      });
    });
    child.stdin.end(input);
  });
}

type Line = { error: string } | { coverage: [string, number, boolean][] } | DispatchResult;

/**
 * Runs dispatches in a process of their own and copies the buffers back. Findings are values; only what keeps the job
 * from running at all is thrown.
 * @throws MetalSimError `InvalidArgument` or `Runner`
 */
export async function run(program: Program, job: Job): Promise<JobResult> {
  const { workers = 1, timeoutMs = 60_000 } = job;
  checkInteger("workers", workers, MAX_WORKERS);
  checkInteger("timeoutMs", timeoutMs, MAX_TIMEOUT_MS);
  const folder = mkdtempSync(join(tmpdir(), "metal-sim-"));
  try {
    const { lines, files } = instructions(program, job, folder);
    const { runner } = engine();
    const { stdout, stderr, end } = await execute(runner, `${lines.join("\n")}\n`, timeoutMs);
    const result: JobResult = { dispatches: [], reports: [], coverage: [] };
    for (const text of stdout.split("\n").filter(Boolean)) {
      const line = JSON.parse(text) as Line;
      if ("error" in line) throw new MetalSimError("Runner", line.error);
      if ("coverage" in line)
        result.coverage = line.coverage.map(([file, at, executed]) => ({ file, line: at, executed }));
      else result.dispatches.push(line);
    }
    if (end) {
      const during = job.dispatches[result.dispatches.length]?.kernel;
      throw new MetalSimError("Runner", `${during ? `${during}: ` : ""}the runner ${end}${stderr && `: ${stderr}`}`);
    }
    result.reports = result.dispatches.flatMap(({ reports }) => reports);
    for (const [i, bytes] of Object.values(job.buffers).entries())
      bytesOf(bytes).set(readFileSync(files.get(`b${i}`) as string));
    return result;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
