// Runs cases of suites in processes of their own, as many at a time as there are processors.
import { fork } from "node:child_process";
import { availableParallelism } from "node:os";
import { fileURLToPath } from "node:url";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import type { KernelCase, KernelResult } from "./kernel_case.ts";

const WORKER = fileURLToPath(new URL("kernel_case.ts", import.meta.url));

/** Cases that wait. A process loads all suites of a package, so each goes on with its package as long as there are cases. */
class Waiting {
  readonly #byPackage = new Map<string, KernelCase[]>();
  readonly #begun = new Set<string>();

  constructor(cases: readonly KernelCase[]) {
    for (const one of cases) this.#byPackage.set(one.package, [...(this.#byPackage.get(one.package) ?? []), one]);
  }

  /** A case of that package, or else of one that no process has begun, or else of the one with most cases. */
  next(current?: string): KernelCase | undefined {
    const names = [...this.#byPackage.keys()].sort(
      (a, b) =>
        Number(b === current) - Number(a === current) ||
        Number(this.#begun.has(a)) - Number(this.#begun.has(b)) ||
        (this.#byPackage.get(b)?.length ?? 0) - (this.#byPackage.get(a)?.length ?? 0),
    );
    const [name] = names;
    if (name === undefined) return undefined;
    this.#begun.add(name);
    const cases = this.#byPackage.get(name) as KernelCase[];
    if (cases.length === 1) this.#byPackage.delete(name);
    return cases.shift();
  }
}

/** A process that takes cases until none is left. */
function worker(waiting: Waiting, env: Record<string, string>, results: KernelResult[]): Promise<void> {
  const child = fork(WORKER, { execArgv: ["--import", SOURCE_HOOKS], env: { ...process.env, ...env } });
  let current: string | undefined;
  const next = () => {
    const one = waiting.next(current);
    current = one?.package;
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
  const waiting = new Waiting(cases);
  const results: KernelResult[] = [];
  const workers = Math.min(cases.length, availableParallelism());
  await Promise.all(Array.from({ length: workers }, () => worker(waiting, env, results)));
  return results;
}
