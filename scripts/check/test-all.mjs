// `npm run test:all`, the second ring of the tests: all suites at every instruction-set level of this machine and, where
// clang 19 is installed, on the simulated Metal device under four schedules; cross builds; packed packages on three
// versions of Node.js. Ends with one line of counts.
//   --package NAME   only this package's tests (a folder of packages/ or apps/); may be repeated
//   --affected       only packages that changed since the merge base with origin/main, the last tag, or the last commit
//   --minutes N      begins no package after so many minutes, ends what then runs, and names what has not run
//   --bail           ends with the first test that fails
//   --report         prints a table of the parts with their times
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { installed } from "../native/nvrtc.mjs";
import { pnpm, root } from "../setup/pnpm.mjs";
import {
  bailOf,
  hasClang,
  KERNEL_CASES,
  metalSimulator,
  NO_CLANG,
  nativeFor,
  node,
  Parts,
  pathsOf,
  readArguments,
  refuse,
  script,
  sourceChecks,
} from "./parts.mjs";

const { values } = readArguments({
  affected: { type: "boolean", default: false },
  minutes: { type: "string", default: "Infinity" },
});
const minutes = Number(values.minutes);
if (!(minutes > 0)) refuse(`--minutes must be a number above 0, got ${values.minutes}`);
const until = Date.now() + minutes * 60_000;
const bail = bailOf(values);
const parts = new Parts();
// What no test runs need not be fast (scripts/native/unoptimized.mjs).
process.env.MLXTS_UNOPTIMIZED = "1";

/** Packages with Metal kernels or models, which are tested on the simulated device. */
const ON_METAL = ["norms", "quant4", "nn", "delta-rule", "moe", "mla", "models"];

/** Tests that are the same on each device: of references and of text, and of what other threads do to a CPU's kernels. */
const SAME_ON_EACH = [
  "mutants",
  "delta-rule/test/references",
  "mla/test/recorded_layer",
  "mla/test/rotary",
  "models/test/chat_template",
  "models/test/structure",
  "models/test/untrusted",
  "shared_indices",
].map((name) => `**/*${name}.test.ts`);

/** Tests of a package that open the CPU and nothing else, whatever `MLXTS_DEVICE` is: on another device they are the same. */
const onCpu = (name) =>
  readdirSync(join(root, "packages", name, "test"))
    .filter((file) => file.endsWith(".test.ts"))
    .map((file) => join("packages", name, "test", file))
    .filter((path) => {
      const text = readFileSync(join(root, path), "utf8");
      return (
        /Device\.open\("cpu"|\b(tiny|open)OnCpu\b/.test(text) &&
        !/Device\.open\(\)|\b(DEVICES|ORDERS|openSimulated|MLXTS_DEVICE)\b/.test(text)
      );
    });

const testOnMetal = (name, packages) =>
  parts.vitest(
    name,
    // A kernel that compile_kernels.ts has not compiled is compiled by the first test that uses it.
    [
      ...pathsOf(packages),
      ...[...SAME_ON_EACH, ...packages.flatMap(onCpu)].map((path) => `--exclude=${path}`),
      "--testTimeout=300000",
      ...bail,
    ],
    { env: { MLXTS_DEVICE: "metal", MLXTS_METAL_SIM: "1" }, until },
  );

/** The commit before the change: on a branch its merge base; on main the last tag, or the commit before. */
function baseOfChange() {
  const git = (...args) => {
    const { status, stdout } = spawnSync("git", args, { cwd: root, encoding: "utf8" });
    return status === 0 ? stdout.trim() : undefined;
  };
  const head = git("rev-parse", "HEAD");
  const candidates = [
    git("merge-base", "HEAD", "origin/main"),
    git("describe", "--tags", "--abbrev=0"),
    git("rev-parse", "HEAD~1"),
  ];
  return candidates.find((each) => each !== undefined && each !== head);
}

/** The folders' names of packages that the change touches, and of those that use them, as Turborepo tells them. */
function affectedPackages() {
  const base = baseOfChange();
  if (base === undefined) return [];
  process.env.TURBO_SCM_BASE = base;
  process.env.TURBO_TELEMETRY_DISABLED = "1";
  const said = pnpm("exec", "turbo", "ls", "--affected", "--output=json");
  const { packages } = JSON.parse(said.slice(said.indexOf("{")));
  return packages.items.map(({ path }) => basename(path));
}

/** Some packages, one after another: at every level, then on simulated Metal. */
async function some(packages) {
  console.log(`second ring of: ${packages.join(", ") || "nothing, since no package has changed"}`);
  if (packages.length === 0) return;
  await parts.need("set-up", node, [
    script("setup/setup.mjs"),
    "--levels",
    "runnable",
    "--tests",
    ...nativeFor(packages),
  ]);
  if (hasClang) await parts.checks([metalSimulator]);
  const runs = packages.flatMap((name) => {
    const env = { MLXTS_TEST_PACKAGES: name };
    const onMetal = `${name} on simulated Metal`;
    return [
      { what: name, test: () => parts.vitest(name, [...pathsOf([name]), KERNEL_CASES, ...bail], { env, until }) },
      ...(hasClang && ON_METAL.includes(name) ? [{ what: onMetal, test: () => testOnMetal(onMetal, [name]) }] : []),
    ];
  });
  const notRun = [];
  for (const { what, test } of runs) {
    const stopped = values.bail && parts.counts.failed > 0;
    if (stopped || Date.now() >= until || !(await test())) notRun.push(what);
  }
  if (notRun.length > 0) console.log(`not run to the end: ${notRun.join(", ")} (npm run test:all -- --package NAME)`);
}

async function everything() {
  await parts.need("set-up", node, [script("setup/setup.mjs")]);
  const linux =
    process.platform === "linux" ? [{ name: "binaries for Linux", args: [script("native/build-linux.mjs")] }] : [];
  // One at a time installs tools into build/.
  const after = linux.map(({ name }) => name);
  const nodes = {
    name: "Node.js 22 and 24, Deno and Bun, to test packages on",
    args: [script("setup/install-nodes.mjs")],
    after,
  };
  const cuda = hasClang && installed();
  await parts.checks([
    ...sourceChecks,
    ...linux,
    nodes,
    ...(hasClang
      ? [
          metalSimulator,
          {
            name: "Metal kernels for the simulator",
            args: [script("run-source.mjs"), script("metal/compile_kernels.ts")],
            after: [metalSimulator.name],
          },
          { name: "binaries for macOS", args: [script("native/build-darwin.mjs")], after },
          { name: "declarations of Metal", args: [script("metal/check-metal-api.mjs")], after: [nodes.name] },
        ]
      : []),
    ...(cuda ? [{ name: "kernels for CUDA", args: [script("native/build-cuda.mjs")] }] : []),
  ]);
  await parts.vitest("cpu", bail);
  if (hasClang) await testOnMetal("metal", ON_METAL);
  else console.log(NO_CLANG);
  if (!cuda) console.log("no kernels for CUDA were built: they need clang 19 and NVRTC (npm run cuda)");
}

// The same cases run on the CPU, in `mlxts verify` and on Metal: what references give is kept for as long.
const references = join(root, "build", "references");
rmSync(references, { recursive: true, force: true });
mkdirSync(references, { recursive: true });
process.env.MLXTS_REFERENCES = references;

if (values.affected || values.package.length > 0) await some(values.affected ? affectedPackages() : values.package);
else await everything();
rmSync(references, { recursive: true });
if (values.report) parts.report();
parts.end();
