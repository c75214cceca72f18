import { ProcessFailed } from "./bench_process.ts";

/** What llama.cpp's `llama-bench` is asked to measure. */
export type LlamaBenchJob =
  | { kind: "prefill"; tokens: number; times: number }
  | { kind: "decode"; after: number; tokens: number };

/** The arguments of `llama-bench`. It warms up by itself. */
export function llamaBenchArguments(gguf: string, threads: number, job: LlamaBenchJob): string[] {
  const test =
    job.kind === "prefill" ? { p: job.tokens, n: 0, d: 0, r: job.times } : { p: 0, n: job.tokens, d: job.after, r: 1 };
  const flags = Object.entries({ ...test, t: threads }).flatMap(([name, value]) => [`-${name}`, String(value)]);
  return ["-m", gguf, ...flags, "-o", "json"];
}

/** What `llama-bench` measured, in tokens/s, and the program's own revision. */
export function readLlamaBench(output: string): { tokensPerSecond: number[]; revision: string } {
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
  const speeds = (test as { samples_ts?: unknown } | undefined)?.samples_ts;
  const isSpeed = (speed: unknown): speed is number => typeof speed === "number" && speed > 0;
  if (!Array.isArray(speeds) || speeds.length === 0 || !speeds.every(isSpeed)) return wrong("has no `samples_ts`");
  return { tokensPerSecond: speeds, revision: String((test as { build_commit?: unknown }).build_commit ?? "unknown") };
}
