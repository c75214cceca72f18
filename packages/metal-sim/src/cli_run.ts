import { createHash } from "node:crypto";
import type { Command } from "commander";
import { type SourceOptions, sourceOf, withSourceOptions } from "./cli_compile.ts";
import { compile } from "./compile.ts";
import { MetalSimError } from "./errors.ts";
import type { Kernel } from "./reflect.ts";
import {
  type Binding,
  type DispatchSpec,
  type LineCoverage,
  MAX_TIMEOUT_MS,
  MAX_WORKERS,
  type Report,
  run,
  type Schedule,
} from "./run.ts";
import { readTensor, type StoredTensor, writeTensors } from "./safetensors.ts";
import { fill, parseValues, scalar, scalarOf, storedName, unpack } from "./values.ts";

interface Options extends SourceOptions {
  kernel?: string;
  grid?: string;
  threads?: string;
  group: string;
  buffer: string[];
  fill: string[];
  bytes: string[];
  threadgroup: string[];
  out: string[];
  print: string[];
  schedule: string;
  workers: number;
  timeout: number;
  coverage?: true;
  json?: true;
}

const invalid = (message: string) => new MetalSimError("InvalidArgument", message);

function pair(option: string, text: string): [key: string, value: string] {
  const equals = text.indexOf("=");
  if (equals < 1) throw invalid(`--${option} must be KEY=VALUE, got ${JSON.stringify(text)}`);
  return [text.slice(0, equals), text.slice(equals + 1)];
}

const sizes = (option: string, text: string) =>
  text.split(",").map((part) => {
    const n = Number(part);
    if (!Number.isInteger(n) || n < 1)
      throw invalid(`--${option} must be up to three sizes, got ${JSON.stringify(text)}`);
    return n;
  });

const integer = (option: string, max: number) => (text: string) => {
  const value = text.trim() === "" ? Number.NaN : Number(text);
  if (Number.isInteger(value) && value >= 1 && value <= max) return value;
  throw invalid(`--${option} must be an integer from 1 to ${max}, got ${JSON.stringify(text)}`);
};

function parseSchedule(text: string): Schedule {
  if (text === "forward" || text === "reverse") return text;
  const seed = /^random(?::(\d+))?$/.exec(text);
  if (seed) return { random: Number(seed[1] ?? 1) };
  throw invalid(`--schedule must be forward, reverse or random:SEED, got ${JSON.stringify(text)}`);
}

function chooseKernel(kernels: readonly Kernel[], name: string | undefined): Kernel {
  const names = kernels.map((kernel) => kernel.name).join(", ");
  if (name === undefined && kernels.length === 1) return kernels[0] as Kernel;
  if (name === undefined) throw invalid(`--kernel must name one of ${names || "no kernels at all"}`);
  const found = kernels.find((kernel) => kernel.name === name);
  if (!found) throw invalid(`--kernel must be one of ${names}, got ${name}`);
  return found;
}

/** Everything about the dispatch but its schedule. */
interface Setup {
  spec: DispatchSpec;
  buffers: Record<string, Uint8Array<ArrayBuffer>>;
  /** By argument name. */
  tensors: Map<string, StoredTensor>;
}

