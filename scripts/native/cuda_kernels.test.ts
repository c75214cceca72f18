import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { brotliDecompressSync } from "node:zlib";
import { clangMissing } from "@mlxts/test-kit/clang";
import { describe, expect, it } from "vitest";
import { contractOf } from "../../packages/core/src/contract.ts";
import { FEW_ON_GPU, ROW_VARIANTS } from "../../packages/quant4/src/product_launch.ts";
import { buildCuda, cudaKernels, cudaPackages, mostThreads } from "./cuda_kernels.ts";
import { installed } from "./nvrtc.mjs";

const missing = clangMissing() ?? (installed() ? undefined : "NVRTC is not in build/nvrtc: run `npm run cuda`");

const kernels = await cudaKernels(cudaPackages());

it("every kernel's most threads are known, whole simdgroups", () => {
  const threads = Object.fromEntries(kernels.map(({ kernel }) => [kernel.name, mostThreads(kernel)]));
  expect(threads).toMatchObject({ rms_norm_no_scale: 512, chunk_inverse: 256, quantized_matvec: 256, mask_values: 32 });
  expect(Object.entries(threads).filter(([, n]) => n % 32 !== 0 || n < 32 || n > 1024)).toEqual([]);
});

describe.skipIf(missing !== undefined)(`kernels for CUDA${missing ? ` (skipped: ${missing})` : ""}`, () => {
  it("compile to PTX, each instance by itself, for the declaration as it is", { timeout: 600_000 }, async () => {
    await buildCuda();
    for (const { path, kernel, output } of kernels) {
      const { contract, symbols } = JSON.parse(brotliDecompressSync(readFileSync(output)).toString());
      expect(contract, path).toBe(contractOf(kernel, "cuda"));
      expect(basename(output)).toBe(`${kernel.name}.ptx.br`);
      expect(Object.keys(symbols).length).toBeGreaterThan(0);
      const saysThreads = readFileSync(new URL(`../../${path}`, import.meta.url), "utf8").includes(
        "max_total_threads_per_threadgroup",
      );
      for (const [symbol, ptx] of Object.entries<string>(symbols)) {
        expect(symbol.startsWith(`${kernel.name}_`), symbol).toBe(true);
        expect(ptx.match(/\.entry \w+/g), symbol).toEqual([`.entry mlxts_${symbol}`]);
        const isOneOf = (variants: readonly string[]) =>
          variants.some((variant) => symbol === `${kernel.name}_${variant}`);
        const alone = isOneOf(kernel.sm90a);
        // Those for some GPUs alone say themselves how many threads they have; where they have more, others say it, too.
        const threads = Number(/^\.maxntid (\d+)/m.exec(ptx)?.[1]);
        if (isOneOf(ROW_VARIANTS)) expect(threads, symbol).toBe(FEW_ON_GPU.rowThreads);
        else if (!alone && saysThreads) expect(threads, symbol).toBeLessThanOrEqual(mostThreads(kernel));
        else if (!alone) expect(threads, symbol).toBe(mostThreads(kernel));
        expect(/^\.target (\w+)(, debug)?$/m.exec(ptx)?.[1], symbol).toBe(alone ? "sm_90a" : "sm_80");
      }
    }
  });

  it("refuses what is no package with kernels", async () => {
    await expect(buildCuda(["bench"])).rejects.toThrow("packages/bench has no kernels for GPUs");
  });
});
