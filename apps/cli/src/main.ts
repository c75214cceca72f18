import { ArgumentRangeError, ArgumentTypeError, MlxtsError } from "@mlxts/core";
import { Command, CommanderError } from "commander";
import { addDevices } from "./devices.ts";
import { addGenerate } from "./generate.ts";
import { addInspect } from "./inspect.ts";
import { addLogits } from "./logits.ts";
import { addOp } from "./op.ts";
import { Reported } from "./options.ts";
import { addQuantize } from "./quantize.ts";
import { addVerify } from "./verify.ts";

/** Runs the command line and returns the exit code: 0 done, 1 refused or failed, 2 wrong usage. */
export async function main(args: readonly string[]): Promise<number> {
  const program = new Command("mlxts")
    .description("Run, quantise and inspect language models, try single mlxts ops, and verify them on this machine.")
    .exitOverride()
    .configureOutput({ writeErr: (text) => process.stderr.write(text) });
  for (const add of [addDevices, addInspect, addQuantize, addGenerate, addLogits, addOp, addVerify]) add(program);
  // A reader that has seen enough (`mlxts … | head`) is no failure.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit(0);
  });
  try {
    await program.parseAsync([...args], { from: "user" });
    return 0;
  } catch (error) {
    if (error instanceof Reported) return 1;
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (error instanceof MlxtsError || error instanceof ArgumentRangeError || error instanceof ArgumentTypeError) {
      process.stderr.write(`${error.code}: ${error.message}\n`);
      return 1;
    }
    process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
    return 1;
  }
}
