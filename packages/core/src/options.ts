import { wrongKind } from "./errors.ts";

/** An entry for every option of `T`, so that the compiler keeps the list complete; the values do not matter. */
export type OptionNames<T> = { readonly [K in keyof Required<T>]: unknown };

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
  if (options === null || typeof options !== "object") throw wrongKind(op, argument, "be an object", options);
  for (const key of Object.keys(options))
    if (!Object.hasOwn(names, key))
      throw wrongKind(op, key, `be one of ${Object.keys(names).join(", ") || "(no options)"}`, "an unknown option");
}
