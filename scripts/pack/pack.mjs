// Builds every package and packs it as it would be published: node scripts/pack/pack.mjs FOLDER [--this-machine]
// With `--this-machine`: what programs on this machine need, binaries of its best instruction-set level and no types.
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { installed } from "../native/nvrtc.mjs";
import { pnpm, root } from "../setup/pnpm.mjs";

const [folder, scope] = process.argv.slice(2);
if (!folder || ![undefined, "--this-machine"].includes(scope)) {
  console.error("usage: node scripts/pack/pack.mjs FOLDER [--this-machine]");
  process.exit(1);
}
const target = resolve(folder);
mkdirSync(target, { recursive: true });

function build(script, ...args) {
  const command = [join(root, "scripts", "native", script), ...args];
  const { status } = spawnSync(process.execPath, command, { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
if (scope === "--this-machine") {
  build("build-native.mjs", "--levels", "best");
  process.env.MLXTS_BUNDLE_TYPES = "0";
} else {
  build("build-native.mjs");
  // The addon that CMake links may need a newer libc than that of users.
  if (process.platform === "linux") build("build-linux.mjs");
  if (installed()) build("build-cuda.mjs");
  else console.error("the packages have no kernels for CUDA: `npm run cuda` installs their compiler");
}
process.env.TURBO_TELEMETRY_DISABLED = "1";
pnpm("exec", "turbo", "run", "bundle");
const published = ["./packages/*", "./apps/*", "!@mlxts/common", "!@mlxts/test-kit"].flatMap((each) => [
  "--filter",
  each,
]);
pnpm("-r", ...published, "exec", "pnpm", "pack", "--pack-destination", target);
for (const file of readdirSync(target)) console.log(file);
