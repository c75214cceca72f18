import { join } from "node:path";
import { MlxtsError, readPlainFile, wrongKind, wrongValue } from "@mlxts/core";

/** Larger than any real file of a checkpoint other than its weights: the largest vocabularies take about 35 MB. */
const MAX_JSON_BYTES = 1 << 27;
/** Commas and opening brackets, of which each value of a JSON text needs one; small values take much memory. */
const MAX_JSON_VALUES = 1 << 24;

const ioError = (path: string, reason: string, operation: string, cause?: unknown) =>
  new MlxtsError("Io", `${path} ${reason}`, { path, operation }, cause);

/** A text file of a checkpoint. */
export function readText(path: string, maxBytes: number): string {
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(readPlainFile(path, maxBytes));
  } catch (error) {
    if (error instanceof TypeError && !("fault" in error)) throw ioError(path, "is not text in UTF-8", "parse", error);
    throw error;
  }
}

/** Whether a JSON text holds so many values that it would fill the memory. */
function isTooMany(text: string): boolean {
  if (text.length <= MAX_JSON_VALUES) return false;
  let values = 0;
  for (let i = 0; i < text.length; i++) {
    const char = text.charCodeAt(i);
    if ((char === 0x2c || char === 0x5b || char === 0x7b) && ++values > MAX_JSON_VALUES) return true;
  }
  return false;
}

/** Where a JSON parser stopped, as far as its message says. */
function lineOf(text: string, message: string): string {
  const at = /at position (\d+)/.exec(message);
  return at ? `line ${text.slice(0, Number(at[1])).split("\n").length}: ` : "";
}

/**
 * A file's JSON object; files come from anybody, so nothing about its fields is assumed.
 * @throws MlxtsError `Io` for a file that cannot be read, is larger than 128 MiB or not a JSON object in UTF-8
 */
export function readJson(path: string): Record<string, unknown> {
  if (typeof path !== "string") throw wrongKind("readJson", "path", "be a string", path);
  const text = readText(path, MAX_JSON_BYTES);
  if (isTooMany(text)) throw ioError(path, `has more than ${MAX_JSON_VALUES} values`, "parse");
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

/** What `read` gives, or undefined when its file does not exist. */
export function unlessMissing<T>(read: () => T): T | undefined {
  try {
    return read();
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** `directory/name` as JSON, or undefined when there is no such file. */
export function readOptionalJson(directory: string, name: string): Record<string, unknown> | undefined {
  if (typeof directory !== "string") throw wrongKind("readOptionalJson", "directory", "be a string", directory);
  if (typeof name !== "string") throw wrongKind("readOptionalJson", "name", "be a string", name);
  return unlessMissing(() => readJson(join(directory, name)));
}

/** Typed reads of a config's fields, with errors that name the field. */
export class Fields {
  private readonly values: Readonly<Record<string, unknown>>;
  private readonly path: string;
  /** The call that errors name. */
  private readonly op: string;

  constructor(values: Readonly<Record<string, unknown>>, path = "config", op = "loadModel") {
    this.values = values;
    this.path = path;
    this.op = op;
  }

  has(name: string): boolean {
    return Object.hasOwn(this.values, name) && this.values[name] !== null && this.values[name] !== undefined;
  }

  private get(name: string): unknown {
    return Object.hasOwn(this.values, name) ? this.values[name] : undefined;
  }

  private name(field: string): string {
    return `${this.path}.${field}`;
  }

  /** An integer from 1 to `max`. */
  size(name: string, fallback?: number, max = 0x7fffffff): number {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "number") throw wrongKind(this.op, this.name(name), "be a number", value);
    if (!Number.isInteger(value) || value < 1 || value > max)
      throw wrongValue(this.op, this.name(name), `be an integer from 1 to ${max}`, value);
    return value;
  }

  /** A finite number above `above`. */
  number(name: string, above: number, fallback?: number): number {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "number") throw wrongKind(this.op, this.name(name), "be a number", value);
    if (!Number.isFinite(value) || value <= above) throw wrongValue(this.op, this.name(name), `be > ${above}`, value);
    return value;
  }

  /** A number from `min` to `max`. */
  between(name: string, min: number, max: number, fallback?: number): number {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "number") throw wrongKind(this.op, this.name(name), "be a number", value);
    if (!(value >= min && value <= max)) {
      const above = min === Number.MIN_VALUE ? "above 0" : `at least ${min}`;
      throw wrongValue(
        this.op,
        this.name(name),
        `be ${above}${max === Number.MAX_VALUE ? " and finite" : ` and at most ${max}`}`,
        value,
      );
    }
    return value;
  }

  boolean(name: string, fallback: boolean): boolean {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "boolean") throw wrongKind(this.op, this.name(name), "be a boolean", value);
    return value;
  }

  choice<const V extends string>(name: string, values: readonly V[], fallback?: V): V {
    const value = this.has(name) ? this.get(name) : fallback;
    if (!values.includes(value as V))
      throw wrongValue(this.op, this.name(name), `be one of ${values.join(", ")}`, value);
    return value as V;
  }

  choices<const V extends string>(name: string, values: readonly V[], length: number): V[] | undefined {
    if (!this.has(name)) return undefined;
    const list = this.get(name);
    if (!Array.isArray(list) || list.length !== length || !list.every((item) => values.includes(item)))
      throw wrongValue(this.op, this.name(name), `be ${length} of ${values.join(", ")}`, list);
    return list as V[];
  }

  object(name: string): Fields {
    const value = this.has(name) ? this.get(name) : {};
    if (value === null || typeof value !== "object" || Array.isArray(value))
      throw wrongKind(this.op, this.name(name), "be an object", value);
    return new Fields(value as Record<string, unknown>, this.name(name), this.op);
  }

  /** An id, a list of ids, or nothing. */
  ids(name: string): number[] | undefined {
    if (!this.has(name)) return undefined;
    const value = this.get(name);
    const list = Array.isArray(value) ? value : [value];
    if (!list.every((id) => Number.isInteger(id) && id >= 0))
      throw wrongValue(this.op, this.name(name), "be token ids", value);
    return list as number[];
  }
}
