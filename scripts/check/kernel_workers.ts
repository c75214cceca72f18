// Runs cases of suites in processes of their own, as many at a time as there are processors.
import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import type { KernelCase, KernelResult } from "./kernel_case.ts";

const WORKER = fileURLToPath(new URL("kernel_case.ts", import.meta.url));

/** A process that takes cases until none is left. */
function worker(waiting: KernelCase[], env: Record<string, string>, results: KernelResult[]): Promise<void> {
  const child = fork(WORKER, { execArgv: ["--import", SOURCE_HOOKS], env: { ...process.env, ...env } });
  const next = () => {
    const one = waiting.shift();
    if (one) child.send(one);
    else child.disconnect();
  };
  next();
  return new Promise((resolve, reject) => {
    child.on("message", (result: KernelResult) => {
      results.push(result);
      next();
    });
    child.on("exit", (code) => (code === 0 ? resolve() : reject(new Error(`a worker ended with ${code}`))));
  });
}

export async function runCases(
  cases: readonly KernelCase[],
  env: Record<string, string> = {},
): Promise<KernelResult[]> {
  const waiting = [...cases];
  const results: KernelResult[] = [];
  const workers = Math.min(cases.length, availableParallelism());
  await Promise.all(Array.from({ length: workers }, () => worker(waiting, env, results)));
  return results;
}