function setUp(kernel: Kernel, options: Options): Setup {
  const tensors = new Map<string, StoredTensor>();
  const argument = (key: string) => {
    const found = kernel.arguments.find((a) => a.kind === "buffer" && (a.name === key || String(a.index) === key));
    if (!found) throw invalid(`\`${kernel.name}\` has no buffer argument ${JSON.stringify(key)}`);
    return found;
  };
  for (const text of options.buffer) {
    const [key, value] = pair("buffer", text);
    const colon = value.lastIndexOf(":");
    if (colon < 1) throw invalid(`--buffer must be KEY=FILE:TENSOR, got ${JSON.stringify(text)}`);
    tensors.set(argument(key).name, readTensor(value.slice(0, colon), value.slice(colon + 1)));
  }
  for (const text of options.fill) {
    const [key, value] = pair("fill", text);
    const type = scalarOf(argument(key).type);
    const bytes = fill(value, type);
    const { stored, bytes: each } = scalar(type);
    tensors.set(argument(key).name, { dtype: stored, shape: [bytes.length / each], bytes });
  }
  for (const text of options.bytes) {
    const [key, value] = pair("bytes", text);
    const bytes = parseValues(value);
    tensors.set(argument(key).name, { dtype: "U8", shape: [bytes.length], bytes });
  }
  const bindings: Record<string, Binding> = {};
  const buffers: Record<string, Uint8Array<ArrayBuffer>> = {};
  for (const { name, kind } of kernel.arguments) {
    if (kind !== "buffer") continue;
    const tensor = tensors.get(name);
    if (!tensor) throw invalid(`\`${name}\` is not bound: give it --buffer, --fill or --bytes`);
    buffers[name] = tensor.bytes;
    bindings[name] = { buffer: name };
  }
  const threadgroupBytes = Object.fromEntries(
    options.threadgroup.map((text) => {
      const [key, value] = pair("threadgroup", text);
      return [key, Number(value)];
    }),
  );
  const spec: DispatchSpec = {
    kernel: kernel.name,
    threadsPerThreadgroup: sizes("group", options.group),
    bindings,
    threadgroupBytes,
    ...(options.threads !== undefined
      ? { threads: sizes("threads", options.threads) }
      : { threadgroups: sizes("grid", options.grid ?? "1") }),
  };
  return { spec, buffers, tensors };
}

const hashOf = (buffers: Record<string, Uint8Array>) => {
  const digest = createHash("sha256");
  for (const bytes of Object.values(buffers)) digest.update(bytes);
  return digest.digest("hex").slice(0, 16);
};

const copies = (buffers: Record<string, Uint8Array<ArrayBuffer>>) =>
  Object.fromEntries(Object.entries(buffers).map(([name, bytes]) => [name, bytes.slice()]));

function showReports(reports: readonly Report[]): void {
  for (const { message, count } of reports) process.stdout.write(`${message}${count > 1 ? ` (${count} times)` : ""}\n`);
}

function showCoverage(lines: readonly LineCoverage[]): void {
  const files = new Map<string, LineCoverage[]>();
  for (const line of lines) files.set(line.file, [...(files.get(line.file) ?? []), line]);
  for (const [file, all] of files) {
    const missed = all.filter(({ executed }) => !executed).map(({ line }) => line);
    const text = missed.length > 0 ? `, not ${missed.join(", ")}` : "";
    process.stdout.write(`${file}: ${all.length - missed.length} of ${all.length} lines executed${text}\n`);
  }
}

function giveResults(options: Options, { tensors }: Setup, buffers: Record<string, Uint8Array<ArrayBuffer>>): void {
  const result = (key: string) => {
    const tensor = tensors.get(key);
    const bytes = buffers[key];
    if (!tensor || !bytes) throw invalid(`no buffer argument is called ${JSON.stringify(key)}`);
    return { ...tensor, bytes };
  };
  const files = new Map<string, Map<string, StoredTensor>>();
  for (const text of options.out) {
    const [key, value] = pair("out", text);
    const colon = value.lastIndexOf(":");
    const [path, name] = colon < 1 ? [value, key] : [value.slice(0, colon), value.slice(colon + 1)];
    files.set(path, (files.get(path) ?? new Map()).set(name, result(key)));
  }
  for (const [path, all] of files) writeTensors(path, all);
  for (const text of options.print) {
    const [key, count] = text.includes("=") ? pair("print", text) : [text, "16"];
    const { dtype, bytes } = result(key);
    process.stdout.write(`${key}: ${unpack(bytes, storedName(dtype), Number(count)).join(" ")}\n`);
  }
}

async function runOnce(file: string, options: Options): Promise<number> {
  const program = compile(sourceOf(file, options), options.coverage ? "coverage" : "fast");
  const setup = setUp(chooseKernel(program.kernels, options.kernel), options);
  const result = await run(program, {
    buffers: setup.buffers,
    dispatches: [{ ...setup.spec, schedule: parseSchedule(options.schedule) }],
    workers: options.workers,
    timeoutMs: options.timeout,
  });
  if (options.json) process.stdout.write(`${JSON.stringify({ ...result, hash: hashOf(setup.buffers) })}\n`);
  else {
    showReports(result.reports);
    const [first] = result.dispatches;
    process.stdout.write(
      `${setup.spec.kernel}: ${first?.milliseconds.toFixed(2)} ms, outputs ${hashOf(setup.buffers)}\n`,
    );
    showCoverage(result.coverage);
  }
  giveResults(options, setup, setup.buffers);
  return result.reports.length > 0 ? 1 : 0;
}

