// Runs core's tests of the Metal device, and the norms' suites, on an instrumented build over simulated Metal:
// `coverage` lists the lines of the host code that nothing executed, `sanitize` runs under AddressSanitizer and UBSan.
// `mutants [PART] [--jobs N]` plants the faults of metal_host_mutants.json, or those that contain PART, one at a time.
import { spawnSync } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { parseArgs } from "node:util";
import { core, fail, files, need, root } from "../native/clang.mjs";
import { judgeMutants } from "./metal_host_mutants.mjs";

const { positionals, values } = parseArgs({
  allowPositionals: true,
  options: { jobs: { type: "string", default: "2" } },
});
const [mode, part = ""] = positionals;
if (!["coverage", "sanitize", "mutants"].includes(mode))
  fail("usage: node scripts/metal/metal-host.mjs coverage | sanitize | mutants [PART] [--jobs N]");
const coverage = mode === "coverage";
const folder = join(root, "build", `metal-sim-${mode}`);
const addon = join(folder, "core-metal-sim.node");
const profiles = join(folder, "profiles");

function run(command, args, env = {}) {
  const { status } = spawnSync(command, args, { cwd: root, stdio: "inherit", env: { ...process.env, ...env } });
  if (status !== 0) process.exit(status ?? 1);
}
function output(command, args) {
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28 });
  return status === 0 ? stdout : fail(stderr);
}
if (mode === "mutants") {
  run(process.execPath, [join(root, "scripts", "native", "build-metal-sim.mjs")]);
  process.exit((await judgeMutants(part, Number(values.jobs))) ? 0 : 1);
}
for (const program of coverage ? ["llvm-cov-19", "llvm-profdata-19"] : ["clang++-19"])
  need(program, coverage ? "llvm-19" : "clang-19 libclang-rt-19-dev");

const build = coverage ? ["--coverage"] : ["--sanitize", "address,undefined"];
run(process.execPath, [join(root, "scripts", "native", "build-metal-sim.mjs"), ...build]);
rmSync(profiles, { recursive: true, force: true });

const runtime = `libclang_rt.asan-${process.arch === "arm64" ? "aarch64" : "x86_64"}.so`;
const special = coverage
  ? { LLVM_PROFILE_FILE: join(profiles, "%c%p.profraw") }
  : {
      LD_PRELOAD: output("clang++-19", [`-print-file-name=${runtime}`]).trim(),
      ASAN_OPTIONS: "detect_leaks=0:detect_odr_violation=0:use_sigaltstack=0",
      UBSAN_OPTIONS: "print_stacktrace=1",
    };
const vitest = [join(root, "node_modules", "vitest", "vitest.mjs"), "run", "--testTimeout", "600000"];
const env = { ...special, MLXTS_METAL_SIM: addon };
run(process.execPath, [...vitest, "packages/core/test/metal"], env);
run(process.execPath, [...vitest, "packages/norms/"], { ...env, MLXTS_DEVICE: "metal" });

if (coverage) {
  const merged = join(folder, "merged.profdata");
  const raw = readdirSync(profiles).map((name) => join(profiles, name));
  output("llvm-profdata-19", ["merge", "-sparse", "-o", merged, ...raw]);
  const sources = files(core, ".mm").concat(files(core, ".h").filter((path) => basename(path).startsWith("metal_")));
  const shown = output("llvm-cov-19", ["show", "-instr-profile", merged, addon, ...sources]);
  let file = "";
  let executed = 0;
  const missed = [];
  for (const line of shown.split("\n")) {
    const [, count, text] = /^\s*\d+\|\s*([0-9.]+[kMG]?)\|(.*)$/.exec(line) ?? [];
    if (/^\/.*:$/.test(line)) file = basename(line.slice(0, -1));
    else if (count === "0") missed.push(`${file}: ${text.trim()}`);
    else if (count !== undefined) executed++;
  }
  for (const line of missed) console.log(`not executed: ${line}`);
  console.log(`${executed} of ${executed + missed.length} lines of the Metal host code executed`);
  if (missed.length > 0 || executed === 0) process.exit(1);
}
