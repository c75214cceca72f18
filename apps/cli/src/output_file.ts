import { accessSync, type BigIntStats, constants, readdirSync, realpathSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { MlxtsError } from "@mlxts/core";

/** Undefined when nothing is there, also when a part of the path is a file and not a directory. */
function stat(path: string): BigIntStats | undefined {
  try {
    return statSync(path, { bigint: true, throwIfNoEntry: false });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOTDIR") return undefined;
    throw error;
  }
}

const sameFile = (a: BigIntStats, b: BigIntStats | undefined) => a.dev === b?.dev && a.ino === b.ino;

/** An input file, or all files of a directory. */
function filesOf(path: string): BigIntStats[] {
  const found = stat(path);
  if (!found?.isDirectory()) return found ? [found] : [];
  return readdirSync(path).flatMap((name) => stat(join(path, name)) ?? []);
}

type Refuse = (rule: string, value: string, remedy?: string) => never;

const refusal =
  (command: string, argument: string, path: string): Refuse =>
  (rule, value, remedy) => {
    const text = `${command}: \`${argument}\` must ${rule}, got ${value}${remedy ? ` — ${remedy}` : ""}`;
    throw new MlxtsError("Io", text, { path, operation: "write" });
  };

/** Refuses a `target` in a directory that does not exist or cannot be written; `path` is its name on the command line. */
function checkFolder(refuse: Refuse, target: string, path: string): void {
  const folder = dirname(target);
  if (!stat(folder)?.isDirectory()) refuse("be in a directory that exists", path);
  accessSync(folder, constants.W_OK);
}

const reasonOf = (error: unknown) => (error as Error).message.split(",")[0];

/** Refuses, before any work is done, a directory that cannot be made. */
export function checkOutputDirectory(command: string, argument: string, path: string): void {
  const refuse = refusal(command, argument, path);
  try {
    checkFolder(refuse, resolve(path), path);
  } catch (error) {
    if (error instanceof MlxtsError) throw error;
    refuse("be a directory that can be made", path, reasonOf(error));
  }
}

/**
 * Checks, before any work is done, the path of an output file; returns it, or the file that a link at it leads to. An older
 * file may be replaced; one that the command reads, under whatever name, only with `force`. `inPlace`: the file is written
 * to, not replaced, so that it may be a pipe or a device.
 */
export function outputFile(
  command: string,
  flag: string,
  path: string,
  {
    inputs = [],
    force = false,
    inPlace = false,
  }: { inputs?: readonly string[]; force?: boolean; inPlace?: boolean } = {},
): string {
  const refuse = refusal(command, flag, path);
  try {
    const found = stat(path);
    if (found?.isDirectory()) refuse("be a file", `the directory ${path}`);
    if (found && inPlace) {
      accessSync(path, constants.W_OK);
      return path;
    }
    if (found && !found.isFile()) refuse("be an ordinary file", path);
    const taken = found && inputs.find((input) => filesOf(input).some((each) => sameFile(each, found)));
    if (taken !== undefined && !force)
      refuse(`not overwrite what is read from ${taken}`, path, "give another file, or --force");
    const target = found ? realpathSync(path) : path;
    checkFolder(refuse, target, path);
    return target;
  } catch (error) {
    if (error instanceof MlxtsError) throw error;
    return refuse("be a file that can be written", path, reasonOf(error));
  }
}

/** Writes a file whose path `outputFile` has checked. */
export function writeOutput(path: string, text: string): void {
  try {
    writeFileSync(path, text);
  } catch (error) {
    const details = { path, operation: "write" };
    throw new MlxtsError("Io", `cannot write ${path}: ${(error as Error).message}`, details, error);
  }
}
