// Each CUDA kernel that is shipped is dispatched by a case of its package's suites: `mlxts verify --device cuda` runs them
// all on a GPU. Here, on a machine without one, kernels do nothing; which of them a case takes does not depend on it.
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { promisify } from "node:util";
import { childEnvironment, STANDIN } from "@mlxts/test-kit/cuda_standin";
import { describe, expect, it } from "vitest";
import { opPackages, root } from "./packages.ts";

const missing = existsSync(STANDIN) ? undefined : "the stand-in for NVIDIA's driver is not built";

interface Found {
  shipped: string[];
  dispatched: string[];
  failures: string[];
}

async function dispatchesOf(name: string): Promise<Found> {
  const environment = childEnvironment("", "idle-kernels,delay:0");
  const script = ["scripts/run-source.mjs", "scripts/check/cuda_dispatches.ts", name];
  const { stdout } = await promisify(execFile)(process.execPath, script, {
    cwd: root,
    env: { ...process.env, ...environment },
    maxBuffer: 1 << 26,
  });
  return JSON.parse(stdout) as Found;
}

describe.skipIf(missing !== undefined)(`CUDA kernels${missing ? ` (skipped: ${missing})` : ""}`, () => {
  it.each(opPackages)("each one of %s is dispatched by a case", { timeout: 600_000 }, async (name) => {
    const { shipped, dispatched, failures } = await dispatchesOf(name);
    expect(failures).toEqual([]);
    expect(shipped.length).toBeGreaterThan(0);
    expect(shipped.filter((symbol) => !dispatched.includes(symbol))).toEqual([]);
    expect(dispatched.filter((symbol) => !shipped.includes(symbol))).toEqual([]);
  });
});
