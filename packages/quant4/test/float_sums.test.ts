// Where products of 16-bit numbers are added as floats, the suites run so: with integers they must give the same bits.
import { spawnSync } from "node:child_process";
import { fileURLToPath } from "node:url";
import { cpuLevels } from "@mlxts/core";
import { SOURCE_HOOKS } from "@mlxts/test-kit/source";
import { expect, it } from "vitest";

const program = fileURLToPath(new URL("float_sums.ts", import.meta.url));

function products(floatSums: string): number[][] {
  const { status, stdout, stderr } = spawnSync(process.execPath, ["--import", SOURCE_HOOKS, program], {
    encoding: "utf8",
    env: { ...process.env, MLXTS_CPU_LEVEL: "avx2", MLXTS_FLOAT_SUMS: floatSums },
    maxBuffer: 2 ** 26,
  });
  expect([status, stderr]).toEqual([0, ""]);
  return JSON.parse(stdout);
}

it.skipIf(!cpuLevels().includes("avx2"))("sums of floats are those of integers, bit for bit", () => {
  const [integers, floats] = [products("0"), products("1")];
  expect(floats).toEqual(integers);
  expect(floats.flat().every(Number.isFinite)).toBe(true);
});
