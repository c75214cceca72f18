// Everything a clone needs before a command: dependencies and native code. A second run only checks.
//   node scripts/setup/setup.mjs [FOLDER...]
// With folders of packages: the native code that they run on, at the instruction-set level that this machine uses.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildNative } from "../native/native.mjs";
import { nativePackages } from "../native/workspace.mjs";
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
if (!existsSync(join(root, "build", "native"))) console.error("building native code …");
const folders = process.argv.slice(2);
buildNative(folders.length > 0 ? { packages: nativePackages(...folders), levels: "best" } : {});
