import type { MlxtsError } from "@mlxts/common/errors";
import { type Matcher, regexMatcher, textMatcher } from "./matcher.ts";

export type Json = Record<string, unknown>;
export const isObject = (value: unknown): value is Json =>
  value !== null && typeof value === "object" && !Array.isArray(value);

/** Makes the error for a part of the file that breaks a rule. */
export type Refuse = (part: string, rule: string) => MlxtsError;

const MAX_STEPS = 256;
const MAX_DEPTH = 8;
const MAX_TEXT = 1 << 14;

/** Counts the steps of a file, which may not be many. */
export class StepCount {
  count = 0;
}

/** The fields of one step of a `tokenizer.json`: a normalizer, pre-tokenizer, post-processor or decoder. */
export class StepFields {
  readonly type: string;
  private readonly json: Json;
  private readonly where: string;
  private readonly refusePart: Refuse;
  private readonly steps: StepCount;
  private readonly depth: number;

  constructor(where: string, json: unknown, refuse: Refuse, steps: StepCount, depth = 0) {
    if (!isObject(json)) throw refuse(where, "be an object");
    if (++steps.count > MAX_STEPS || depth > MAX_DEPTH)
      throw refuse(where, `have at most ${MAX_STEPS} steps, ${MAX_DEPTH} deep`);
    this.where = where;
    this.json = json;
    this.refusePart = refuse;
    this.steps = steps;
    this.depth = depth;
    this.type = typeof json.type === "string" ? json.type : "";
  }

  refuse(rule: string, field?: string): MlxtsError {
    return this.refusePart(field === undefined ? this.where : `${this.where}.${field}`, rule);
  }

  unsupported(): MlxtsError {
    const shown = JSON.stringify(this.json.type)?.slice(0, 40) ?? "nothing";
    return this.refuse(`be of a type that is supported, got ${shown}`);
  }

  raw(field: string): unknown {
    return this.json[field];
  }

  text(field: string, fallback?: string): string {
    const value = this.json[field] ?? fallback;
    if (typeof value !== "string" || value.length > MAX_TEXT)
      throw this.refuse(`be a text of at most ${MAX_TEXT} characters`, field);
    return value.toWellFormed();
  }

  character(field: string, fallback?: string): string {
    const value = this.text(field, fallback);
    if ([...value].length !== 1) throw this.refuse("be one character", field);
    return value;
  }

  boolean(field: string, fallback?: boolean): boolean {
    const value = this.json[field] ?? fallback;
    if (typeof value !== "boolean") throw this.refuse("be true or false", field);
    return value;
  }

  count(field: string, fallback: number, least: number): number {
    const value = this.json[field] ?? fallback;
    if (typeof value !== "number" || !Number.isInteger(value) || value < least || value > 2 ** 31)
      throw this.refuse(`be an integer ≥ ${least}`, field);
    return value;
  }

  choice<T extends string>(field: string, choices: readonly T[], fallback?: T): T {
    const value = this.json[field] ?? fallback;
    const found = choices.find((choice) => choice === value || choice.toLowerCase() === value);
    if (found === undefined) throw this.refuse(`be one of ${choices.join(", ")}`, field);
    return found;
  }

  list(field: string): unknown[] {
    const value = this.json[field];
    if (!Array.isArray(value)) throw this.refuse("be a list", field);
    return value;
  }

  /** The steps of a `Sequence`. */
  steplist(field: string): StepFields[] {
    const { where, refusePart, steps, depth } = this;
    return this.list(field).map(
      (json, index) => new StepFields(`${where}.${field}[${index}]`, json, refusePart, steps, depth + 1),
    );
  }

  /** A matcher for `{ "String": … }` or `{ "Regex": … }`. */
  matcher(field: string): Matcher {
    const { Regex, String: plain } = (isObject(this.json[field]) ? this.json[field] : {}) as Json;
    const value = typeof plain === "string" ? plain : Regex;
    if (typeof value !== "string" || value.length > MAX_TEXT)
      throw this.refuse(`have a \`Regex\` or a \`String\`, a text of at most ${MAX_TEXT} characters`, field);
    const wellFormed = value.toWellFormed();
    if (typeof plain === "string") return textMatcher(wellFormed);
    return regexMatcher(wellFormed, (rule) => this.refuse(rule, field));
  }
}
