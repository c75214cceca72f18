// Everything a clone needs before a command: dependencies and native code. A second run only checks.
//   node scripts/setup/setup.mjs [--levels best|runnable|all] [--tests] [FOLDER...]
// With folders of packages: the native code that they run on, by default at the instruction-set level that this machine
// uses; with `--tests` also what their tests run on.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildNative } from "../native/native.mjs";
import { nativeForTests, nativePackages } from "../native/workspace.mjs";
import { pnpm, root } from "./pnpm.mjs";

const [major] = process.versions.node.split(".");
if (Number(major) < 20) {
  console.error(`mlxts needs Node 20 or later, this is ${process.version}`);
  process.exit(1);
}

const lockfile = readFileSync(join(root, "pnpm-lock.yaml"), "utf8");
const stamp = join(root, "node_modules", ".mlxts-lockfile");
if (!existsSync(stamp) || readFileSync(stamp, "utf8") !== lockfile) {
  console.error("installing dependencies …");
  pnpm("install", "--frozen-lockfile");
  writeFileSync(stamp, lockfile);
}
const { values, positionals: folders } = parseArgs({
  allowPositionals: true,
  options: { levels: { type: "string" }, tests: { type: "boolean", default: false } },
});
const { levels = folders.length > 0 ? "best" : "all" } = values;
const packages = folders.length > 0 ? (values.tests ? nativeForTests : nativePackages)(...folders) : undefined;
buildNative({ packages, levels });
