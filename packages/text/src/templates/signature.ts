// Arguments of filters, tests and methods, by position or name.
import { typeFault } from "./faults.ts";
import type { Args, Value } from "./values.ts";

/** Names in order, those with `?` may be left out and are undefined then: `parameters("old new count?")`. */
export interface Signature {
  readonly names: readonly string[];
  readonly needed: number;
}

export function signature(text: string): Signature {
  const names = text === "" ? [] : text.split(" ");
  const needed = names.filter((name) => !name.endsWith("?")).length;
  return { names: names.map((name) => name.replace("?", "")), needed };
}

/** The values of the parameters, undefined for those that are left out. */
export function bind(
  what: string,
  { names, needed }: Signature,
  { positional, keywords }: Args,
): (Value | undefined)[] {
  if (positional.length > names.length)
    throw typeFault(`${what} takes at most ${names.length} arguments (${positional.length} given)`);
  const values: (Value | undefined)[] = names.map((_, at) => positional[at]);
  for (const [name, value] of keywords) {
    const at = names.indexOf(name);
    if (at < 0) throw typeFault(`${what} got an unexpected keyword argument '${name}'`);
    if (values[at] !== undefined) throw typeFault(`${what} got multiple values for argument '${name}'`);
    values[at] = value;
  }
  const missing = values.slice(0, needed).indexOf(undefined);
  if (missing >= 0) throw typeFault(`${what} missing required argument: '${names[missing]}'`);
  return values;
}

/** Refuses keyword arguments, as functions of Python that are written in C do. */
export function positionalOnly(what: string, given: Args, least: number, most: number): readonly Value[] {
  const { positional, keywords } = given;
  if (keywords.size > 0) throw typeFault(`${what} takes no keyword arguments`);
  if (positional.length < least || positional.length > most)
    throw typeFault(
      `${what} expected ${least === most ? least : `${least} to ${most}`} arguments, got ${positional.length}`,
    );
  return positional;
}
