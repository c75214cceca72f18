import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { type Build, compile, type MetalSource, translateSource } from "./compile.ts";
import { MetalSimError } from "./errors.ts";
import { compileIndexed } from "./module_index.ts";
import type { Kernel } from "./reflect.ts";

type Finish = (code: number) => void;

/** `-D NAME` and `-D NAME=VALUE`. */
const collectDefine = (text: string, before: Record<string, string> = {}) => {
  const equals = text.indexOf("=");
  const name = equals < 0 ? text : text.slice(0, equals);
  return { ...before, [name]: equals < 0 ? "1" : text.slice(equals + 1) };
};

/** How a command's source is read. */
export interface SourceOptions {
  name?: string;
  define?: Record<string, string>;
  include?: string[];
}

/** The options of every command that reads a source. */
export const withSourceOptions = (command: Command): Command =>
  command
    .option("-D, --define <name=value>", "define a macro", collectDefine)
    .option("-I, --include <folder>", "look for headers there, too", (text: string, before: string[] = []) => [
      ...before,
      text,
    ]);

/** The source that a command names; `--name` is what reports call it. */
export function sourceOf(file: string, { name, define = {}, include = [] }: SourceOptions): MetalSource {
  const more = { defines: define, includeFolders: include };
  if (name === undefined) return { path: file, ...more };
  try {
    return { path: name, text: readFileSync(file, "utf8"), ...more };
  } catch (error) {
    throw new MetalSimError("Io", `${file}: ${(error as Error).message}`);
  }
}

function showKernel({ name, arguments: all, maxThreads, file, line }: Kernel): string {
  const limit = maxThreads === undefined ? "" : `, at most ${maxThreads} threads`;
  const rows = all.map((a) => {
    const access = a.kind === "builtin" ? "" : `  ${a.readOnly ? "read" : "read-write"} ${a.space}`;
    return `  [[${a.attribute}]]  ${a.type} ${a.name}${access}`;
  });
  return [`${name}  ${file}:${line}${limit}`, ...rows].join("\n");
}

export function addCompile(program: Command, finish: Finish): void {
  withSourceOptions(program.command("reflect"))
    .description("list the kernels of a file with their arguments")
    .argument("<file>", "a .metal file")
    .option("--json", "as JSON")
    .action((file: string, options: SourceOptions & { json?: true }) => {
      const { kernels } = translateSource(sourceOf(file, options));
      const shown = options.json ? JSON.stringify(kernels, null, 2) : kernels.map(showKernel).join("\n");
      process.stdout.write(`${shown}\n`);
    });

  withSourceOptions(program.command("translate"))
    .description("print the C++ that a file is translated to")
    .argument("<file>", "a .metal file")
    .option("--name <name>", "what diagnostics call the file")
    .action((file: string, options: SourceOptions) => {
      process.stdout.write(translateSource(sourceOf(file, options)).text);
    });

  withSourceOptions(program.command("compile"))
    .description("compile a file for native/engine.h, and print the module's path")
    .argument("<file>", "a .metal file")
    .option("--name <name>", "what diagnostics call the file")
    .option("--check", "for check mode")
    .option("--coverage", "for line coverage")
    .option("--print-module", "print the path only")
    .option("--index <entry>", "leave the answer for native/module_index.h in this file")
    .action(
      (
        file: string,
        options: SourceOptions & {
          check?: true;
          coverage?: true;
          printModule?: true;
          index?: string;
        },
      ) => {
        const build: Build = options.check ? "check" : options.coverage ? "coverage" : "fast";
        const source = sourceOf(file, options);
        const { modulePath, kernels } =
          options.index === undefined ? compile(source, build) : compileIndexed(source, build, options.index);
        process.stdout.write(options.printModule ? `${modulePath}\n` : `${JSON.stringify({ modulePath, kernels })}\n`);
        finish(0);
      },
    );
}
