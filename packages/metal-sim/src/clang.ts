import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join, resolve } from "node:path";
import { MetalSimError } from "./errors.ts";

/** The oldest clang whose bfloat and half are complete. */
const MINIMUM = 18;
const NEWEST = 22;

export interface Clang {
  path: string;
  version: string;
  major: number;
  /** The files that decided for this one: itself, and those before it that do not exist or are too old. */
  lookedAt: readonly string[];
}

/** Where the system looks for a program, up to where it is. */
function lookUp(command: string): string[] {
  if (command.includes("/")) return [resolve(command)];
  const paths = (process.env.PATH ?? "").split(":").map((folder) => resolve(join(folder || ".", command)));
  const found = paths.findIndex((path) => existsSync(path));
  return found < 0 ? paths : paths.slice(0, found + 1);
}

function probe(path: string): Omit<Clang, "lookedAt"> | undefined {
  const { status, stdout } = spawnSync(path, ["--version"], { encoding: "utf8" });
  const version = status === 0 ? /clang version (\S+)/.exec(stdout)?.[1] : undefined;
  return version ? { path, version, major: Number.parseInt(version, 10) } : undefined;
}

let cached: Clang | undefined;

/** clang-19 if it is installed, else another that is new enough. `MLXTS_CLANG` names one outright. */
export function findClang(): Clang {
  const named = process.env.MLXTS_CLANG;
  if (cached && (named === undefined || named === cached.path)) return cached;
  const remedy =
    "install clang 19 (Debian, Ubuntu: apt-get install clang-19), or set MLXTS_CLANG to the path of a clang++";
  const others = Array.from({ length: NEWEST - MINIMUM + 1 }, (_, i) => NEWEST - i).filter((major) => major !== 19);
  const candidates =
    named !== undefined ? [named] : [19, ...others].map((major) => `clang++-${major}`).concat("clang++");
  const tooOld: string[] = [];
  const lookedAt: string[] = [];
  for (const candidate of candidates) {
    const clang = probe(candidate);
    lookedAt.push(...lookUp(candidate));
    if (clang && clang.major >= MINIMUM) {
      cached = { ...clang, lookedAt };
      return cached;
    }
    if (clang) tooOld.push(`${candidate} is version ${clang.version}`);
  }
  const found =
    named !== undefined ? `MLXTS_CLANG=${named} is no clang of version ${MINIMUM} or newer` : tooOld.join(", ");
  throw new MetalSimError(
    "NoCompiler",
    `no clang of version ${MINIMUM} or newer${found ? ` (${found})` : ""}: ${remedy}`,
  );
}

export interface CommandResult {
  ok: boolean;
  stdout: string;
  stderr: string;
}

/** Runs clang; its log is returned, not thrown. */
export function runClang(clang: Clang, args: readonly string[], input?: string): CommandResult {
  const { status, stdout, stderr, error } = spawnSync(clang.path, args, {
    encoding: "utf8",
    maxBuffer: 1 << 28,
    ...(input !== undefined && { input }),
  });
  return { ok: status === 0, stdout: stdout ?? "", stderr: stderr ?? String(error) };
}
