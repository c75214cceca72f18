import { ArgumentRangeError, ArgumentTypeError, MlxtsError } from "@mlxts/core";
import { benchChild } from "./bench_child.ts";
import { benchMachine } from "./bench_machine.ts";
import { benchModel } from "./bench_model.ts";
import { benchOp } from "./bench_op.ts";
import { type Command, parse } from "./contract.ts";
import { devices } from "./devices.ts";
import { generateCommand } from "./generate.ts";
import { commandHelp, programHelp } from "./help.ts";
import { inspect } from "./inspect.ts";
import { Interrupted, interruptible } from "./interrupt.ts";
import { logits } from "./logits.ts";
import { opCommand } from "./op.ts";
import { inLine, Reported, UsageError } from "./options.ts";
import { quantize } from "./quantize.ts";
import { verify, verifyChild } from "./verify.ts";
import { ownVersion } from "./version.ts";

export const COMMANDS: readonly Command[] = [
  devices,
  inspect,
  quantize,
  generateCommand,
  logits,
  opCommand,
  verify,
  benchOp,
  benchMachine,
  benchModel,
  verifyChild,
  benchChild,
];

const HELP = ["help", "--help", "-h"];

/** The command that these words begin with, whose name may be of two words, and the words that follow. */
function find(words: readonly string[]): [command: Command, rest: readonly string[]] {
  const [first = "", second] = words;
  for (const length of [2, 1]) {
    const found = COMMANDS.find((each) => each.name === words.slice(0, length).join(" "));
    if (found) return [found, words.slice(length)];
  }
  const names = COMMANDS.filter(({ hidden }) => !hidden).map((each) => each.name);
  const seconds = names.filter((name) => name.startsWith(`${first} `)).map((name) => name.slice(first.length + 1));
  if (seconds.length > 0)
    throw new UsageError(
      first,
      "<what>",
      `be one of ${seconds.join(", ")}`,
      second ?? "nothing",
      `see \`mlxts help ${first} ${seconds[0]}\``,
    );
  throw new UsageError("mlxts", "<command>", `be one of ${names.join(", ")}, help`, first, "see `mlxts --help`");
}

async function run(args: readonly string[], signal: AbortSignal): Promise<void> {
  const [name, ...rest] = args;
  if (name === undefined) throw new UsageError("mlxts", "<command>", "be given", "nothing", "see `mlxts --help`");
  const print = (text: string) => process.stdout.write(text);
  if (HELP.includes(name)) {
    const [about] = rest;
    if (about === undefined || HELP.includes(about)) return void print(programHelp(COMMANDS));
    const [command, more] = find(rest);
    if (more.length > 0) throw new UsageError("mlxts", "help", "be followed by one command", rest.join(" "));
    print(commandHelp(command));
  } else if (name === "--version") print(`${ownVersion()}\n`);
  else {
    const [command, words] = find(args);
    const given = parse(command, words);
    if (given === "help") print(commandHelp(command));
    else await command.run(given, signal);
  }
}

/** Prints in one line why a command failed; returns its exit code. */
function report(error: unknown): number {
  if (error instanceof Reported) return 1;
  if (error instanceof Interrupted) return error.exitCode;
  const print = (text: string) => process.stderr.write(`${inLine(text)}\n`);
  if (error instanceof UsageError) {
    print(error.message);
    return 2;
  }
  if (error instanceof MlxtsError || error instanceof ArgumentRangeError || error instanceof ArgumentTypeError)
    print(`${error.code}: ${error.message}`);
  else print(`mlxts: ${error instanceof Error ? `${error.name}: ${error.message}` : String(error)}`);
  return 1;
}

/** Runs the command line and returns the exit code: 0 done, 1 refused or failed, 2 wrong usage, 130 interrupted. */
export async function main(args: readonly string[]): Promise<number> {
  try {
    await interruptible((signal) => run(args, signal));
    return 0;
  } catch (error) {
    return report(error);
  }
}
