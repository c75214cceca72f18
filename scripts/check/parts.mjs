// What `npm test` and `npm run test:all` are made of: parts that run commands, are counted and timed, and one closing line.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { join, relative } from "node:path";
import { parseArgs } from "node:util";
import { root } from "../setup/pnpm.mjs";

export const bin = (name) => join(root, "node_modules", ".bin", name);
export const script = (name) => join(root, "scripts", name);
export const node = process.execPath;

/** Ends the program: the tests could not begin. */
export function refuse(message) {
  console.error(message);
  process.exit(2);
}

/** The command line, read with these options beside those that both rings have. */
export function readArguments(more, config = {}) {
  const options = {
    package: { type: "string", multiple: true, default: [] },
    bail: { type: "boolean", default: false },
    report: { type: "boolean", default: false },
    ...more,
  };
  try {
    return parseArgs({ ...config, options });
  } catch (error) {
    return refuse(error.message);
  }
}

/** Options of vitest. */
export const bailOf = ({ bail }) => (bail ? ["--bail=1"] : []);

export const NO_CLANG =
  "no clang 19 here: nothing ran on the Metal simulator (apt-get install clang-19 libobjc-12-dev, …)";

/** The simulator runs on Linux, with clang 19. */
export const hasClang =
  process.platform === "linux" && spawnSync("clang++-19", ["--version"], { stdio: "ignore" }).status === 0;

export const sourceChecks = [
  { name: "generated files", args: ["scripts/run-source.mjs", "scripts/generate/generate.ts", "--check"] },
  { name: "types", command: bin("tsc"), args: ["-p", "tsconfig.json"] },
  { name: "format and lint", command: bin("biome"), args: ["check", "--error-on-warnings", "."] },
  { name: "unused code", command: bin("knip"), args: [] },
];

export const metalSimulator = { name: "Metal simulator", args: [script("native/build-metal-sim.mjs")] };

/** The folder of a package that `--package` names: `norms`, `cli`. */
function folderOf(name) {
  const folder = ["packages", "apps"].map((group) => `${group}/${name}`).find((path) => existsSync(join(root, path)));
  return folder ?? refuse(`--package: there is no package \`${name}\` in packages/ or apps/`);
}

/** Folders for setup.mjs: those of the packages, and for core its tests' libraries. Nothing: all. */
export const nativeFor = (packages) => packages.map(folderOf);

/** Arguments of vitest for the tests in the folders of packages. */
export const pathsOf = (packages) => packages.map((name) => `${folderOf(name)}/`);

/** The file that runs kernels of some packages on all devices, which MLXTS_TEST_PACKAGES names. */
export const KERNEL_CASES = "scripts/check/kernel_cases";

/** `sh` runs the command and writes, to a pipe of its own, the processor time of the command and all that it has started. */
const TIMED = '"$@"; status=$?; times >&3; exit $status';

/** Seconds in the last line that `times` writes, user's and system's: `1m2.5s 0m0.3s`. */
const processorSeconds = (text) =>
  [...(text.trim().split("\n").at(-1) ?? "").matchAll(/(\d+)m([\d.]+)s/g)].reduce(
    (sum, [, minutes, seconds]) => sum + Number(minutes) * 60 + Number(seconds),
    0,
  );

const running = new Set();
process.on("exit", () => {
  for (const child of running) stop(child);
});
for (const signal of ["SIGINT", "SIGTERM"]) process.on(signal, () => process.exit(1));

/** Ends a command and all that it has started: each has a process group of its own. */
function stop(child) {
  try {
    process.kill(-child.pid, "SIGTERM");
  } catch {
    // It has ended.
  }
}

/** Runs a command. `shown`: its output goes to the terminal; else it is returned. `until`: it is ended then (`Date.now()`). */
export function run(command, args, { env = {}, shown = false, until = Number.POSITIVE_INFINITY } = {}) {
  const started = performance.now();
  const output = shown ? "inherit" : "pipe";
  return new Promise((resolve) => {
    const child = spawn("sh", ["-c", TIMED, "sh", command, ...args], {
      cwd: root,
      detached: true,
      env: { ...process.env, ...env },
      stdio: ["ignore", output, output, "pipe"],
    });
    running.add(child);
    const said = [];
    let times = "";
    for (const stream of [child.stdout, child.stderr]) stream?.on("data", (data) => said.push(data));
    child.stdio[3].on("data", (data) => {
      times += data;
    });
    let ended = false;
    const limit = Number.isFinite(until)
      ? setTimeout(
          () => {
            ended = true;
            stop(child);
          },
          Math.max(0, until - Date.now()),
        )
      : undefined;
    child.on("error", (error) => said.push(Buffer.from(`${error.message}\n`)));
    child.on("close", (status) => {
      running.delete(child);
      clearTimeout(limit);
      const wall = (performance.now() - started) / 1000;
      resolve({
        ok: status === 0,
        status,
        ended,
        said: Buffer.concat(said).toString(),
        wall,
        processor: processorSeconds(times),
      });
    });
  });
}

/** One run of the tests: its parts, what they counted, and what failed. */
export class Parts {
  counts = { passed: 0, failed: 0, skipped: 0 };
  /** One line for each failure; they are printed last, since each lies in thousands of lines of output. */
  failures = [];
  #rows = [];

