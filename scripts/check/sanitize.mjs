// Runs the tests of the packages named on binaries built with a sanitizer, each package with no more than it needs, in a
// copy of the sources under build/, so that the normal binaries stay. A second run builds only what has changed:
//   node scripts/check/sanitize.mjs address|thread PACKAGE... [-- what else vitest is to get]
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { nativePackages, withDependencies } from "../native/workspace.mjs";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const KINDS = {
  address: { flag: "address,undefined", runtime: "libasan.so" },
  thread: { flag: "thread", runtime: "libtsan.so" },
};
const available = readdirSync(join(root, "packages")).filter(
  (name) => !["common", "metal-sim", "test-kit"].includes(name),
);
const end = process.argv.indexOf("--");
const [kind, ...names] = process.argv.slice(2, end < 0 ? undefined : end);
const forVitest = end < 0 ? [] : process.argv.slice(end + 1);
if (!Object.hasOwn(KINDS, kind) || names.length === 0 || !names.every((name) => available.includes(name))) {
  console.error(
    `usage: node scripts/check/sanitize.mjs address|thread PACKAGE... [-- …], packages: ${available.join(" ")}`,
  );
  process.exit(1);
}
const { flag, runtime } = KINDS[kind];
const copy = join(root, "build", `sanitize-${kind}`);
const started = performance.now();
const minutes = () => `${((performance.now() - started) / 60_000).toFixed(1)} min`;

const folders = names.map((name) => `packages/${name}`);
const packages = withDependencies(...folders).map((folder) => basename(folder));

function run(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { cwd: copy, stdio: "inherit", ...options });
  if (error) console.error(`cannot run ${command}: ${error.message}`);
  if (error || status !== 0) process.exit(status ?? 1);
}

// Binaries stay where they are, and sources keep their times, for the next run.
const built = new Set(["prebuilds", "dist", "build"]);
const clear = (folder) => {
  for (const name of readdirSync(folder)) if (!built.has(name)) rmSync(join(folder, name), { recursive: true });
};
function take(path) {
  const to = join(copy, path);
  if (existsSync(to) && !path.includes(".")) clear(to);
  cpSync(join(root, path), to, {
    recursive: true,
    force: true,
    preserveTimestamps: true,
    verbatimSymlinks: true,
    filter: (source) => !built.has(basename(source)),
  });
}
mkdirSync(copy, { recursive: true });
// What an earlier run took of other packages is of that day.
if (existsSync(join(copy, "packages")))
  for (const name of readdirSync(join(copy, "packages"))) clear(join(copy, "packages", name));
const tools = ["bench", "common", "metal-sim", "test-kit"];
for (const name of [...packages, ...tools]) take(join("packages", name));
for (const path of ["scripts", "fixtures", "CMakeLists.txt", "vitest.config.ts", "tsconfig.base.json", "package.json"])
  take(path);
// Everything that is installed, but the packages of the copy for those of this repository.
const modules = join(copy, "node_modules");
rmSync(modules, { recursive: true, force: true });
mkdirSync(join(modules, "@mlxts"), { recursive: true });
for (const name of readdirSync(join(root, "node_modules")))
  if (name !== "@mlxts") symlinkSync(join(root, "node_modules", name), join(modules, name));
for (const name of [...packages, ...tools]) symlinkSync(join(copy, "packages", name), join(modules, "@mlxts", name));

// The levels that this machine runs, as its own addon tells: an instrumented one cannot be loaded here.
const addon = join(root, "packages", "core", "prebuilds", `${process.platform}-${process.arch}`, "core.node");
const levels = existsSync(addon) ? createRequire(import.meta.url)(addon).cpuLevels() : [];
const native = nativePackages(...folders);
if (names.includes("core")) native.push("core-test");
run(process.execPath, [
  "scripts/native/build-native.mjs",
  ...native.flatMap((name) => ["--only", name]),
  `-DMLXTS_SANITIZE=${flag}`,
  `-DMLXTS_ONLY_LEVELS=${levels.join(";")}`,
]);
console.log(`${kind} ${native.join(" ")}: built after ${minutes()}`);

const found = spawnSync("c++", [`-print-file-name=${runtime}`], { encoding: "utf8" }).stdout.trim();
// Node.js and the test runner are not instrumented and not ours to judge.
const suppressions = join(copy, "suppressions.txt");
writeFileSync(suppressions, `race:${process.execPath}$\nrace:/node_modules/\n`);
run(
  process.execPath,
  [
    "node_modules/vitest/vitest.mjs",
    "run",
    "--testTimeout",
    "600000",
    ...names.map((name) => `packages/${name}/test`),
    ...forVitest,
  ],
  {
    env: {
      ...process.env,
      LD_PRELOAD: found,
      ASAN_OPTIONS: "detect_leaks=0:detect_odr_violation=0",
      UBSAN_OPTIONS: "print_stacktrace=1",
      TSAN_OPTIONS: `suppressions=${suppressions}:report_signal_unsafe=0:halt_on_error=1`,
    },
  },
);
console.log(`${kind} ${names.join(" ")}: clean after ${minutes()}`);
