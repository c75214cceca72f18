// Runs core's tests (and those of the packages named) on binaries built with a sanitizer, in a copy of the sources under
// build/, so that the normal binaries stay: node scripts/sanitize.mjs address|thread [PACKAGE...]
import { spawnSync } from "node:child_process";
import { cpSync, mkdirSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const [kind, ...named] = process.argv.slice(2);
const KINDS = {
  address: { flag: "address,undefined", runtime: "libasan.so" },
  thread: { flag: "thread", runtime: "libtsan.so" },
};
if (!Object.hasOwn(KINDS, kind)) {
  console.error("usage: node scripts/sanitize.mjs address|thread [PACKAGE...]");
  process.exit(1);
}
const { flag, runtime } = KINDS[kind];
const packages = [...new Set(["core", ...named])];
const copy = join(root, "build", `sanitize-${kind}`);

function run(command, args, options = {}) {
  const { status, error } = spawnSync(command, args, { cwd: copy, stdio: "inherit", ...options });
  if (error) console.error(`cannot run ${command}: ${error.message}`);
  if (error || status !== 0) process.exit(status ?? 1);
}

const skipped = new Set(["prebuilds", "dist", "build"]);
const take = (path) => {
  rmSync(join(copy, path), { recursive: true, force: true });
  cpSync(join(root, path), join(copy, path), {
    recursive: true,
    verbatimSymlinks: true,
    filter: (source) => !skipped.has(basename(source)),
  });
};
mkdirSync(copy, { recursive: true });
for (const name of readdirSync(join(root, "packages")))
  if (packages.includes(name)) take(join("packages", name));
  else rmSync(join(copy, "packages", name), { recursive: true, force: true });
for (const path of ["scripts", "fixtures", "CMakeLists.txt", "vitest.config.ts", "tsconfig.base.json", "package.json"])
  take(path);
// Everything that is installed, but the packages of the copy for those of this repository.
const modules = join(copy, "node_modules");
rmSync(modules, { recursive: true, force: true });
mkdirSync(join(modules, "@mlxts"), { recursive: true });
for (const name of readdirSync(join(root, "node_modules")))
  if (name !== "@mlxts") symlinkSync(join(root, "node_modules", name), join(modules, name));
for (const name of packages) symlinkSync(join(copy, "packages", name), join(modules, "@mlxts", name));

for (const name of packages)
  run(process.execPath, ["scripts/build-native.mjs", "--only", name, `-DMLXTS_SANITIZE=${flag}`]);

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
    ...packages.map((name) => `packages/${name}/test`),
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
