// Faults for the Metal host code, one at a time: each entry of metal_host_mutants.json is a text of a file, what takes its
// place, and for one that changes nothing the reason. Core's Metal tests must fail with every other.
import { spawn } from "node:child_process";
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { core, fail, root } from "../native/clang.mjs";

const LIMIT_MS = 240_000;
const built = join(root, "build", "metal-sim");

/** Runs a command to its end, or to `limit` milliseconds, when it and its children are ended. */
function run(command, args, { env = {}, limit } = {}) {
  return new Promise((resolve) => {
    const child = spawn(command, args, { cwd: root, env: { ...process.env, ...env }, detached: true });
    let output = "";
    let late = false;
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (text) => {
        output += text;
      });
    const timer =
      limit &&
      setTimeout(() => {
        late = true;
        process.kill(-child.pid, "SIGKILL");
      }, limit);
    child.on("close", (status) => {
      clearTimeout(timer);
      resolve({ status, output, late });
    });
  });
}

const lines = (path) => readFileSync(path, "utf8").split("\n");
const objectOf = (source) => join(built, `packages-core-native-${source}.o`);

/** The sources whose objects were made from `file`. */
const madeFrom = (file) =>
  readdirSync(core).filter(
    (source) =>
      existsSync(`${objectOf(source)}.d`) && readFileSync(`${objectOf(source)}.d`, "utf8").includes(`/${file}`),
  );

/** An addon that differs from the tested one in one place; its path, or what the compiler says. */
async function build({ file, is, becomes }, folder) {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  cpSync(core, join(folder, "native"), { recursive: true });
  const text = readFileSync(join(core, file), "utf8");
  writeFileSync(
    join(folder, "native", file),
    text.replace(is, () => becomes),
  );
  const moved = new Map();
  for (const source of madeFrom(file)) {
    const object = join(folder, `${source}.o`);
    const command = lines(`${objectOf(source)}.cmd`).map((word) =>
      word === join(core, source) ? join(folder, "native", source) : word.replace(objectOf(source), object),
    );
    const { status, output } = await run(command[0], [...command.slice(1), "-w"]);
    if (status !== 0) return { error: output };
    moved.set(objectOf(source), object);
  }
  const addon = join(folder, "core-metal-sim.node");
  const link = lines(join(built, "core-metal-sim.link")).map((word) =>
    basename(word) === basename(addon) ? addon : (moved.get(word) ?? word),
  );
  const { status, output } = await run(link[0], link.slice(1));
  return status === 0 ? { addon } : { error: output };
}

/** What of core's Metal tests fails with this addon, or nothing. */
async function judge(addon) {
  const vitest = join(root, "node_modules", "vitest", "vitest.mjs");
  const args = [vitest, "run", "--bail=1", "--reporter=json", "--silent=true", "--testTimeout=20000"];
  const { status, output, late } = await run(process.execPath, [...args, "packages/core/test/metal"], {
    env: { MLXTS_METAL_SIM: addon },
    limit: LIMIT_MS,
  });
  if (late) return "the tests do not end";
  if (status === 0) return undefined;
  const failed = /"fullName":"((?:[^"\\]|\\.)*)","status":"failed"/.exec(output)?.[1];
  const rule = /metal-sim: (broken rule: [^\n\\"]*)/.exec(output)?.[1];
  return rule ?? failed ?? "a test file ends the process";
}

/** Judges all mutants, or those whose file or text contains `part`; whether every one is killed or explained. */
export async function judgeMutants(part, jobs) {
  const all = JSON.parse(readFileSync(join(root, "scripts", "metal", "metal_host_mutants.json"), "utf8"));
  const show = ({ file, is, becomes }) => `${file}: ${is.trim()} → ${becomes.trim() || "(nothing)"}`;
  const stale = all.filter(({ file, is }) => readFileSync(join(core, file), "utf8").split(is).length !== 2);
  for (const mutant of stale) console.log(`✗ not found exactly once: ${show(mutant)}`);
  const folder = join(root, "build", "metal-host-mutants");
  if (
    (await judge(join(root, "packages", "core", "prebuilds", `linux-${process.arch}`, "core-metal-sim.node"))) !==
    undefined
  )
    fail("core's Metal tests fail as they are: they judge nothing");
  const waiting = all.filter((mutant) => !stale.includes(mutant) && show(mutant).includes(part));
  const counts = { killed: 0, explained: 0, survived: 0 };
  const worker = async (_, index) => {
    for (let mutant = waiting.shift(); mutant; mutant = waiting.shift()) {
      const { addon, error } = await build(mutant, join(folder, String(index)));
      const by = error ? undefined : await judge(addon);
      if (error) console.log(`✗ does not compile: ${show(mutant)}\n${error}`);
      else if (by && mutant.reason) console.log(`✗ explained, but killed: ${show(mutant)}\n    by ${by}`);
      else if (by) console.log(`✓ ${show(mutant)}\n    by ${by}`);
      else
        console.log(
          `${mutant.reason ? "✓" : "✗"} survives: ${show(mutant)}${mutant.reason ? `\n    ${mutant.reason}` : ""}`,
        );
      counts[by && !mutant.reason ? "killed" : mutant.reason && !by && !error ? "explained" : "survived"]++;
    }
  };
  await Promise.all(Array.from({ length: jobs }, worker));
  console.log(`${counts.killed} killed, ${counts.explained} explained, ${counts.survived} unexplained`);
  return counts.survived + stale.length === 0;
}