const SCHEDULES: [name: string, schedule: Schedule][] = [
  ["forward", "forward"],
  ["reverse", "reverse"],
  ["random:1", { random: 1 }],
  ["random:2", { random: 2 }],
];

/** Check mode under two schedules, then equal bits under four. */
async function check(file: string, options: Options): Promise<number> {
  const source = sourceOf(file, options);
  const checked = compile(source, "check");
  const setup = setUp(chooseKernel(checked.kernels, options.kernel), options);
  const timeoutMs = options.timeout;
  const found = new Map<string, Report>();
  for (const schedule of ["forward", { random: 1 }] satisfies Schedule[]) {
    const { reports } = await run(checked, {
      buffers: copies(setup.buffers),
      dispatches: [{ ...setup.spec, schedule }],
      timeoutMs,
    });
    for (const report of reports) {
      const { kind, place, otherPlace, argument } = report;
      const key = JSON.stringify([kind, place, otherPlace, argument]);
      if (!found.has(key)) found.set(key, report);
    }
  }
  const fast = compile(source, "fast");
  const hashes: Record<string, string> = {};
  for (const [name, schedule] of SCHEDULES) {
    const buffers = copies(setup.buffers);
    await run(fast, {
      buffers,
      dispatches: [{ ...setup.spec, schedule }],
      workers: options.workers,
      timeoutMs,
    });
    hashes[name] = hashOf(buffers);
  }
  const same = new Set(Object.values(hashes)).size === 1;
  const reports = [...found.values()];
  if (options.json) process.stdout.write(`${JSON.stringify({ reports, hashes, sameBits: same })}\n`);
  else {
    showReports(reports);
    if (!same) process.stdout.write(`outputs differ between schedules: ${JSON.stringify(hashes)}\n`);
    if (same && reports.length === 0)
      process.stdout.write(`${setup.spec.kernel}: no findings; the same bits under ${SCHEDULES.length} schedules\n`);
  }
  return reports.length > 0 || !same ? 1 : 0;
}

export function addRun(program: Command, finish: (code: number) => void): void {
  const list = (text: string, before: string[]) => [...before, text];
  const add = (name: string, description: string) =>
    withSourceOptions(program.command(name))
      .description(description)
      .argument("<file>", "a .metal file")
      .option("-k, --kernel <name>", "which kernel; not needed when there is one")
      .option("--grid <x,y,z>", "threadgroups (default 1)")
      .option("--threads <x,y,z>", "threads instead, with smaller threadgroups at the edges")
      .option("--group <x,y,z>", "threads per threadgroup", "32")
      .option("--buffer <key=file:tensor>", "bind a tensor of a safetensors file", list, [])
      .option("--fill <key=what:n>", "bind zeros:N, nan:N, count:N or random:N[:SEED] of the argument's type", list, [])
      .option("--bytes <key=values>", "bind values, as u32:4096,f32:1e-5", list, [])
      .option("--threadgroup <key=bytes>", "length of threadgroup memory", list, [])
      .option("--workers <n>", "OS threads", integer("workers", MAX_WORKERS), 1)
      .option("--timeout <ms>", "time limit", integer("timeout", MAX_TIMEOUT_MS), 60_000)
      .option("--json", "as JSON");
  add("run", "run a kernel")
    .option("--schedule <which>", "forward, reverse or random:SEED", "forward")
    .option("--out <key=file[:name]>", "write a buffer to a safetensors file afterwards", list, [])
    .option("--print <key[=n]>", "print a buffer's first numbers afterwards", list, [])
    .option("--coverage", "say which lines were executed")
    .action(async (file: string, options: Options) => finish(await runOnce(file, options)));
  add("check", "run a kernel in check mode, and compare its results under several schedules").action(
    async (file: string, options: Options) => finish(await check(file, { ...options, out: [], print: [] })),
  );
}
