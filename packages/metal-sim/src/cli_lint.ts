import type { Command } from "commander";
import { collectDefine, sourceOf } from "./cli_compile.ts";
import { showPlace } from "./errors.ts";
import { lint } from "./lint.ts";

export function addLint(program: Command, finish: (code: number) => void): void {
  program
    .command("lint")
    .description("check address spaces and the portable subset, without running anything")
    .argument("<files...>", ".metal files")
    .option("-D, --define <name=value>", "define a macro", collectDefine)
    .option("--json", "as JSON")
    .action((files: string[], options: { define?: Record<string, string>; json?: true }) => {
      const findings = files.flatMap((file) => lint(sourceOf(file, options)));
      if (options.json) process.stdout.write(`${JSON.stringify(findings)}\n`);
      else
        for (const finding of findings)
          process.stdout.write(`${showPlace(finding)}: ${finding.kind}: ${finding.message}\n`);
      finish(findings.length > 0 ? 1 : 0);
    });
}
