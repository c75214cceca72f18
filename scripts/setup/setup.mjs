// Everything a clone needs before its first command: dependencies and native code. A second run only checks.
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
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
await import("../native/build-native.mjs");
