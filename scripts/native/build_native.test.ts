import { spawn, spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, it } from "vitest";

const folder = mkdtempSync(join(tmpdir(), "mlxts-clone-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const here = fileURLToPath(new URL(".", import.meta.url));

/** A core whose processor runs the levels `new`, `middle` and `old`, and kernels of one package for the last two. */
const PROJECT = `cmake_minimum_required(VERSION 3.16)
project(clone LANGUAGES CXX)
set(MLXTS_UNOPTIMIZED_LEVELS "" CACHE STRING "")
set(out \${CMAKE_SOURCE_DIR}/out)
file(MAKE_DIRECTORY \${out})
file(WRITE \${out}/core.cjs "exports.cpuLevels = () => ['new', 'middle', 'old'];")
set(targets "core_addon\\tcore\\t\\t\${out}/core.cjs\\n")
# Fails when another build runs meanwhile.
add_custom_target(core_addon COMMAND mkdir \${out}/busy && sleep 0.3 && rmdir \${out}/busy && \${CMAKE_COMMAND} -E touch \${out}/addon)
foreach(level middle old foreign)
  add_custom_target(one.\${level} ALL COMMAND \${CMAKE_COMMAND} -E touch \${out}/one.\${level}.so)
  string(APPEND targets "one.\${level}\\tone\\t\${level}\\t\${out}/one.\${level}.so\\n")
endforeach()
file(WRITE \${CMAKE_BINARY_DIR}/targets.txt "\${targets}")
add_custom_target(picked DEPENDS \${MLXTS_PICKED})
`;

/** A clone with the build scripts. */
function clone(name: string, project = PROJECT): string {
  const root = join(folder, name);
  mkdirSync(join(root, "scripts", "native"), { recursive: true });
  for (const file of ["build-native.mjs", "native.mjs", "lock.mjs", "unoptimized.mjs"])
    cpSync(join(here, file), join(root, "scripts", "native", file));
  writeFileSync(join(root, "CMakeLists.txt"), project);
  return root;
}

const script = (root: string) => join(root, "scripts", "native", "build-native.mjs");

function build(root: string, args: string[] = [], env: Record<string, string> = {}) {
  const { status, stdout, stderr } = spawnSync(process.execPath, [script(root), ...args], {
    encoding: "utf8",
    env: { ...process.env, MLXTS_CPU_LEVEL: "", MLXTS_UNOPTIMIZED: "", ...env },
  });
  return { status, text: `${stdout}${stderr}` };
}

/** What a build made, of kernels and core. */
function made(root: string, args: string[], env?: Record<string, string>) {
  for (const file of existsSync(join(root, "out")) ? readdirSync(join(root, "out")) : [])
    if (!file.endsWith(".so")) rmSync(join(root, "out", file));
  expect(build(root, args, env)).toEqual({
    status: 0,
    text: expect.stringMatching(/^(building native code: (core|one|core, one); levels: (none|\w+(, \w+)*) …\n)?$/),
  });
  return readdirSync(join(root, "out")).filter((file) => file !== "core.cjs");
}

const cache = (root: string) => join(root, "build", "native", "CMakeCache.txt");
const home = (root: string) => /^CMAKE_HOME_DIRECTORY:INTERNAL=(.*)$/m.exec(readFileSync(cache(root), "utf8"))?.[1];

it("a clone that was moved after it had been built configures anew", () => {
  const first = clone("first");
  const said = "building native code: core, one; levels: middle, old, foreign …\n";
  expect(build(first)).toEqual({ status: 0, text: said });
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

it("builds every level, those that the machine runs, or the one that it will use", () => {
  expect(made(clone("all", PROJECT), ["--only", "one"])).toEqual(["one.foreign.so", "one.middle.so", "one.old.so"]);
  const runnable = clone("runnable", PROJECT);
  expect(made(runnable, ["--only", "one", "--levels", "runnable"])).toEqual(["addon", "one.middle.so", "one.old.so"]);
  // No kernels can be built for `new`: the next level is used.
  expect(made(clone("best", PROJECT), ["--levels", "best"])).toEqual(["addon", "one.middle.so"]);
  expect(made(clone("core", PROJECT), ["--only", "core", "--levels", "best"])).toEqual(["addon"]);
});

it("the best level is MLXTS_CPU_LEVEL where that is set, and no older library is left as it was", () => {
  const root = clone("chosen", PROJECT);
  expect(made(root, ["--levels", "best"], { MLXTS_CPU_LEVEL: "old" })).toEqual(["addon", "one.old.so"]);
  const older = join(root, "out", "one.old.so");
  utimesSync(older, 0, 0);
  expect(made(root, ["--levels", "best"])).toEqual(["addon", "one.middle.so", "one.old.so"]);
  expect(statSync(older).mtimeMs).toBeGreaterThan(0);
});

it("tests optimize no level that the machine does not run, or only the best one, and whoever builds after them all", () => {
  const root = clone("unoptimized", PROJECT);
  const unoptimized = () => /^MLXTS_UNOPTIMIZED_LEVELS:\w+=(.*)$/m.exec(readFileSync(cache(root), "utf8"))?.[1];
  made(root, [], { MLXTS_UNOPTIMIZED: "1" });
  expect(unoptimized()).toBe("foreign");
  made(root, ["--only", "one", "--levels", "runnable"], { MLXTS_UNOPTIMIZED: "others" });
  expect(unoptimized()?.split(";").sort()).toEqual(["foreign", "old"]);
  made(root, []);
  expect(unoptimized()).toBe("");
});

it("names what it does not know", () => {
  const root = clone("unknown", PROJECT);
  const text = (...args: string[]) => {
    const { status, text } = build(root, args);
    expect(status).toBe(1);
    return text.trim();
  };
  expect(text("--only", "two")).toBe("packages/two has no native code");
  expect(text("--levels", "worst")).toBe("--levels must be one of all, runnable, best, got worst");
  expect(text("--olny", "one")).toMatch(/^Unknown option '--olny'/);
});

it("builds wait for each other, and not for one that has died", async () => {
  const root = clone("twice", PROJECT);
  mkdirSync(join(root, "build"));
  const dead = spawnSync(process.execPath, ["-e", ""]).pid;
  writeFileSync(join(root, "build", "native.lock"), String(dead));
  const ends = ["middle", "old"].map(
    () =>
      new Promise((resolve) => {
        const child = spawn(process.execPath, [script(root), "--levels", "runnable"], { stdio: "inherit" });
        child.on("close", resolve);
      }),
  );
  expect(await Promise.all(ends)).toEqual([0, 0]);
  expect(existsSync(join(root, "build", "native.lock"))).toBe(false);
});

it.runIf(process.arch === "x64")("levels that the compiler does not know are left out", () => {
  const compiler = join(folder, "old-compiler");
  writeFileSync(
    compiler,
    '#!/bin/sh\ncase "$*" in *-mamx-tile*) echo "unknown option" >&2; exit 1;; esac\nexec c++ "$@"\n',
  );
  chmodSync(compiler, 0o755);
  const out = join(folder, "configured");
  const root = join(here, "..", "..");
  const { status, stderr } = spawnSync("cmake", ["-S", root, "-B", out, `-DCMAKE_CXX_COMPILER=${compiler}`], {
    encoding: "utf8",
  });
  expect(status).toBe(0);
  expect(stderr.replaceAll(/\s+/g, " ")).toContain("there will be no kernels for amx");
  const levels = readFileSync(join(out, "targets.txt"), "utf8").matchAll(/^norms\.(\w+)\t/gm);
  expect([...levels].map(([, level]) => level)).toEqual(["avx512", "avx2", "sse2"]);
});