  #note(name, { ok, wall, processor }) {
    this.#rows.push({ name, wall, processor });
    console.log(`${ok ? "✓" : "✗"} ${name} (${wall.toFixed(1)} s)`);
  }

  /** A command that everything after it needs: its failure ends the program with status 2. */
  async need(name, command, args, env) {
    const result = await run(command, args, { env, shown: true });
    this.#note(name, result);
    if (!result.ok) process.exit(2);
  }

  async #check({ name, command = node, args, env }) {
    const result = await run(command, args, { env });
    this.#note(name, result);
    if (!result.ok) {
      process.stdout.write(result.said);
      this.failures.push(name);
    }
    this.counts[result.ok ? "passed" : "failed"]++;
  }

  /** Runs checks, two at a time: many use one processor. One waits for those that it names in `after`. */
  async checks(all) {
    const ended = new Set();
    const waiting = [...all];
    const lane = async () => {
      while (waiting.length > 0) {
        const next = waiting.findIndex(({ after = [] }) => after.every((name) => ended.has(name)));
        // The rest waits for what the other lane runs, which goes on with it.
        if (next < 0) return;
        const [check] = waiting.splice(next, 1);
        await this.#check(check);
        ended.add(check.name);
      }
    };
    await Promise.all([lane(), lane()]);
  }

  /** Runs vitest on files and adds what it counted. Returns false where it was ended at `until`: then what had ended counts. */
  async vitest(name, args, { env, until } = {}) {
    mkdirSync(join(root, "build"), { recursive: true });
    const report = join(root, "build", `vitest-${name.replaceAll(/\W+/g, "-")}.json`);
    const finished = report.replace(/json$/, "finished");
    for (const file of [report, finished]) rmSync(file, { force: true });
    const reporters = ["--reporter=default", "--reporter=json", `--outputFile.json=${report}`];
    if (until !== undefined) reporters.push(`--reporter=${script("check/finished_files.mjs")}`);
    const given = { ...env, MLXTS_FINISHED_FILES: finished };
    const result = await run(bin("vitest"), ["run", ...reporters, ...args], { env: given, shown: true, until });
    this.#note(name, result);
    if (result.ended) {
      this.#countFinished(name, finished);
      return false;
    }
    const failed = this.#count(name, report);
    this.counts.failed += failed;
    if (!result.ok && failed === 0) {
      this.failures.push(`${name}: vitest ended with ${result.status}; errors outside of tests stand above`);
      this.counts.failed++;
    }
    return true;
  }

  /** Adds what came of the files that had ended when the run was ended, which has no report. */
  #countFinished(name, finished) {
    const lines = existsSync(finished) ? readFileSync(finished, "utf8").split("\n").filter(Boolean) : [];
    for (const { file, counts, failures } of lines.map((line) => JSON.parse(line))) {
      for (const key of Object.keys(this.counts)) this.counts[key] += counts[key];
      for (const failure of failures)
        this.failures.push(`${name}: ${relative(root, file)}: ${failure.name}\n    ${failure.message.split("\n", 1)}`);
    }
  }

  #count(name, report) {
    let result;
    try {
      result = JSON.parse(readFileSync(report, "utf8"));
    } catch (error) {
      this.failures.push(`${name}: no test report: ${error.message}`);
      return 1;
    }
    this.counts.passed += result.numPassedTests;
    this.counts.skipped += result.numPendingTests + result.numTodoTests;
    for (const file of result.testResults) {
      const path = relative(root, file.name);
      const tests = file.assertionResults.filter(({ status }) => status === "failed");
      for (const { fullName, failureMessages } of tests)
        this.failures.push(`${name}: ${path}: ${fullName}\n    ${failureMessages[0]?.split("\n", 3).join("\n    ")}`);
      if (file.assertionResults.some(({ status }) => status === "pending"))
        this.failures.push(`${name}: ${path}: its process ended before its tests did`);
      if (file.status === "failed" && tests.length === 0) this.failures.push(`${name}: ${path}: ${file.message}`);
    }
    // A file that failed to load has no failing test of its own.
    if (!result.success && result.numFailedTests === 0) return Math.max(1, result.numFailedTestSuites);
    return result.numFailedTests;
  }

  /** A table of the parts, the longest first. */
  report() {
    const row = (name, wall, processor) => `| ${name} | ${wall.toFixed(1)} | ${processor.toFixed(1)} |`;
    const rows = this.#rows.sort((a, b) => b.processor - a.processor);
    const sum = (key) => rows.reduce((total, each) => total + each[key], 0);
    console.log(["| part | wall s | processor s |", "| --- | --- | --- |"].join("\n"));
    for (const { name, wall, processor } of rows) console.log(row(name, wall, processor));
    console.log(row("sum (parts overlap in wall time)", sum("wall"), sum("processor")));
  }

  /** Prints failures and the counts, and ends the program. */
  end() {
    for (const failure of this.failures) console.log(`✗ ${failure}`);
    const { passed, failed, skipped } = this.counts;
    console.log(`${passed} passed, ${failed} failed, ${skipped} skipped`);
    process.exit(failed === 0 ? 0 : 1);
  }
}
