import { join } from "node:path";
import { MlxtsError, wrongKind } from "@mlxts/common/errors";
import { readPlainFile } from "@mlxts/common/files";

/** The largest real file of a checkpoint besides its weights, a vocabulary, takes about 35 MB. */
const MAX_JSON_BYTES = 1 << 27;
/** The most commas and opening brackets of a JSON text: it has one for each value, and small values take much memory. */
const MAX_JSON_VALUES = 1 << 24;

const ioError = (path: string, reason: string, operation: string, cause?: unknown) =>
  new MlxtsError("Io", `${path} ${reason}`, { path, operation }, cause);

/** Reads a text file of a checkpoint. */
export function readText(path: string, maxBytes: number): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(readPlainFile(path, maxBytes));
  } catch (error) {
    if (error instanceof TypeError && !("fault" in error)) throw ioError(path, "is not text in UTF-8", "parse", error);
    throw error;
  }
}

/** Whether a JSON text has so many values that they would fill the memory. */
function hasTooManyValues(text: string): boolean {
  if (text.length <= MAX_JSON_VALUES) return false;
  let values = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if ((char === 0x2c || char === 0x5b || char === 0x7b) && ++values > MAX_JSON_VALUES) return true;
  }
  return false;
}

/** The line where a JSON parser stopped, if its message says so. */
function lineOf(text: string, message: string): string {
  const at = /at position (\d+)/.exec(message);
  return at ? `line ${text.slice(0, Number(at[1])).split("\n").length}: ` : "";
}

/**
 * Reads a file with a JSON object. Files are not trusted: nothing is known of the fields.
 * @throws MlxtsError `Io` for a file that cannot be read, is larger than 128 MiB or not a JSON object in UTF-8
 */
export function readJson(path: string): Record<string, unknown> {
  if (typeof path !== "string") throw wrongKind("readJson", "path", "be a string", path);
  const text = readText(path, MAX_JSON_BYTES);
  if (hasTooManyValues(text)) throw ioError(path, `has more than ${MAX_JSON_VALUES} values`, "parse");
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    const { message } = error as Error;
    throw ioError(path, `is not JSON: ${lineOf(text, message)}${message}`, "parse", error);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value))
    throw ioError(path, "must hold a JSON object", "parse");
  return value as Record<string, unknown>;
}

const isMissing = (error: unknown) => error instanceof MlxtsError && error.details.systemCode === "ENOENT";

/** Calls `read`; undefined when its file does not exist. */
export function unlessMissing<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Reads `directory/name` like `readJson`; undefined when there is no such file. */
export function readOptionalJson(directory: string, name: string): Record<string, unknown> | undefined {
  if (typeof directory !== "string") throw wrongKind("readOptionalJson", "directory", "be a string", directory);
  if (typeof name !== "string") throw wrongKind("readOptionalJson", "name", "be a string", name);
  return unlessMissing(() => readJson(join(directory, name)));
}
