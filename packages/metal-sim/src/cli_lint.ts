import type { Command } from "commander";
import { type SourceOptions, sourceOf, withSourceOptions } from "./cli_compile.ts";
import { showPlace } from "./errors.ts";
import { lint } from "./lint.ts";

export function addLint(program: Command, finish: (code: number) => void): void {
  withSourceOptions(program.command("lint"))
    .description("check address spaces and the portable subset, without running anything")
    .argument("<files...>", ".metal files")
    .option("--json", "as JSON")
    .action((files: string[], options: SourceOptions & { json?: true }) => {
      const findings = files.flatMap((file) => lint(sourceOf(file, options)));
      if (options.json) process.stdout.write(`${JSON.stringify(findings)}\n`);
      else
        for (const finding of findings)
          process.stdout.write(`${showPlace(finding)}: ${finding.kind}: ${finding.message}\n`);
      finish(findings.length > 0 ? 1 : 0);
    });
}
