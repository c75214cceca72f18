// `pnpm --filter @mlxts/norms bench`: builds native code at the level that this machine uses, and measures the ops of the
// package in this folder, or runs the programs named, of its bench/. Further arguments go to the benchmarks.
import { spawnSync } from "node:child_process";
import { join, relative } from "node:path";
import { buildNative } from "../native/native.mjs";
import { devDependencies, nativePackages } from "../native/workspace.mjs";
import { root } from "../setup/pnpm.mjs";

const folder = relative(root, process.cwd());
const given = process.argv.slice(2);
const programs = given.filter((name) => name.endsWith(".ts"));
const args = given.filter((name) => !programs.includes(name));

const packages = nativePackages(folder, ...(programs.length > 0 ? [] : ["apps/cli"]), ...devDependencies(folder));
if (folder === "packages/core") packages.push("core-test");
buildNative({ packages, levels: "best" });

const commands =
  programs.length > 0
    ? programs.map((name) => ["scripts/run-source.mjs", join(folder, "bench", name), ...args])
    : [["apps/cli/bin/mlxts.mjs", "bench", "op", "--package", folder.split("/")[1], ...args]];
for (const command of commands) {
  console.log(command.join(" "));
  const { status } = spawnSync(process.execPath, command, { cwd: root, stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
