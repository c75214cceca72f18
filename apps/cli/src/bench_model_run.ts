import { existsSync } from "node:fs";
import type { Limits } from "@mlxts/bench";
import type { DeviceKind, FloatDtype } from "@mlxts/core";
import type { Approximation } from "@mlxts/models";
import { PROGRAM } from "./about.ts";
import type { DecodeResult, Job, MemorySpeed, PrefillResult } from "./bench_measure.ts";
import { decodeRows, type Measure, measureTexts, memoryRows, prefillRows, type Setting } from "./bench_model_rows.ts";
import { ProcessFailed, runProgram } from "./bench_process.ts";
import type { BenchRow } from "./bench_report.ts";
import { llamaBenchArguments, readLlamaBench } from "./llama_bench.ts";
import { inLine } from "./options.ts";

/** What is measured. */
export interface Engines {
  checkpoint: string;
  device: DeviceKind;
  dtypes: readonly FloatDtype[];
  approximate: Approximation | undefined;
  llama: { program: string; gguf: string } | undefined;
  /** Words before the command of each measurement. */
  runWith: readonly string[];
}

export interface Plan {
  threads: readonly number[];
  /** Tokens of prompts, and tokens before decoded ones. */
  prefill: readonly number[];
  after: readonly number[];
  /** Tokens that are decoded. */
  tokens: number;
  rounds: number;
  /** Whether anything is demanded of this model. */
  hasTargets: boolean;
  /** Whether targets against other libraries are set for this model. */
  hasPeerTargets: boolean;
}

export type OnProgress = (done: number, total: number, name: string) => void;

/** Longer prompts are measured once in a process, after the first time. */
const SHORT_PROMPT = 1024;
/** llama-bench feeds all tokens that come before: so many that it does so once, and not in every round. */
const LONG_CONTEXT = 4096;
/** Tokens over which memory is looked at. */
const MEMORY_TOKENS = 256;

const measuresOf = ({ prefill, after, tokens }: Plan): Measure[] => [
  ...prefill.map((tokens) => ({ kind: "prefill", tokens, times: tokens > SHORT_PROMPT ? 1 : 2 }) as const),
  ...after.map((after) => ({ kind: "decode", after, tokens }) as const),
];

const placeText = (device: DeviceKind, threads: number) =>
  device === "cpu" ? `${threads} thread${threads === 1 ? "" : "s"}` : device;

/** Runs measurements, each in a process of its own. */
class Runner {
  /** Of other libraries that were measured, and what they computed on. */
  readonly versions: Record<string, string> = {};
  readonly processors: Record<string, string> = {};
  private readonly engines: Engines;
  private readonly signal: AbortSignal;

  constructor(engines: Engines, signal: AbortSignal) {
    this.engines = engines;
    this.signal = signal;
  }

  /** Runs a command in a process of its own. */
  private run(words: readonly string[]): Promise<string> {
    return runProgram([...this.engines.runWith, ...words], this.signal);
  }

  /** A measurement of mlxts. Without it there is nothing to report. */
  async ours<T>(job: Job): Promise<T> {
    const flags = [...process.execArgv, "--no-warnings", "--expose-gc"];
    try {
      return JSON.parse(await this.run([process.execPath, ...flags, PROGRAM, "bench-child", JSON.stringify(job)])) as T;
    } catch (error) {
      if (!(error instanceof ProcessFailed)) throw error;
      throw new Error(
        `the process that measured ${job.kind} on ${placeText(job.device, job.threads)} ${error.message}`,
      );
    }
  }

  /** Speeds of llama.cpp in tokens a second, or why it has none. */
  async llama(measure: Measure, threads: number): Promise<readonly number[] | { failed: string }> {
    const { llama, device } = this.engines;
    if (!llama) return [];
    try {
      const words = llamaBenchArguments(llama.gguf, { device, threads }, measure);
      const { tokensPerSecond, revision, processor } = readLlamaBench(
        await this.run([llama.program, ...words]),
        device,
      );
      this.versions["llama.cpp"] = revision;
      this.processors["llama.cpp"] = processor;
      return tokensPerSecond;
    } catch (error) {
      if (!(error instanceof ProcessFailed)) throw error;
      return { failed: `llama-bench: ${inLine(error.message)}` };
    }
  }
}

