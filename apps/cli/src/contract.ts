import { CommanderError, Command as Parser, Option as ParserOption } from "commander";
import { BadValue, type Option, UsageError } from "./options.ts";

/** A positional argument of a command. */
export interface Argument<T extends string | undefined> {
  readonly doc: string;
  readonly optional: T extends string ? false : true;
  /** The values that it takes, where these are few: shells complete them. */
  readonly values?: () => readonly string[];
}

type Values = Argument<string>["values"];
export const argument = (doc: string, values?: Values): Argument<string> => ({
  doc,
  optional: false,
  ...(values && { values }),
});
export const optionalArgument = (doc: string, values?: Values) =>
  ({ ...argument(doc, values), optional: true }) as unknown as Argument<string | undefined>;

type Given<S> = {
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
  run(given: Given<A> & Given<O>, signal: AbortSignal): void | Promise<void>;
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

/** What a command line is made of. */
export interface Program {
  readonly commands: readonly Command[];
  /** What the first words of commands of two words stand for, as `bench` of `bench op`. */
  readonly groups: Readonly<Record<string, string>>;
  readonly summary: string;
  readonly version: string;
  /** The last lines of help. */
  readonly notes: readonly string[];
}

/** Lets a parser throw where commander would end the process; its errors name the command and where help is. */
function strict(parser: Parser, name: string): Parser {
  const help = name === "mlxts" ? "mlxts --help" : `mlxts help ${name}`;
  return parser
    .helpOption("-h, --help", "print this")
    .helpCommand(false)
    .configureOutput({
      outputError: () => undefined,
      getOutHelpWidth: () => process.stdout.columns ?? 120,
      getErrHelpWidth: () => process.stderr.columns ?? 120,
    })
    .exitOverride(({ code, exitCode, message }) => {
      const text = message.replace("error: ", "").replace("\n", " ");
      throw new CommanderError(exitCode === 0 ? 0 : 2, code, `${name}: ${text} — see \`${help}\``);
    });
}

const withNotes = (parser: Parser, notes: readonly string[]) =>
  notes.length > 0 ? parser.addHelpText("after", `\n${notes.join("\n")}`) : parser;

/**
 * Reads a command line and calls `run` with the command and the values given for it.
 * @throws UsageError for values that break rules, CommanderError for what is no command line, or asks for help, which is
 *   printed
 */
export async function readCommandLine(
  { commands, groups, summary, version, notes }: Program,
  words: readonly string[],
  run: (of: Command, given: Record<string, unknown>) => unknown,
): Promise<void> {
  const program = strict(new Parser("mlxts"), "mlxts").enablePositionalOptions();
  withNotes(program.description(summary).version(version, "--version", "print the version"), notes);
  const parentOf = (name: string | undefined) => {
    if (name === undefined) return program;
    return (
      program.commands.find((each) => each.name() === name) ??
      strict(program.command(name), name).description(groups[name] ?? "")
    );
  };
  for (const of of commands) {
    const [name, group] = of.name.split(" ").reverse() as [string, string?];
    describe(parentOf(group).command(name, { hidden: of.hidden === true }), of, words, (given) => run(of, given));
  }
  if (words[0] === "help") return await help(program, words.slice(1));
  await program.parseAsync([...words], { from: "user" });
}

/** `mlxts help bench op` is `mlxts bench op --help`. */
async function help(parser: Parser, words: readonly string[]): Promise<void> {
  const [word, ...more] = words;
  const found = parser.commands.find((each) => each.name() === word);
  if (found) return await help(found, more);
  if (word !== undefined && parser.commands.length === 0)
    throw new UsageError("mlxts", "help", "be followed by one command", words.join(" "));
  // A name that nothing has is refused as in a command line.
  await parser.parseAsync(word === undefined || word === "help" ? ["--help"] : [...words], { from: "user" });
}

/** Tells a parser what a command takes. */
function describe(
  parser: Parser,
  of: Command,
  words: readonly string[],
  run: (given: Record<string, unknown>) => unknown,
): void {
  strict(parser, of.name).description(of.summary).allowExcessArguments();
  for (const [name, each] of Object.entries(of.arguments)) parser.argument(argumentOf(name, each), each.doc);
  const given: Texts = { options: new Map(), positionals: [] };
  const known = ["--help", "-h", ...Object.keys(of.options).map(flagOf)];
  for (const [name, { placeholder, doc, multiple, takes }] of Object.entries(of.options)) {
    const flag = flagOf(name);
    const value = placeholder === undefined ? [] : [multiple ? placeholder.replace(">", "...>") : placeholder];
    const follows = (text: string) => words.some((word, i) => word === flag && words[i + 1] === text);
    parser.addOption(new ParserOption([flag, ...value].join(" "), doc));
    parser.on(`option:${kebab(name)}`, (text: string | undefined) => {
      const refuse = (rule: string, got: string) => {
        throw new UsageError(of.name, flag, rule, got);
      };
      const before = given.options.get(name) ?? [];
      // The name of an option instead of a value: the value was forgotten.
      if (text !== undefined && known.includes(text.split("=")[0] as string) && follows(text))
        refuse(`be followed by ${placeholder}`, text);
      if (before.length > 0 && !multiple)
        refuse("be given once", text === undefined ? "it twice" : `${before[0]} and ${text}`);
      if (text !== undefined && takes?.(text) === false && !follows(text)) given.positionals.push(text);
      else given.options.set(name, [...before, text ?? ""]);
    });
  }
  const one = of.exactlyOne?.map(flagOf).join(", ");
  withNotes(parser, [...(one ? [`Exactly one of ${one} must be given.`] : []), ...(of.notes ?? [])]);
  parser.action(async () => {
    await run(read(of, { ...given, positionals: [...parser.args, ...given.positionals] }));
  });
}

/** The texts of a command line, not read yet. */
interface Texts {
  /** By name of the option. */
  readonly options: Map<string, string[]>;
  readonly positionals: string[];
}

/** The values of a command line. */
function read(of: Command, { options: texts, positionals }: Texts): Record<string, unknown> {
  const given: Record<string, unknown> = {};
  const refuse = (argument: string, rule: string, value: string, remedy?: string) => {
    throw new UsageError(of.name, argument, rule, value, remedy);
  };
  const places = Object.entries(of.arguments);
  if (positionals.length > places.length) {
    const expected = places.map(([name, each]) => argumentOf(name, each)).join(" ");
    const quote = [...texts.values()].flat().some((text) => text !== "");
    refuse(
      "arguments",
      places.length === 0 ? "not be given" : `be ${expected} and no more`,
      positionals.join(" "),
      quote ? "quote a text of several words" : undefined,
    );
  }
  for (const [i, [name, each]] of places.entries()) {
    if (positionals[i]?.trim() === "") refuse(argumentOf(name, each), "not be empty", positionals[i]);
    given[name] = positionals[i];
  }
  const one = of.exactlyOne ?? [];
  const chosen = one.filter((name) => texts.has(name)).map(flagOf);
  if (one.length > 0 && chosen.length !== 1)
    refuse(one.map(flagOf).join(", "), "be given, exactly one of them", chosen.join(" and ") || "nothing");
  for (const [name, option] of Object.entries(of.options))
    try {
      given[name] = option.read(texts.get(name) ?? []);
    } catch (error) {
      if (!(error instanceof BadValue)) throw error;
      refuse(flagOf(name), error.rule, error.value);
    }
  return given;
}
