// Whether the suites' cases notice when an instruction that orders memory accesses is missing: leaves them out of a CUDA
// kernel's PTX one at a time, and runs the cases that dispatch the kernel. On a machine with a GPU, after `npm run cuda`.
//   npm run cuda-order -- PACKAGE [SYMBOL…]   symbols of the package's kernels, or how they begin; default: all
import { type ChildProcess, fork } from "node:child_process";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, brotliDecompressSync, constants } from "node:zlib";
import { Device } from "@mlxts/core";
import { ptxArchives, type Suite, type SuiteCase, suiteCases } from "@mlxts/core/testing";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { caseDispatches } from "../check/case_dispatches.ts";
import { suitesModule } from "../check/packages.ts";
import { type CudaKernel, cudaKernels } from "./cuda_kernels.ts";
import { type OrderInstruction, orderInstructions, withoutOrder } from "./cuda_order.ts";

/** A kernel that waits for what never comes has to be ended with its process, which then loads the suites anew. */
const LIMIT_MS = 20_000;
const LOAD_LIMIT_MS = 600_000;
/** A race need not show each time. */
const ROUNDS = 3;

interface Job {
  symbol: string;
  instruction: OrderInstruction;
  /** Indices of the cases that dispatch the kernel. */
  cases: readonly number[];
}
type Request = { package: string } & ({ type: "load" } | { type: "cases" } | ({ type: "mutant" } & Job));
type Reply =
  | { type: "loaded" }
  | { type: "cases"; byKernel: Record<string, number[]> }
  | { type: "mutant"; found: string | undefined };

interface Archive {
  contract: number;
  symbols: Record<string, string>;
}
const archiveOf = ({ output }: CudaKernel) =>
  JSON.parse(brotliDecompressSync(readFileSync(output)).toString()) as Archive;

/** Runs cases on a device of their own until one fails; what it says. */
async function firstFailure(cases: readonly SuiteCase[], rounds: number): Promise<string | undefined> {
  using device = Device.open("cuda", { poison: true });
  for (let round = 0; round < rounds; round++)
    for (const each of cases) {
      const label = `${each.op} ${each.dtype} ${each.name}`;
      try {
        const { outputs } = await each.run({ device, others: [device] }, { trace: true });
        const wrong = outputs.find(({ pass }) => !pass);
        if (wrong) return `${label}: ${wrong.message}`;
      } catch (error) {
        return `${label}: ${(error as Error).message}`;
      }
    }
  return undefined;
}

async function answer(request: Request): Promise<Reply> {
  const { suites } = (await import(suitesModule(request.package))) as { suites: readonly Suite[] };
  const all = suites.flatMap((suite) => suiteCases(suite, { device: "cuda" }));
  if (request.type === "load") return { type: "loaded" };
  if (request.type === "cases") {
    const byKernel: Record<string, number[]> = {};
    using device = Device.open("cuda");
    for (const [index, { kernels }] of (await caseDispatches(request.package, device)).entries())
      for (const kernel of kernels) byKernel[kernel] = [...(byKernel[kernel] ?? []), index];
    return { type: "cases", byKernel };
  }
  const { symbol, instruction, cases } = request;
  const kernels = await cudaKernels([request.package]);
  const kernel = kernels.find((one) => symbol in archiveOf(one).symbols) as CudaKernel;
  const archive = archiveOf(kernel);
  const symbols = { ...archive.symbols, [symbol]: withoutOrder(archive.symbols[symbol] as string, instruction) };
  const params = { [constants.BROTLI_PARAM_QUALITY]: 1 };
  ptxArchives.set(kernel.output, brotliCompressSync(JSON.stringify({ ...archive, symbols }), { params }));
  const found = await firstFailure(
    cases.map((index) => all[index] as SuiteCase),
    ROUNDS,
  );
  ptxArchives.delete(kernel.output);
  return { type: "mutant", found };
}

type Ended = { type: "ended"; why: string };

/** A process that answers one request after another, and another one after a request that it does not answer in time. */
class Worker {
  private readonly package: string;
  private child: ChildProcess | undefined;

  constructor(name: string) {
    this.package = name;
  }

  private request(child: ChildProcess, request: Request, limit: number): Promise<Reply | Ended> {
    return new Promise((resolve) => {
      const settle = (reply: Reply | Ended) => {
        clearTimeout(timer);
        child.removeAllListeners();
        if (reply.type === "ended") this.child = undefined;
        resolve(reply);
      };
      const timer = setTimeout(() => {
        child.kill("SIGKILL");
        settle({ type: "ended", why: `no end within ${limit / 1000} s` });
      }, limit);
      child.on("message", (reply) => settle(reply as Reply));
      child.on("exit", (code, signal) => settle({ type: "ended", why: `the process ended with ${signal ?? code}` }));
      child.send(request);
    });
  }

  /** What it replies within a time that begins when it has loaded the package's suites. */
  async ask(job: { type: "cases" } | ({ type: "mutant" } & Job), limit: number): Promise<Reply | Ended> {
    if (this.child === undefined) {
      this.child = fork(fileURLToPath(import.meta.url), { execArgv: ["--import", SOURCE_HOOKS] });
      const loaded = await this.request(this.child, { type: "load", package: this.package }, LOAD_LIMIT_MS);
      if (loaded.type === "ended") throw new Error(`the suites of ${this.package} were not loaded: ${loaded.why}`);
    }
    return this.request(this.child, { package: this.package, ...job }, limit);
  }

  end(): void {
    this.child?.disconnect();
  }
}

async function main(name: string, wanted: readonly string[]): Promise<void> {
  const worker = new Worker(name);
  const known = await worker.ask({ type: "cases" }, LOAD_LIMIT_MS);
  if (known.type !== "cases") throw new Error(`the cases of ${name} did not run: ${JSON.stringify(known)}`);
  let [missed, all] = [0, 0];
  for (const one of await cudaKernels([name]))
    for (const [symbol, ptx] of Object.entries(archiveOf(one).symbols)) {
      if (wanted.length > 0 && !wanted.some((begin) => symbol.startsWith(begin))) continue;
      const cases = known.byKernel[symbol] ?? [];
      for (const instruction of orderInstructions(ptx)) {
        const reply = await worker.ask({ type: "mutant", symbol, instruction, cases }, LIMIT_MS);
        const found = reply.type === "ended" ? reply.why : reply.type === "mutant" ? reply.found : undefined;
        all++;
        if (found === undefined) missed++;
        const verdict = found === undefined ? "NOT NOTICED" : `noticed: ${found.slice(0, 120)}`;
        console.log(`${symbol} line ${instruction.line + 1} without ${instruction.text} — ${verdict}`);
      }
    }
  worker.end();
  console.log(`${all - missed} of ${all} noticed`);
}

if (process.send) {
  process.on("message", async (request: Request) => process.send?.(await answer(request)));
  process.on("disconnect", () => process.exit());
} else {
  const [, , name, ...wanted] = process.argv;
  if (name === undefined) {
    console.error("usage: npm run cuda-order -- PACKAGE [SYMBOL…]");
    process.exit(1);
  }
  await main(name, wanted);
}
