import { readFileSync } from "node:fs";
import { join } from "node:path";
import { MlxtsError, wrongKind, wrongValue } from "@mlxts/core";

/** A file's JSON object; files come from anybody, so nothing about its fields is assumed. */
export function readJson(path: string): Record<string, unknown> {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    throw new MlxtsError(
      "Io",
      `cannot read ${path}: ${(error as Error).message}`,
      { path, operation: "read", code },
      error,
    );
  }
  try {
    const value: unknown = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value as Record<string, unknown>;
  } catch (error) {
    throw new MlxtsError("Io", `${path} is not JSON: ${(error as Error).message}`, { path, operation: "parse" }, error);
  }
  throw new MlxtsError("Io", `${path} must hold a JSON object`, { path, operation: "parse" });
}

/** `directory/name` as JSON, or undefined when there is no such file. */
export function readOptionalJson(directory: string, name: string): Record<string, unknown> | undefined {
  try {
    return readJson(join(directory, name));
  } catch (error) {
    if (error instanceof MlxtsError && error.details.code === "ENOENT") return undefined;
    throw error;
  }
}

/** Typed reads of a config's fields, with errors that name the field. */
export class Fields {
  private readonly values: Readonly<Record<string, unknown>>;
  private readonly path: string;

  constructor(values: Readonly<Record<string, unknown>>, path = "config") {
    this.values = values;
    this.path = path;
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
    if (typeof value !== "number") throw wrongKind("loadModel", this.name(name), "be a number", value);
    if (!Number.isInteger(value) || value < 1 || value > max)
      throw wrongValue("loadModel", this.name(name), `be an integer from 1 to ${max}`, value);
    return value;
  }

  /** A finite number above `above`. */
  number(name: string, above: number, fallback?: number): number {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "number") throw wrongKind("loadModel", this.name(name), "be a number", value);
    if (!Number.isFinite(value) || value <= above)
      throw wrongValue("loadModel", this.name(name), `be > ${above}`, value);
    return value;
  }

  boolean(name: string, fallback: boolean): boolean {
    const value = this.has(name) ? this.get(name) : fallback;
    if (typeof value !== "boolean") throw wrongKind("loadModel", this.name(name), "be a boolean", value);
    return value;
  }

  choice<const V extends string>(name: string, values: readonly V[], fallback?: V): V {
    const value = this.has(name) ? this.get(name) : fallback;
    if (!values.includes(value as V))
      throw wrongValue("loadModel", this.name(name), `be one of ${values.join(", ")}`, value);
    return value as V;
  }

  choices<const V extends string>(name: string, values: readonly V[], length: number): V[] | undefined {
    if (!this.has(name)) return undefined;
    const list = this.get(name);
    if (!Array.isArray(list) || list.length !== length || !list.every((item) => values.includes(item)))
      throw wrongValue("loadModel", this.name(name), `be ${length} of ${values.join(", ")}`, list);
    return list as V[];
  }

  object(name: string): Fields {
    const value = this.has(name) ? this.get(name) : {};
    if (value === null || typeof value !== "object" || Array.isArray(value))
      throw wrongKind("loadModel", this.name(name), "be an object", value);
    return new Fields(value as Record<string, unknown>, this.name(name));
  }

  /** An id, a list of ids, or nothing. */
  ids(name: string): number[] | undefined {
    if (!this.has(name)) return undefined;
    const value = this.get(name);
    const list = Array.isArray(value) ? value : [value];
    if (!list.every((id) => Number.isInteger(id) && id >= 0))
      throw wrongValue("loadModel", this.name(name), "be token ids", value);
    return list as number[];
  }
}
