// Tests of the CUDA device without a GPU, on a stand-in for NVIDIA's driver (native/cuda_driver_standin).
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, brotliDecompressSync } from "node:zlib";
import { STANDIN } from "@mlxts/test-kit/cuda_standin";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { contractOf } from "../src/contract.ts";
import { Device, type DeviceOptions, type Kernel } from "../src/index.ts";
import { testFolder } from "./helpers.ts";
import { accumulateKernel, incrementKernel, launchKernel, limitKernel } from "./kernels/probe.ts";

type AnyKernel = Pick<Kernel, "name" | "variants">;
export const cudaContract = (kernel: AnyKernel): number => contractOf(kernel as Kernel, "cuda");

/** What a package's build makes of a kernel; the stand-in reads the names of its symbols only. */
export function archiveOf(kernel: AnyKernel, contract = cudaContract(kernel), entry = kernel.name): Uint8Array {
  const text = (variant: string) => `.target sm_80\n.visible .entry mlxts_${entry}_${variant}()\n{\n\tret;\n}\n`;
  const symbols = kernel.variants.map((variant) => [`${kernel.name}_${variant}`, text(variant)]);
  return brotliCompressSync(JSON.stringify({ contract, symbols: Object.fromEntries(symbols) }));
}

/** Whether there is an archive of the kernel as it is declared, such as `npm run cuda` makes. */
function isCurrent(path: string, kernel: AnyKernel): boolean {
  if (!existsSync(path)) return false;
  const { contract } = JSON.parse(brotliDecompressSync(readFileSync(path)).toString());
  return contract === cudaContract(kernel);
}

// Other files of tests write and read the same ones at the same time.
function writeArchives(): void {
  const folder = fileURLToPath(new URL("prebuilds/cuda", import.meta.url));
  mkdirSync(folder, { recursive: true });
  for (const kernel of [incrementKernel, accumulateKernel, limitKernel, launchKernel]) {
    const path = join(folder, `${kernel.name}.ptx.br`);
    if (isCurrent(path, kernel)) continue;
    writeFileSync(`${path}.${process.pid}`, archiveOf(kernel));
    renameSync(`${path}.${process.pid}`, path);
  }
}

/** Words that change what the stand-in does (native/cuda_driver_standin/standin.h), for devices opened from now on. */
export function set(words: string): void {
  process.env.MLXTS_CUDA_STANDIN = words;
}

/** What a call gives with these variables; native code reads them too. */
export function underCuda<T>(variables: Record<string, string>, call: () => T): T {
  const before = Object.keys(variables).map((name) => [name, process.env[name]] as const);
  Object.assign(process.env, variables);
  try {
    return call();
  } finally {
    for (const [name, value] of before)
      if (value === undefined) delete process.env[name];
      else process.env[name] = value;
  }
}

export const openCuda = (options?: DeviceOptions): Device => Device.open("cuda", options);

/** What the stand-in has written: each context that began or ended, what it left, and what no program may do. */
export const linesOf = (report: string): string[] =>
  existsSync(report) ? readFileSync(report, "utf8").trimEnd().split("\n") : [];

/**
 * A suite on the stand-in. After each test all devices must be closed, nothing of theirs may be left, and the driver must
 * not have been misused.
 */
export function describeCuda(name: string, tests: (report: string) => void): void {
  if (!existsSync(STANDIN)) {
    describe.skip(`${name} (skipped: the stand-in for NVIDIA's driver is not built)`, () => it("runs", () => {}));
    return;
  }
  describe(name, () => {
    writeArchives();
    const report = join(testFolder(), "report");
    process.env.MLXTS_CUDA_DRIVER = STANDIN;
    beforeEach(() => {
      rmSync(report, { force: true });
      process.env.MLXTS_CUDA_STANDIN_REPORT = report;
      set("");
    });
    afterEach(() => {
      const lines = linesOf(report);
      const begun = lines.filter((line) => / begins$/.test(line));
      const ended = lines.filter((line) => /^context ends(, lost)?$/.test(line));
      expect(lines.filter((line) => !begun.includes(line) && !ended.includes(line))).toEqual([]);
      expect(ended.length).toBe(begun.length);
    });
    tests(report);
  });
}
