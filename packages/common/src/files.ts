import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { ioError, MlxtsError, wrongKind } from "./errors.ts";

const LFS_POINTER = "version https://git-lfs.github.com/spec/";

/** What is wrong with a file that begins like this, if it is a Git LFS pointer. */
export function lfsPointer(start: Uint8Array): string | undefined {
  return Buffer.from(start.subarray(0, LFS_POINTER.length)).toString("latin1") === LFS_POINTER
    ? "is a Git LFS pointer, not the file that it stands for: run `git lfs pull` in its directory"
    : undefined;
}

/** Opens for reading without waiting: the path may be a pipe, which the caller refuses. */
export function openForReading(path: string): number {
  try {
    return openSync(path, constants.O_RDONLY | (constants.O_NONBLOCK ?? 0));
  } catch (error) {
    throw ioError(path, "open", error);
  }
}

/**
 * Reads a whole regular file of at most `maxBytes`.
 * @throws MlxtsError `Io` when it cannot be read, is a pipe or a device, is larger, or is a Git LFS pointer
 */
export function readPlainFile(path: string, maxBytes: number): Uint8Array<ArrayBuffer> {
  if (typeof path !== "string") throw wrongKind("readPlainFile", "path", "be a string", path);
  if (typeof maxBytes !== "number") throw wrongKind("readPlainFile", "maxBytes", "be a number", maxBytes);
  const refuse = (reason: string) => new MlxtsError("Io", `${path} ${reason}`, { path, operation: "read" });
  const file = openForReading(path);
  try {
    const stat = fstatSync(file);
    if (!stat.isFile()) throw refuse("is not a file");
    if (stat.size > maxBytes) throw refuse(`has ${stat.size} bytes, more than the ${maxBytes} that are read`);
    const bytes = new Uint8Array(stat.size);
    let at = 0;
    while (at < bytes.length) {
      const got = readSync(file, bytes, at, bytes.length - at, at);
      if (got === 0) break;
      at += got;
    }
    const pointer = lfsPointer(bytes);
    if (pointer) throw refuse(pointer);
    return bytes.subarray(0, at);
  } catch (error) {
    throw ioError(path, "read", error);
  } finally {
    closeSync(file);
  }
}
