import { wrongKind } from "./errors.ts";

/** An entry for every option of `T`, so that the compiler keeps the list complete; the values do not matter. */
export type OptionNames<T> = { readonly [K in keyof Required<T>]: unknown };

/** The names of an object's own values; a Proxy may refuse to tell them. */
export function namesOf(op: string, argument: string, value: unknown, rule = "be an object"): string[] {
  try {
    if (value !== null && typeof value === "object") return Object.keys(value);
  } catch {
    // Refused below.
  }
  throw wrongKind(op, argument, rule, value);
}

/**
 * Refuses what is not an object of options, and options that nobody knows. `argument`: what the object is called.
 * @throws TypeError naming the unknown option and those there are
 */
export function checkOptionNames<T extends object>(
  op: string,
  options: T,
  names: OptionNames<T>,
  argument = "options",
): void {
  for (const key of namesOf(op, argument, options))
    if (!Object.hasOwn(names, key))
      throw wrongKind(op, key, `be one of ${Object.keys(names).join(", ") || "(no options)"}`, "an unknown option");
}

/** Refuses what is neither a function nor left out. */
export function checkCallback(op: string, argument: string, value: unknown): void {
  if (value !== undefined && typeof value !== "function") throw wrongKind(op, argument, "be a function", value);
}

export function checkCount(op: string, argument: string, value: unknown): void {
  if (!Number.isSafeInteger(value)) throw wrongKind(op, argument, "be an integer", value);
}
