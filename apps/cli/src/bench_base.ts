// Another revision of this repository, to be measured beside the present one.
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, join, resolve } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Timed, timedCase } from "@mlxts/bench";
import { type Device, type DeviceKind, MlxtsError } from "@mlxts/core";
import type { Bench } from "@mlxts/core/testing";
import { UsageError } from "./options.ts";

const ROOT = fileURLToPath(new URL("../../..", import.meta.url));

export interface BaseCheckout {
  /** Its short name. */
  revision: string;
  /** The case of this op and name; undefined where the revision has none. */
  timed(
    op: string,
    name: string,
    kind: DeviceKind,
    threads: number,
  ): Promise<(Timed & { dispose(): void }) | undefined>;
  remove(): void;
}

function run(program: string, args: readonly string[], folder: string): string {
  const { status, stdout, stderr, error } = spawnSync(program, args, { cwd: folder, encoding: "utf8" });
  if (status === 0) return stdout.trim();
  const why = error?.message ?? (stderr.trim().split("\n").at(-1) || `status ${status}`);
  throw new MlxtsError("Io", `bench op: \`${[program, ...args].join(" ")}\` failed: ${why}`, {
    path: folder,
    operation: "run",
  });
}

/** All benchmarks of a checkout, by op. */
async function benchesIn(root: string): Promise<Map<string, Bench>> {
  const found = new Map<string, Bench>();
  for (const name of readdirSync(join(root, "packages"))) {
    const folder = join(root, "packages", name, "bench");
    const files = existsSync(folder) ? readdirSync(folder).filter((file) => file.endsWith(".bench.ts")) : [];
    for (const file of files) {
      const { default: bench } = (await import(pathToFileURL(join(folder, file)).href)) as { default: Bench };
      const known = found.get(bench.op);
      found.set(bench.op, known ? { ...bench, cases: [...known.cases, ...bench.cases] } : bench);
    }
  }
  return found;
}

/** What a checkout has, built already. */
async function opened(folder: string, revision: string, remove: () => void): Promise<BaseCheckout> {
  // The other checkout's sources are TypeScript.
  await import(pathToFileURL(join(ROOT, "packages/test-kit/src/source_hooks.mjs")).href);
  const benches = await benchesIn(folder);
  const core = (await import(pathToFileURL(join(folder, "packages/core/src/index.ts")).href)) as {
    Device: typeof Device;
  };
  return {
    revision,
    async timed(op, name, kind, threads) {
      const testCase = benches.get(op)?.cases.find((each) => each.name === name);
      if (!testCase) return undefined;
      const device = core.Device.open(kind, { threads });
      const timed = await timedCase(testCase, device);
      return { ...timed, dispose: () => device.dispose() };
    },
    remove,
  };
}

/** Builds what the command line runs, at the level that is measured; old revisions ignore the folder and build everything. */
const SET_UP = ["scripts/setup/setup.mjs", "apps/cli"];

/**
 * Checks a revision out beside this one, in a temporary folder, and builds it; or opens the checkout in a folder, which is
 * built there before if it is not.
 */
export async function baseCheckout(revision: string, signal: AbortSignal): Promise<BaseCheckout> {
  if (!existsSync(join(ROOT, ".git")) || !existsSync(join(ROOT, "scripts", "setup", "setup.mjs")))
    throw new UsageError("bench op", "--base", "be given in a Git checkout of mlxts", revision);
  const other = resolve(revision);
  if (existsSync(join(other, "scripts", "setup", "setup.mjs"))) {
    run(process.execPath, SET_UP, other);
    return opened(other, basename(other), () => {});
  }
  const commit = run("git", ["rev-parse", "--verify", "--quiet", "--end-of-options", `${revision}^{commit}`], ROOT);
  const folder = mkdtempSync(join(tmpdir(), "mlxts-base-"));
  const remove = () => {
    process.off("exit", remove);
    spawnSync("git", ["worktree", "remove", "--force", folder], { cwd: ROOT });
    rmSync(folder, { recursive: true, force: true });
  };
  process.on("exit", remove);
  try {
    process.stderr.write(`building ${revision} …\n`);
    run("git", ["worktree", "add", "--detach", "--force", folder, commit], ROOT);
    run(process.execPath, SET_UP, folder);
    signal.throwIfAborted();
    return await opened(folder, commit.slice(0, 9), remove);
  } catch (error) {
    remove();
    throw error;
  }
}
