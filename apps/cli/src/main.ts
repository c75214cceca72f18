import { ArgumentRangeError, ArgumentTypeError, MlxtsError } from "@mlxts/core";
import { CommanderError } from "commander";
import { benchChild } from "./bench_child.ts";
import { benchMachine } from "./bench_machine.ts";
import { benchModel } from "./bench_model.ts";
import { benchOp } from "./bench_op.ts";
import { completionOf } from "./completion.ts";
import { type Command, type Program, readCommandLine } from "./contract.ts";
import { devices } from "./devices.ts";
import { generateCommand } from "./generate.ts";
import { inspect } from "./inspect.ts";
import { Interrupted, interruptible } from "./interrupt.ts";
import { logits } from "./logits.ts";
import { opCommand } from "./op.ts";
import { inLine, Reported, UsageError } from "./options.ts";
import { quantize } from "./quantize.ts";
import { verify, verifyChild } from "./verify.ts";
import { ownVersion } from "./version.ts";

const GROUPS = { bench: "Measure ops, this machine, or a model." };

const OTHERS: readonly Command[] = [
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

export const COMMANDS: readonly Command[] = [...OTHERS, completionOf(OTHERS, GROUPS)];

export const PROGRAM: Program = {
  commands: COMMANDS,
  groups: GROUPS,
  summary: "Run, quantize and inspect language models, try single mlxts ops, and verify them on this machine.",
  version: ownVersion(),
  notes: [
    "`mlxts help <command>` shows its arguments and options.",
    "",
    "Exit codes: 0 done, 1 refused or failed (one line says why), 2 wrong usage, 130 interrupted (143 by SIGTERM).",
  ],
};

/** Prints in one line why a command failed; returns its exit code. */
function report(error: unknown): number {
  if (error instanceof Reported) return 1;
  if (error instanceof Interrupted) return error.exitCode;
  const print = (text: string) => process.stderr.write(`${inLine(text)}\n`);
  // `--help`, or help in place of an error.
  if (error instanceof CommanderError && (error.exitCode === 0 || error.code === "commander.help"))
    return error.exitCode;
  if (error instanceof UsageError || error instanceof CommanderError) {
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
    await interruptible((signal) => readCommandLine(PROGRAM, args, ({ run }, given) => run(given, signal)));
    return 0;
  } catch (error) {
    return report(error);
  }
}
