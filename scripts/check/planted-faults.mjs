// Plants the faults of planted_faults.json, one after another, and tells which of them the tests find:
//   node scripts/check/planted-faults.mjs [PATTERN...] [--ring 1|2] [--list] [--again] [--report FILE]
// PATTERN is a part of a fault's id or file, or its area. The tests of a ring that run are
// those of the packages that should notice. What an earlier run has reported is not judged once more, except with --again.
import { spawn, spawnSync } from "node:child_process";
import { appendFileSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
const RINGS = { 1: "scripts/check/test.mjs", 2: "scripts/check/test-all.mjs" };
/** What the tests end with where what they run on could not be built. */
const NOT_BUILT = 2;

function fail(message) {
  console.error(message);
  process.exit(1);
}

function readArguments() {
  try {
    const { values, positionals } = parseArgs({
      allowPositionals: true,
      options: {
        ring: { type: "string", default: "1" },
        list: { type: "boolean", default: false },
        again: { type: "boolean", default: false },
        report: { type: "string", default: join(root, "build", "planted-faults.jsonl") },
      },
    });
    if (!Object.hasOwn(RINGS, values.ring)) fail(`--ring must be 1 or 2, got ${values.ring}`);
    return { ...values, patterns: positionals };
  } catch (error) {
    return fail(error.message);
  }
}
const { ring, list, again, report: given, patterns } = readArguments();
const report = resolve(given);

const all = JSON.parse(readFileSync(join(root, "scripts", "check", "planted_faults.json"), "utf8"));
const isAsked = ({ id, file, area }) =>
  patterns.some((text) => id.includes(text) || file.includes(text) || area === text);
const chosen = patterns.length === 0 ? all : all.filter(isAsked);
if (chosen.length === 0) fail(`no fault fits ${patterns.join(" ")}`);
if (list) {
  for (const { id, file, fault } of chosen) console.log(`${id}  ${file}\n    ${fault}`);
  process.exit(0);
}

/** What has been reported of this ring: the last word on each fault. */
const reported = new Map();
if (existsSync(report))
  for (const line of readFileSync(report, "utf8").split("\n").filter(Boolean)) {
    const one = JSON.parse(line);
    if (one.ring === Number(ring)) reported.set(one.id, one);
  }

/** Puts the file back that has a fault in it. */
let restore = () => {};
/** The tests that are running. */
let child;
process.on("exit", () => restore());
for (const [signal, status] of Object.entries({ SIGINT: 130, SIGTERM: 143 }))
  process.on(signal, () => {
    if (child) process.kill(-child.pid, "SIGTERM");
    process.exit(status);
  });

/** Runs the tests; gives their status and the line that names the first failure. */
function test(packages) {
  const args = [RINGS[ring], ...packages.flatMap((name) => ["--package", name]), "--bail"];
  return new Promise((done, failed) => {
    // A group of its own, so that all that it starts can be ended with it.
    child = spawn(process.execPath, args, { cwd: root, detached: true, stdio: ["ignore", "pipe", "pipe"] });
    let said = "";
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (said += text));
    child.on("error", failed);
    child.on("close", (status) => {
      child = undefined;
      const lines = said.split("\n").map((line) => line.trim());
      const firstFailure = lines.find((line) => /^(✗|FAIL|×)\s/.test(line)) ?? lines.findLast(Boolean) ?? "";
      done({ status, firstFailure });
    });
  });
}

async function judge({ id, file, from, to, packages }) {
  const path = join(root, file);
  const { status: changed } = spawnSync("git", ["diff", "--quiet", "HEAD", "--", file], { cwd: root });
  if (changed !== 0) fail(`${file} differs from git HEAD: commit or undo that first`);
  const text = readFileSync(path, "utf8");
  if (text.split(from).length !== 2) fail(`${id}: \`from\` must occur once in ${file}`);
  const started = performance.now();
  restore = () => writeFileSync(path, text);
  try {
    writeFileSync(
      path,
      text.replace(from, () => to),
    );
    const { status, firstFailure } = await test(packages);
    if (![0, 1, NOT_BUILT].includes(status)) fail(`${id}: the tests ended with status ${status}: ${firstFailure}`);
    const found = status === NOT_BUILT ? "not compiled" : status === 1;
    const seconds = Math.round((performance.now() - started) / 1000);
    return { id, ring: Number(ring), found, seconds, ...(status !== 0 && { firstFailure }) };
  } finally {
    restore();
    restore = () => {};
  }
}

mkdirSync(dirname(report), { recursive: true });
for (const fault of chosen) {
  if (!again && reported.has(fault.id)) continue;
  console.log(`${fault.id}  ${fault.fault}`);
  const result = await judge(fault);
  appendFileSync(report, `${JSON.stringify(result)}\n`);
  reported.set(fault.id, result);
}

const WORDS = { true: "found", false: "survived", "not compiled": "did not compile" };
const results = chosen.map(({ id }) => reported.get(id));
for (const { id, found, seconds, firstFailure = "" } of results)
  console.log(`${id}  ${WORDS[found].padEnd(15)} ${`${seconds} s`.padStart(7)}  ${firstFailure.slice(0, 100)}`);
const count = (outcome) => results.filter(({ found }) => found === outcome).length;
console.log(`${results.length} planted, ${count(true)} found, ${count(false)} survived`);
process.exit(count(false) === 0 ? 0 : 1);
