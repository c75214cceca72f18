import type { DeviceKind } from "@mlxts/core";
import { ProcessFailed } from "./bench_process.ts";

/** What llama.cpp's `llama-bench` is asked to measure. */
export type LlamaBenchJob =
  | { kind: "prefill"; tokens: number; times: number }
  | { kind: "decode"; after: number; tokens: number };

/** More layers than models have: all of them. */
const ALL_LAYERS = 999;

/** Where `llama-bench` computes, and with how many threads of the CPU. */
export interface LlamaBenchPlace {
  device: DeviceKind;
  threads: number;
}

/** The arguments of `llama-bench`. It warms up by itself. Beside the CPU, a build for GPUs must not use them either. */
export function llamaBenchArguments(gguf: string, { device, threads }: LlamaBenchPlace, job: LlamaBenchJob): string[] {
  const test =
    job.kind === "prefill" ? { p: job.tokens, n: 0, d: 0, r: job.times } : { p: 0, n: job.tokens, d: job.after, r: 1 };
  const place = device === "cpu" ? { ngl: 0, dev: "none" } : { ngl: ALL_LAYERS };
  const flags = Object.entries({ ...test, t: threads, ...place }).flatMap(([name, value]) => [
    `-${name}`,
    String(value),
  ]);
  return ["-m", gguf, ...flags, "-o", "json"];
}

/** What `llama-bench` measured. */
export interface LlamaBenchResult {
  tokensPerSecond: number[];
  /** The program's own revision. */
  revision: string;
  /** What it computed on, as it names it. */
  processor: string;
}

/** Reads what `llama-bench` printed. One without a GPU computes on the CPU, which does not compare with ours on a GPU. */
export function readLlamaBench(output: string, device: DeviceKind): LlamaBenchResult {
  const wrong = (why: string): never => {
    throw new ProcessFailed(`its output ${why}`);
  };
  let tests: unknown;
  try {
    tests = JSON.parse(output);
  } catch {
    return wrong("is not JSON");
  }
  const [test] = Array.isArray(tests) ? tests : [];
  const { samples_ts: speeds, build_commit, gpu_info, cpu_info } = (test ?? {}) as Record<string, unknown>;
  const isSpeed = (speed: unknown): speed is number => typeof speed === "number" && speed > 0;
  if (!Array.isArray(speeds) || speeds.length === 0 || !speeds.every(isSpeed)) return wrong("has no `samples_ts`");
  if (device !== "cpu" && gpu_info === "") throw new ProcessFailed("it found no GPU, and ran on the CPU");
  const processor = String((device === "cpu" ? cpu_info : gpu_info) ?? "unknown");
  return { tokensPerSecond: speeds, revision: String(build_commit ?? "unknown"), processor };
}
