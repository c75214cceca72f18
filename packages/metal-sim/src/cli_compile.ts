import { readFileSync } from "node:fs";
import { resolve } from "node:path";
import { type Command, InvalidArgumentError } from "commander";
import { type Build, compile, type MetalSource, translateSource, translateSourceForCuda } from "./compile.ts";
import { cudaEntry } from "./cuda_entries.ts";
import { MetalSimError } from "./errors.ts";
import { compileIndexed } from "./module_index.ts";
import { coreHeaders } from "./paths.ts";
import type { Kernel } from "./reflect.ts";

type Finish = (code: number) => void;

/** `-D NAME` and `-D NAME=VALUE`. */
const collectDefine = (text: string, before: Record<string, string> = {}) => {
  const equals = text.indexOf("=");
  const name = equals < 0 ? text : text.slice(0, equals);
  return { ...before, [name]: equals < 0 ? "1" : text.slice(equals + 1) };
};

function integerOption(text: string): number {
  const value = Number(text);
  if (!Number.isInteger(value) || value < 1) throw new InvalidArgumentError("a whole number from 1 on is expected");
  return value;
}

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

/** Own headers put in place, of which some have another form for CUDA: core knows how. */
async function withCudaHeaders(file: string, options: SourceOptions): Promise<MetalSource> {
  const core = await import("@mlxts/core/testing").catch((error: Error) => {
    throw new MetalSimError("Io", `metal-sim cuda needs @mlxts/core, whose headers it translates to: ${error.message}`);
  });
  const source = sourceOf(file, options);
  const folders = [...(options.include ?? []), coreHeaders];
  try {
    return { ...source, text: core.inlineIncludes(resolve(file), folders, "cuda") };
  } catch (error) {
    throw new MetalSimError("Io", (error as Error).message);
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

  withSourceOptions(program.command("cuda"))
    .description("print the CUDA C++ that a file is translated to, for NVRTC with cuda_metal.h of @mlxts/core")
    .argument("<file>", "a .metal file")
    .option("--kernel <name>", "with the entry function of this kernel only")
    .option("--threads <n>", "the most threads of a threadgroup", integerOption)
    .option("--architecture <n>", "80 for compute_80", integerOption, 80)
    .action(
      async (
        file: string,
        options: SourceOptions & { kernel?: string; threads?: number; architecture: number },
      ): Promise<void> => {
        const source = await withCudaHeaders(file, options);
        const { text, kernels } = translateSourceForCuda(source, options.architecture);
        const wanted = kernels.filter(({ name }) => options.kernel === undefined || name === options.kernel);
        if (wanted.length === 0)
          throw new MetalSimError("InvalidArgument", `${file}: there is no kernel \`${options.kernel}\``);
        process.stdout.write(text + wanted.map((kernel) => cudaEntry(kernel, options.threads)).join(""));
      },
    );

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
