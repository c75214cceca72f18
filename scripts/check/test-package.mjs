// `pnpm --filter @mlxts/norms test`: runs the tests of the package in this folder; names of test files (or how they
// begin) and then options of vitest may follow. First builds the native code that they run on (core's and the package's
// own), for every instruction-set level of this machine.
import { spawnSync } from "node:child_process";
import { join, relative } from "node:path";
import { buildNative } from "../native/native.mjs";
import { nativeForTests } from "../native/workspace.mjs";
import { root } from "../setup/pnpm.mjs";

const folder = relative(root, process.cwd());
// Turborepo has run the packages' `native` scripts, or taken what they made from its cache.
// biome-ignore lint/suspicious/noUndeclaredEnvVars: Turborepo itself sets it
if (!process.env.TURBO_HASH) buildNative({ packages: nativeForTests(folder), levels: "runnable" });
const given = process.argv.slice(2);
const firstOption = given.findIndex((arg) => arg.startsWith("-"));
const options = firstOption < 0 ? [] : given.slice(firstOption);
const names = given.slice(0, given.length - options.length);
const files = names.length > 0 ? names.map((name) => `${folder}/test/${name}`) : [`${folder}/`];
const { status } = spawnSync(
  process.execPath,
  [join(root, "node_modules", "vitest", "vitest.mjs"), "run", ...files, ...options],
  { cwd: root, stdio: "inherit" },
);
process.exit(status ?? 1);