/** All rounds of one measurement: in each, ours in every dtype and then others. Rows by dtype. */
async function measureRows(
  runner: Runner,
  { device, checkpoint, dtypes, approximate }: Engines,
  measure: Measure,
  threads: number,
  limits: MemorySpeed,
  { rounds, hasPeerTargets }: Plan,
  step: (name: string) => void,
): Promise<BenchRow[]> {
  const results = new Map(dtypes.map((dtype) => [dtype, [] as unknown[]]));
  const isLong = measure.kind === "decode" && measure.after > LONG_CONTEXT;
  const speeds: number[] = [];
  let note: string | null = null;
  for (let round = 0; round < rounds; round++) {
    step(`${measureTexts(measure).join(" ")} on ${placeText(device, threads)}`);
    for (const [dtype, list] of results)
      list.push(await runner.ours({ ...measure, device, checkpoint, threads, approximate, activationDtype: dtype }));
    if (note !== null || (isLong && round > 0)) continue;
    const others = await runner.llama(measure, threads);
    if ("failed" in others) note = others.failed;
    else speeds.push(...others);
  }
  const peer = speeds.length > 0 ? { name: "llama.cpp", tokensPerSecond: speeds } : undefined;
  return [...results].flatMap(([dtype, list]) => {
    const setting: Setting = { device, threads, dtype, peer, hasPeerTargets, note };
    return measure.kind === "prefill"
      ? prefillRows(measure, setting, list as PrefillResult[])
      : decodeRows(measure, setting, list as DecodeResult[], limits);
  });
}

interface Measured {
  rows: BenchRow[];
  limits: Limits[];
  memoryGBs: number;
  /** Of other libraries, by name. */
  versions: Record<string, string>;
  processors: Record<string, string>;
}

/** Measures a model by a plan. */
export async function measureModel(
  engines: Engines,
  plan: Plan,
  onProgress: OnProgress,
  signal: AbortSignal,
): Promise<Measured> {
  const runner = new Runner(engines, signal);
  const measures = measuresOf(plan);
  const { device } = engines;
  const onCpu = device === "cpu";
  // Linux tells how much memory a process has of its own; what it has on a GPU is not looked at.
  const dtypes = onCpu && existsSync("/proc/self/status") ? engines.dtypes : [];
  const total = plan.threads.length * (1 + measures.length * plan.rounds) + dtypes.length;
  let done = 0;
  const step = (name: string) => onProgress(done++, total, name);
  const rows: BenchRow[] = [];
  const limits: Limits[] = [];
  let memoryGBs = 0;
  for (const threads of plan.threads) {
    step("limits of the machine");
    const measured = await runner.ours<Limits | MemorySpeed>({ kind: "limits", device, threads });
    if ("threads" in measured) limits.push(measured);
    memoryGBs = measured.memoryGBs;
    for (const measure of measures)
      rows.push(...(await measureRows(runner, engines, measure, threads, measured, plan, step)));
  }
  for (const dtype of dtypes) {
    step("memory");
    const place = { threads: plan.threads[0] as number, dtype };
    const { checkpoint, approximate } = engines;
    const job = { kind: "memory", device, checkpoint, approximate, tokens: MEMORY_TOKENS } as const;
    rows.push(...memoryRows(place, await runner.ours({ ...job, threads: place.threads, activationDtype: dtype })));
  }
  const { versions, processors } = runner;
  const shown = plan.hasTargets ? rows : rows.map((row) => ({ ...row, target: null }));
  return { rows: shown, limits, memoryGBs, versions, processors };
}
