// In a clone the command line builds native code that is not there.
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";

const clone = mkdtempSync(join(tmpdir(), "mlxts-missing-"));
afterAll(() => rmSync(clone, { recursive: true }));

const module = join("packages", "test-kit", "src", "build_missing.mjs");
const prebuilds = join("prebuilds", `${process.platform}-${process.arch}`);

function write(path: string, text = ""): void {
  mkdirSync(join(clone, dirname(path)), { recursive: true });
  writeFileSync(join(clone, path), text);
}

function run() {
  const { status, stdout, stderr } = spawnSync(process.execPath, [join(clone, module)], { encoding: "utf8" });
  return { status, stdout, stderr };
}

it("builds the packages of the command line of which nothing is built, and no others", () => {
  mkdirSync(join(clone, dirname(module)), { recursive: true });
  cpSync(fileURLToPath(new URL("../src/build_missing.mjs", import.meta.url)), join(clone, module));
  const dependencies = { "@mlxts/core": "", "@mlxts/norms": "", "@mlxts/mla": "", "@mlxts/models": "", other: "" };
  write("apps/cli/package.json", JSON.stringify({ dependencies }));
  for (const name of ["core", "norms", "mla", "bench"]) write(`packages/${name}/native/${name}.cpp`);
  write("packages/models/src/index.ts");
  write(`packages/norms/${prebuilds}/norms.avx2.so`);
  // Another addon of core.
  write(`packages/core/${prebuilds}/core-metal-sim.node`);
  write("scripts/native/build-native.mjs", "console.log(...process.argv.slice(2))");
  expect(run()).toEqual({
    status: 0,
    stdout: "--levels best --only core --only mla\n",
    stderr: "building native code of core, mla …\n",
  });
  write(`packages/core/${prebuilds}/core.node`);
  write(`packages/mla/${prebuilds}/mla.avx2.so`);
  expect(run()).toEqual({ status: 0, stdout: "", stderr: "" });
});

it("ends where that fails", () => {
  rmSync(join(clone, "packages", "mla", "prebuilds"), { recursive: true });
  write("scripts/native/build-native.mjs", "process.exit(3)");
  expect(run().status).toBe(1);
});
