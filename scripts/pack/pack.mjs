// Builds every package and packs it as it is published: node scripts/pack/pack.mjs FOLDER [--this-machine [--quick]]
// Refuses while a promised binary is missing: what this machine cannot build has to lie in packages/*/prebuilds.
//   --this-machine   pack what there is, for tests on this machine; not to be published
//   --quick          with it: kernels of the best instruction-set level, and no types
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { parseArgs } from "node:util";
import { installed } from "../native/nvrtc.mjs";
import { pnpm, root } from "../setup/pnpm.mjs";
import { missingBinaries } from "./promised.mjs";

function refuse(message) {
  console.error(message);
  process.exit(1);
}

function readArguments() {
  const options = { "this-machine": { type: "boolean", default: false }, quick: { type: "boolean", default: false } };
  const { positionals, values } = parseArgs({ allowPositionals: true, strict: false, options });
  const unknown = Object.keys(values).some((name) => !(name in options));
  if (unknown || positionals.length !== 1 || (values.quick && !values["this-machine"]))
    refuse("usage: node scripts/pack/pack.mjs FOLDER [--this-machine [--quick]]");
  return { target: resolve(positionals[0]), whole: !values["this-machine"], quick: values.quick };
}

const { target, whole, quick } = readArguments();

function build(script, ...args) {
  const command = [join(root, "scripts", "native", script), ...args];
  const { status } = spawnSync(process.execPath, command, { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
if (quick) {
  build("build-native.mjs", "--levels", "best");
  process.env.MLXTS_BUNDLE_TYPES = "0";
} else {
  build("build-native.mjs");
  // The addon that CMake links may need a newer libc than that of users.
  if (process.platform === "linux") build("build-linux.mjs");
  if (installed()) build("build-cuda.mjs");
  else console.error("no kernels for CUDA are built: `npm run cuda` installs their compiler");
}
const missing = whole ? missingBinaries(root) : [];
if (missing.length > 0)
  refuse(
    `nothing is packed, since binaries that README.md promises are missing:\n  ${missing.join("\n  ")}\n` +
      "`npm run native` on a Mac or `npm run darwin` builds those for macOS, `npm run linux` on x64 those for Linux, " +
      "`npm run cuda` those for CUDA; --this-machine packs without them",
  );
mkdirSync(target, { recursive: true });
process.env.TURBO_TELEMETRY_DISABLED = "1";
pnpm("exec", "turbo", "run", "bundle");
const published = ["./packages/*", "./apps/*", "!@mlxts/common", "!@mlxts/test-kit"].flatMap((each) => [
  "--filter",
  each,
]);
pnpm("-r", ...published, "exec", "pnpm", "pack", "--pack-destination", target);
for (const file of readdirSync(target)) console.log(file);
