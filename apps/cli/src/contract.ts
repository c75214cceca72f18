import { parseArgs } from "node:util";
import { BadValue, type Option, UsageError } from "./options.ts";

/** A positional argument of a command. */
export interface Argument<T extends string | undefined> {
  readonly doc: string;
  readonly optional: T extends string ? false : true;
}

export const argument = (doc: string): Argument<string> => ({ doc, optional: false });
export const optionalArgument = (doc: string): Argument<string | undefined> =>
  ({ doc, optional: true }) as Argument<string | undefined>;

type Values<S> = {
  [K in keyof S]: S[K] extends Option<infer T> ? T : S[K] extends Argument<infer T> ? T : never;
};

/** Everything that is known of a command: its command line is parsed and its help is printed from it. */
export interface Contract<
  A extends Readonly<Record<string, Argument<string | undefined>>> = Readonly<
    Record<string, Argument<string | undefined>>
  >,
  O extends Readonly<Record<string, Option<unknown>>> = Readonly<Record<string, Option<unknown>>>,
> {
  readonly name: string;
  readonly summary: string;
  /** Whether help leaves it out. */
  readonly hidden?: boolean;
  /** In order; `hfDir` is shown as `<hf-dir>`. */
  readonly arguments: A;
  /** `maxTokens` is given as `--max-tokens`. */
  readonly options: O;
  /** Options of which exactly one must be given. */
  readonly exactlyOne?: readonly (keyof O & string)[];
  /** More lines of help. */
  readonly notes?: readonly string[];
  /** Runs the command; throws when it cannot be done. */
  run(given: Values<A> & Values<O>, signal: AbortSignal): void | Promise<void>;
}

/** A command without the types of its arguments. */
export type Command = Omit<Contract, "run"> & { run(given: Record<string, unknown>, signal: AbortSignal): unknown };

export function command<
  const A extends Readonly<Record<string, Argument<string | undefined>>>,
  const O extends Readonly<Record<string, Option<unknown>>>,
>(contract: Contract<A, O>): Command {
  return contract as unknown as Command;
}

const kebab = (name: string) => name.replace(/[A-Z]/g, (c) => `-${c.toLowerCase()}`);
export const flagOf = (name: string): string => `--${kebab(name)}`;
export const argumentOf = (name: string, { optional }: { optional: boolean }): string =>
  optional ? `[${kebab(name)}]` : `<${kebab(name)}>`;

/** `mlxts quantize <hf-dir> <out-dir> [options]` */
export function usageOf(of: Pick<Command, "name" | "arguments">): string {
  const positionals = Object.entries(of.arguments).map(([name, each]) => argumentOf(name, each));
  return ["mlxts", of.name, ...positionals, "[options]"].join(" ");
}

/** The parts of a command line, not read yet. */
interface Sorted {
  /** By name of the option, the texts given for it. */
  options: Map<string, string[]>;
  positionals: string[];
  help: boolean;
}

/** Sorts the words of a command line into options and positionals. */
function sort(of: Command, args: readonly string[]): Sorted {
  const fail = (argument: string, rule: string, value: string, remedy?: string): never => {
    throw new UsageError(of.name, argument, rule, value, remedy);
  };
  const byFlag = new Map(Object.keys(of.options).map((name) => [kebab(name), name]));
  const known = ["help", ...byFlag.keys()].map((name) => `--${name}`);
  const { tokens } = parseArgs({
    args: [...args],
    options: {
      help: { type: "boolean", short: "h" },
      ...Object.fromEntries(
        Object.entries(of.options).map(([name, { placeholder }]) => [
          kebab(name),
          { type: placeholder === undefined ? "boolean" : "string" } as const,
        ]),
      ),
    },
    allowPositionals: true,
    strict: false,
    tokens: true,
  });
  const sorted: Sorted = { options: new Map(), positionals: [], help: false };
  let open: [texts: string[], option: Option<unknown>] | undefined;
  for (const token of tokens) {
    if (token.kind === "positional") {
      if (open?.[1].takes?.(token.value)) open[0].push(token.value);
      else sorted.positionals.push(token.value);
      continue;
    }
    open = undefined;
    if (token.kind === "option-terminator") continue;
    if (token.name === "help") {
      sorted.help = true;
      continue;
    }
    const name = byFlag.get(token.name);
    const option = name === undefined ? undefined : (of.options[name] as Option<unknown>);
    if (name === undefined || !option)
      return fail(token.rawName, `be one of ${known.join(", ")}`, "an unknown option", `see \`mlxts help ${of.name}\``);
    const { value, inlineValue } = token;
    if (option.placeholder === undefined && value !== undefined) fail(token.rawName, "have no value", value);
    // The name of an option instead of a value: the value was forgotten.
    const forgotten = value === undefined || (!inlineValue && known.includes(value.split("=")[0] as string));
    if (option.placeholder !== undefined && forgotten)
      fail(token.rawName, `be followed by ${option.placeholder}`, value ?? "nothing");
    const texts = sorted.options.get(name) ?? [];
    if (texts.length > 0 && !option.multiple)
      fail(token.rawName, "be given once", value === undefined ? "it twice" : `${texts[0]} and ${value}`);
    texts.push(value ?? "");
    sorted.options.set(name, texts);
    open = [texts, option];
  }
  return sorted;
}

/** The values of a command line, or "help" when it asks for help. */
export function parse(of: Command, args: readonly string[]): Record<string, unknown> | "help" {
  const { options, positionals, help } = sort(of, args);
  if (help) return "help";
  const given: Record<string, unknown> = {};
  const names = Object.keys(of.arguments);
  if (positionals.length > names.length) {
    const expected = names
      .map((name) => argumentOf(name, of.arguments[name] as Argument<string | undefined>))
      .join(" ");
    const rule = names.length === 0 ? "not be given" : `be ${expected} and no more`;
    const quote = [...options.values()].some((texts) => texts.some((text) => text !== ""));
    throw new UsageError(
      of.name,
      "arguments",
      rule,
      positionals.join(" "),
      quote ? "quote a text of several words" : undefined,
    );
  }
  for (const [i, name] of names.entries()) {
    const each = of.arguments[name] as Argument<string | undefined>;
    const value = positionals[i];
    if (value === undefined && !each.optional)
      throw new UsageError(of.name, argumentOf(name, each), "be given", "nothing", `usage: ${usageOf(of)}`);
    if (value?.trim() === "") throw new UsageError(of.name, argumentOf(name, each), "not be empty", value);
    given[name] = value;
  }
  const one = of.exactlyOne ?? [];
  const chosen = one.filter((name) => options.has(name));
  if (one.length > 0 && chosen.length !== 1)
    throw new UsageError(
      of.name,
      one.map(flagOf).join(", "),
      "be given, exactly one of them",
      chosen.map(flagOf).join(" and ") || "nothing",
    );
  for (const [name, option] of Object.entries(of.options))
    try {
      given[name] = option.read(options.get(name) ?? []);
    } catch (error) {
      if (!(error instanceof BadValue)) throw error;
      throw new UsageError(of.name, flagOf(name), error.rule, error.value);
    }
  return given;
}
