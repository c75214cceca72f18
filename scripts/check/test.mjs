// `npm test`: set-up, generated files, types, lint, unused code, all tests, and where clang 19 is installed the op
// and model tests once more on the simulated Metal device. Ends with one line of counts.
import { spawn, spawnSync } from "node:child_process";
import { mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { installed } from "../native/nvrtc.mjs";
import { root } from "../setup/pnpm.mjs";

const bin = (name) => join(root, "node_modules", ".bin", name);
const script = (name) => join(root, "scripts", name);
const seconds = (since) => `${((performance.now() - since) / 1000).toFixed(1)} s`;
const node = process.execPath;
mkdirSync(join(root, "build"), { recursive: true });

// What no test runs need not be fast (scripts/native/unoptimized.mjs).
process.env.MLXTS_UNOPTIMIZED = "1";
const setUp = performance.now();
const ready = spawnSync(node, [script("setup/setup.mjs")], { stdio: "inherit" });
if (ready.status !== 0) process.exit(ready.status ?? 1);
console.log(`✓ set-up (${seconds(setUp)})`);

/** What is checked and built before the tests: [name, command, arguments, names of those that must have ended before]. */
const checks = [
  ["generated headers", node, ["scripts/run-source.mjs", "scripts/generate/generate.ts", "--check"]],
  ["types", bin("tsc"), ["-p", "tsconfig.json"]],
  ["format and lint", bin("biome"), ["check", "--error-on-warnings", "."]],
  ["unused code", bin("knip"), []],
];
const clang = process.platform === "linux" && spawnSync("clang++-19", ["--version"], { stdio: "ignore" }).status === 0;
// The tests that follow run on the addon that is shipped.
const linux = process.platform === "linux" ? ["binaries for Linux"] : [];
for (const name of linux) checks.push([name, node, [script("native/build-linux.mjs")]]);
// One at a time installs tools into build/.
const nodes = "Node.js 22 and 24, to test packages on";
checks.push([nodes, node, [script("setup/install-nodes.mjs")], linux]);
if (clang)
  checks.push(
    ["Metal simulator", node, [script("native/build-metal-sim.mjs")]],
    [
      "Metal kernels for the simulator",
      node,
      [script("run-source.mjs"), script("metal/compile_kernels.ts")],
      ["Metal simulator"],
    ],
    ["binaries for macOS", node, [script("native/build-darwin.mjs")], linux],
    ["declarations of Metal", node, [script("metal/check-metal-api.mjs")], [nodes]],
  );
const cuda = clang && installed();
if (cuda) checks.push(["kernels for CUDA", node, [script("native/build-cuda.mjs")]]);

const counts = { passed: 0, failed: 0, skipped: 0 };
/** One line for each failure; they are printed last, since each lies in thousands of lines of output. */
const failures = [];

/** Runs a command; gives its status and all it said. */
function run(command, args) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, stdio: ["ignore", "pipe", "pipe"] });
    const said = [];
    for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => said.push(data));
    child.on("error", (error) => said.push(Buffer.from(`${error.message}\n`)));
    child.on("close", (status) => resolve({ ok: status === 0, said: Buffer.concat(said).toString() }));
  });
}

const ended = new Set();
const waiting = [...checks];
/** Runs one check after another, while another of these does the same: many use one processor, or wait for the network. */
async function runChecks() {
  while (waiting.length > 0) {
    const next = waiting.findIndex(([, , , after = []]) => after.every((name) => ended.has(name)));
    // What is left waits for what the other one runs, which goes on with it.
    if (next < 0) return;
    const [[name, command, args]] = waiting.splice(next, 1);
    const started = performance.now();
    const { ok, said } = await run(command, args);
    console.log(`${ok ? "✓" : "✗"} ${name} (${seconds(started)})`);
    if (!ok) {
      process.stdout.write(said);
      failures.push(name);
    }
    counts[ok ? "passed" : "failed"]++;
    ended.add(name);
  }
}
await Promise.all([runChecks(), runChecks()]);

/** Runs vitest and adds what it counted. */
function test(name, paths, env = {}) {
  const report = join(root, "build", `vitest-${name}.json`);
  rmSync(report, { force: true });
  const { status } = spawnSync(
    bin("vitest"),
    ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`, ...paths],
    { cwd: root, stdio: "inherit", env: { ...process.env, ...env } },
  );
  let failed = 0;
  try {
    const result = JSON.parse(readFileSync(report, "utf8"));
    counts.passed += result.numPassedTests;
    counts.skipped += result.numPendingTests + result.numTodoTests;
    failed = result.numFailedTests;
    // A file that failed to load has no failing test of its own.
    if (!result.success && failed === 0) failed = Math.max(1, result.numFailedTestSuites);
    for (const file of result.testResults) {
      const path = relative(root, file.name);
      const tests = file.assertionResults.filter(({ status }) => status === "failed");
      for (const { fullName, failureMessages } of tests)
        failures.push(`${name}: ${path}: ${fullName}\n    ${failureMessages[0]?.split("\n", 3).join("\n    ")}`);
      if (file.assertionResults.some(({ status }) => status === "pending"))
        failures.push(`${name}: ${path}: its process ended before its tests did`);
      if (file.status === "failed" && tests.length === 0) failures.push(`${name}: ${path}: ${file.message}`);
    }
  } catch (error) {
    failures.push(`${name}: no test report: ${error.message}`);
    failed = 1;
  }
  if (status !== 0 && failed === 0) {
    failures.push(`${name}: vitest ended with ${status}; errors outside of tests stand above`);
    failed = 1;
  }
  counts.failed += failed;
}

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

// The same cases run on the CPU, in `mlxts verify` and on Metal: what references give is kept for as long.
const references = join(root, "build", "references");
rmSync(references, { recursive: true, force: true });
mkdirSync(references);
process.env.MLXTS_REFERENCES = references;

const given = process.argv.slice(2);
test("cpu", given);
if (clang && given.length === 0) {
  const started = performance.now();
  const packages = ["norms", "quant4", "nn", "delta-rule", "moe", "mla", "models"];
  const same = [...SAME_ON_EACH, ...packages.flatMap(onCpu)];
  test(
    "metal",
    // A kernel that compile_kernels.ts has not compiled is compiled by the first test that uses it.
    [
      ...packages.map((name) => `packages/${name}/`),
      ...same.map((path) => `--exclude=${path}`),
      "--testTimeout=300000",
    ],
    { MLXTS_DEVICE: "metal", MLXTS_METAL_SIM: "1" },
  );
  console.log(`Metal simulator: ${seconds(started)}`);
} else if (!clang)
  console.log("no clang 19 here: nothing ran on the Metal simulator (apt-get install clang-19 libobjc-12-dev, …)");
rmSync(references, { recursive: true });
if (!cuda) console.log("no kernels for CUDA were built: they need clang 19 and NVRTC (npm run cuda)");

for (const failure of failures) console.log(`✗ ${failure}`);
console.log(`${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped`);
process.exit(counts.failed === 0 ? 0 : 1);
