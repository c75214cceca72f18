import { randomUUID } from "node:crypto";
import { existsSync, lstatSync, mkdirSync, readdirSync, renameSync, rmdirSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { MlxtsError, wrongValue } from "@mlxts/core";

/** Whether something stands where a new directory is to be; a symbolic link is not followed. */
function occupied(path: string): boolean {
  const found = lstatSync(path, { throwIfNoEntry: false });
  return found !== undefined && (!found.isDirectory() || readdirSync(path).length > 0);
}

/**
 * Makes the directory `to` of the files that `write` puts into a directory beside it. It appears when it is complete; when
 * `write` throws, nothing is left behind.
 * @throws RangeError when `to` is not new or an empty directory; MlxtsError `Io` when the file system refuses
 */
export async function writeDirectory(
  op: string,
  argument: string,
  to: string,
  write: (directory: string) => Promise<void>,
): Promise<void> {
  const target = resolve(to);
  const partial = join(dirname(target), `.${basename(target)}.${randomUUID()}.partial`);
  let made = false;
  try {
    if (occupied(target)) throw wrongValue(op, argument, "be new or an empty directory", to);
    mkdirSync(partial);
    made = true;
    await write(partial);
    // Fails when somebody has put files there meanwhile.
    if (existsSync(target)) rmdirSync(target);
    renameSync(partial, target);
  } catch (error) {
    if (made) rmSync(partial, { recursive: true, force: true });
    if (error instanceof Error && "syscall" in error)
      throw new MlxtsError("Io", `${op}: ${error.message}`, { path: to, operation: "write" }, error);
    throw error;
  }
}

export function writeJson(path: string, value: unknown): void {
  writeFileSync(path, JSON.stringify(value, null, 4));
}
