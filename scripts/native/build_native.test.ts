import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";

const folder = mkdtempSync(join(tmpdir(), "mlxts-clone-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const script = fileURLToPath(new URL("build-native.mjs", import.meta.url));

/** A clone with the build script and one small library. */
function clone(name: string): string {
  const root = join(folder, name);
  mkdirSync(join(root, "scripts", "native"), { recursive: true });
  cpSync(script, join(root, "scripts", "native", "build-native.mjs"));
  writeFileSync(
    join(root, "CMakeLists.txt"),
    'cmake_minimum_required(VERSION 3.16)\nproject(clone LANGUAGES CXX)\nfile(WRITE one.cpp "int one() { return 1; }")\nadd_library(one STATIC one.cpp)\n',
  );
  return root;
}

function build(root: string) {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    [join(root, "scripts", "native", "build-native.mjs")],
    {
      encoding: "utf8",
    },
  );
  return { status, text: `${stdout}${stderr}` };
}

const cache = (root: string) => join(root, "build", "native", "CMakeCache.txt");
const home = (root: string) => /^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$/m.exec(readFileSync(cache(root), "utf8"))?.[1];

it("a clone that was moved after it had been built configures anew", () => {
  const first = clone("first");
  expect(build(first)).toEqual({ status: 0, text: "" });
  const second = join(folder, "second");
  renameSync(first, second);
  expect(build(second)).toEqual({ status: 0, text: "" });
  expect(home(second)).toBe(second);
});

it("a build folder whose compiler has gone is made anew", () => {
  const root = clone("compiler");
  expect(build(root).status).toBe(0);
  const text = readFileSync(cache(root), "utf8");
  writeFileSync(cache(root), text.replace(/^(CMAKE_CXX_COMPILER:[A-Z]+=).*$/m, `$1${join(folder, "no-compiler")}`));
  expect(build(root)).toEqual({ status: 0, text: "" });
});

it("a build folder that fits is kept", () => {
  const root = clone("kept");
  expect(build(root).status).toBe(0);
  const kept = join(root, "build", "native", "kept");
  writeFileSync(kept, "");
  expect(build(root).status).toBe(0);
  expect(readFileSync(kept, "utf8")).toBe("");
});
