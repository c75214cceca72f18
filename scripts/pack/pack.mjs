// Builds every package and packs it as it would be published: node scripts/pack/pack.mjs FOLDER
import { spawnSync } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join, resolve } from "node:path";
import { installed } from "../native/nvrtc.mjs";
import { pnpm, root } from "../setup/pnpm.mjs";

const [folder] = process.argv.slice(2);
if (!folder) {
  console.error("usage: node scripts/pack/pack.mjs FOLDER");
  process.exit(1);
}
const target = resolve(folder);
mkdirSync(target, { recursive: true });

function build(script) {
  const { status } = spawnSync(process.execPath, [join(root, "scripts", "native", script)], { stdio: "inherit" });
  if (status !== 0) process.exit(status ?? 1);
}
build("build-native.mjs");
// The addon that CMake links may need a newer libc than that of users.
if (process.platform === "linux") build("build-linux.mjs");
if (installed()) build("build-cuda.mjs");
else console.error("the packages have no kernels for CUDA: `npm run cuda` installs their compiler");
process.env.TURBO_TELEMETRY_DISABLED = "1";
pnpm("exec", "turbo", "run", "bundle");
const published = ["./packages/*", "./apps/*", "!@mlxts/test-kit"].flatMap((each) => ["--filter", each]);
pnpm("-r", ...published, "exec", "pnpm", "pack", "--pack-destination", target);
for (const file of readdirSync(target)) console.log(file);
