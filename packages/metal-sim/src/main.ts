import { Command, CommanderError } from "commander";
import { addCompile } from "./cli_compile.ts";
import { addCoverage } from "./cli_coverage.ts";
import { addLint } from "./cli_lint.ts";
import { addMutants } from "./cli_mutants.ts";
import { addRun } from "./cli_run.ts";
import { MetalSimError } from "./errors.ts";

/** Runs the command line and returns the exit code: 0 done, 1 findings or a refusal, 2 wrong usage. */
export async function main(args: readonly string[]): Promise<number> {
  let code = 0;
  const program = new Command("metal-sim")
    .description("Runs Metal compute kernels without a Mac, and finds their races and out-of-bounds accesses.")
    .exitOverride()
    .configureOutput({ writeErr: (text) => process.stderr.write(text) });
  const finish = (result: number) => {
    code = result;
  };
  for (const add of [addRun, addLint, addCompile, addMutants, addCoverage]) add(program, finish);
  // A reader that has seen enough (`metal-sim … | head`) is no failure.
  process.stdout.on("error", (error: NodeJS.ErrnoException) => {
    if (error.code !== "EPIPE") throw error;
    process.exit(0);
  });
  try {
    await program.parseAsync([...args], { from: "user" });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    if (error instanceof MetalSimError) {
      process.stderr.write(`${error.code}: ${error.message}\n`);
      return error.code === "InvalidArgument" ? 2 : 1;
    }
    process.stderr.write(`${error instanceof Error ? error.stack : String(error)}\n`);
    return 1;
  }
}
