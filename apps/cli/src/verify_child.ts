import { Device, type DeviceKind, MlxtsError } from "@mlxts/core";
import { type DeclaredKernel, type OutputResult, type Suite, type SuiteCase, suiteCases } from "@mlxts/core/testing";

/** What the process that runs the cases has to do. */
export interface Job {
  device: DeviceKind | null;
  /** Modules with `suites` and `kernels`. */
  modules: readonly string[];
  ops: readonly string[];
  /** The first case to run. */
  from: number;
}

export interface CaseName {
  op: string;
  dtype: string;
  name: string;
}

export interface Outcome {
  pass: boolean;
  /** Why it failed; empty when it passed. */
  message: string;
  outputs: readonly OutputResult[];
  kernels: readonly string[];
  /** Wall time of all runs of the case, and of its reference. */
  ms: number;
  /** Time of one run on the device. */
  deviceMs: number;
}

/** A kernel's symbol is `name_variant`. */
export interface KernelName {
  name: string;
  variant: string;
}

export type DeviceAbout = Pick<Device, "kind" | "name" | "level" | "unifiedMemory" | "limits">;

/**
 * What the process reports: a `plan`, a `done` for each case, an `end` with the kernels that the device does not have; or
 * `refused` alone.
 */
export type Message =
  | { kind: "plan"; device: DeviceAbout; cases: readonly CaseName[]; kernels: readonly KernelName[] }
  | { kind: "done"; index: number; outcome: Outcome; lost: boolean }
  | { kind: "end"; missing: readonly KernelName[] }
  | { kind: "refused"; code: MlxtsError["code"]; message: string };

const send = (message: Message) =>
  new Promise<void>((resolve, reject) =>
    process.send?.(message, undefined, {}, (error) => (error ? reject(error) : resolve())),
  );

const isLost = (error: unknown) => error instanceof MlxtsError && error.details.cause === "deviceLost";

const textOf = (error: unknown) =>
  error instanceof Error ? `${error instanceof MlxtsError ? `${error.code}: ` : ""}${error.message}` : String(error);

async function judge(testCase: SuiteCase, devices: Parameters<SuiteCase["run"]>[0]): Promise<[Outcome, lost: boolean]> {
  const start = performance.now();
  const none = { outputs: [], kernels: [], deviceMs: 0 };
  try {
    const result = await testCase.run(devices, { trace: true });
    const message = result.outputs.find(({ pass }) => !pass)?.message ?? "";
    return [{ pass: message === "", message, ms: performance.now() - start, ...result }, false];
  } catch (error) {
    return [{ pass: false, message: textOf(error), ms: performance.now() - start, ...none }, isLost(error)];
  }
}

interface KernelSymbol extends KernelName {
  library: DeclaredKernel["library"];
}

const nameOf = ({ name, variant }: KernelSymbol): KernelName => ({ name, variant });

/** Whether the device's libraries have a symbol. One that does not compile counts as theirs. */
function available(device: Device, { library, name, variant }: KernelSymbol): boolean {
  try {
    return device.library(library).has(name, variant);
  } catch {
    return true;
  }
}

async function runJob({ device: kind, modules, ops, from }: Job): Promise<void> {
  const loaded = await Promise.all(
    modules.map(
      (module) => import(module) as Promise<{ suites: readonly Suite[]; kernels: readonly DeclaredKernel[] }>,
    ),
  );
  const suites = loaded.flatMap(({ suites }) => suites.filter(({ op }) => ops.includes(op.op.name)));
  const kernels = loaded.flatMap((module) =>
    module.kernels.flatMap(({ library, name, variants }) => variants.map((variant) => ({ library, name, variant }))),
  );
  using device = Device.open(kind ?? undefined, { poison: true });
  const cases = suites.flatMap((suite) => suiteCases(suite, { keep: true, device: device.kind }));
  // On the CPU cases also run in reverse order; the order on a GPU cannot be chosen.
  using reversed =
    device.kind === "cpu" ? Device.open("cpu", { threads: 1, order: "reverse", poison: true }) : undefined;
  const { name, level, unifiedMemory, limits } = device;
  await send({
    kind: "plan",
    device: { kind: device.kind, name, level, unifiedMemory, limits },
    cases: cases.map((each) => ({ op: each.op, dtype: each.dtype, name: each.name })),
    kernels: kernels.map(nameOf),
  });
  for (const [index, testCase] of cases.entries()) {
    if (index < from) continue;
    const [outcome, lost] = await judge(testCase, { device, others: reversed ? [reversed] : [] });
    await send({ kind: "done", index, outcome, lost });
    if (lost) return;
  }
  await send({ kind: "end", missing: kernels.filter((kernel) => !available(device, kernel)).map(nameOf) });
}

/** Runs one job, then the process ends. */
export function runVerifyChild(): Promise<void> {
  // The parent process has ended.
  const orphaned = () => process.exit(1);
  process.once("disconnect", orphaned);
  return new Promise((resolve) => {
    process.once("message", (job: Job) => {
      runJob(job)
        .catch((error: unknown) => {
          const code = error instanceof MlxtsError ? error.code : undefined;
          if (!code) throw error;
          return send({ kind: "refused", code, message: (error as Error).message });
        })
        .finally(() => {
          process.off("disconnect", orphaned);
          process.disconnect();
          resolve();
        });
    });
  });
}
