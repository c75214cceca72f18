// Runs the pinned pnpm (package.json, `packageManager`) without anything installed beforehand.
import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");

/** Runs pnpm quietly; prints what it said and exits when it fails. */
export function pnpm(...args) {
  const { packageManager } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
  const { status, error, stdout, stderr } = spawnSync("npx", ["--yes", packageManager, ...args], {
    cwd: root,
    encoding: "utf8",
    maxBuffer: 1 << 28,
  });
  if (!error && status === 0) return stdout;
  process.stderr.write(`${stdout ?? ""}${stderr ?? ""}`);
  console.error(`${packageManager} ${args.join(" ")} failed: ${error?.message ?? `status ${status}`}`);
  process.exit(1);
}
