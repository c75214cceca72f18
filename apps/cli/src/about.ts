// What reports say of the machine and of what is installed.
import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { cpus, type as osName, release } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { publicOps } from "./op_list.ts";
import { ownVersion } from "./version.ts";

/** This program, to be run in a process of its own: one directory above `src/` and above `dist/`. */
export const PROGRAM = fileURLToPath(new URL("../bin/mlxts.mjs", import.meta.url));

export interface System {
  platform: string;
  arch: string;
  os: string;
  cpu: string;
  node: string;
}

export function systemAbout(): System {
  const macos =
    process.platform === "darwin" ? spawnSync("sw_vers", ["-productVersion"], { encoding: "utf8" }).stdout : undefined;
  return {
    platform: process.platform,
    arch: process.arch,
    os: macos ? `macOS ${macos.trim()}` : `${osName()} ${release()}`,
    cpu: cpus()[0]?.model.trim() ?? "unknown CPU",
    node: process.versions.node,
  };
}

function installedVersion(name: string): string {
  const folders = createRequire(import.meta.url).resolve.paths(name) ?? [];
  const path = folders.map((folder) => join(folder, name, "package.json")).find((file) => existsSync(file));
  return path ? JSON.parse(readFileSync(path, "utf8")).version : "unknown";
}

/** Versions of this program, of core and of the packages of ops. */
export function versions(): Record<string, string> {
  const packages = new Set([...publicOps().values()].map((op) => op.package));
  return {
    mlxts: ownVersion(),
    ...Object.fromEntries(["@mlxts/core", ...packages].map((name) => [name, installedVersion(name)])),
  };
}
