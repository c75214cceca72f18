// `npm test` after set-up: generated files, types, lint, unused code, then all tests. Ends with one line of counts.
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { root } from "./pnpm.mjs";

const bin = (name) => join(root, "node_modules", ".bin", name);
const node = process.execPath;
const report = join(root, "build", "vitest.json");
mkdirSync(join(root, "build"), { recursive: true });
rmSync(report, { force: true });

const checks = [
  ["generated headers", node, ["scripts/run-source.mjs", "scripts/generate.ts", "--check"]],
  ["types", bin("tsc"), ["-p", "tsconfig.json"]],
  ["format and lint", bin("biome"), ["check", "--error-on-warnings", "."]],
  ["unused code", bin("knip"), []],
];

let passed = 0;
let failed = 0;
for (const [name, command, args] of checks) {
  const started = performance.now();
  const { status, stdout, stderr } = spawnSync(command, args, { cwd: root, encoding: "utf8", maxBuffer: 1 << 28 });
  const ok = status === 0;
  console.log(`${ok ? "✓" : "✗"} ${name} (${((performance.now() - started) / 1000).toFixed(1)} s)`);
  if (!ok) process.stdout.write(`${stdout}${stderr}`);
  if (ok) passed++;
  else failed++;
}

const vitest = spawnSync(
  bin("vitest"),
  ["run", "--reporter=default", "--reporter=json", `--outputFile.json=${report}`, ...process.argv.slice(2)],
  {
    cwd: root,
    stdio: "inherit",
  },
);
let skipped = 0;
try {
  const result = JSON.parse(readFileSync(report, "utf8"));
  passed += result.numPassedTests;
  failed += result.numFailedTests;
  skipped = result.numPendingTests + result.numTodoTests;
  // A file that failed to load has no failing test of its own.
  if (!result.success && result.numFailedTests === 0) failed += Math.max(1, result.numFailedTestSuites);
} catch (error) {
  console.error(`no test report: ${error.message}`);
  failed++;
}
if (vitest.status !== 0 && failed === 0) failed++;
console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
process.exit(failed === 0 ? 0 : 1);
