// The mutants of a project: its kernels and their headers with one seeded fault each, and the reasons why some survive.
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { type KernelFile, kernelFiles } from "./kernel_files.ts";
import { type Mutation, mutationsOf, staleHeaders } from "./mutations.ts";
import type { KernelProject } from "./project.ts";

export interface Mutant extends Omit<Mutation, "text"> {
  file: string;
  /** The line, trimmed, as it was. */
  source: string;
  text: string;
  /** The kernels that are compiled from the file. */
  kernels: readonly KernelFile[];
}

/** Why a mutant survives. */
export interface Explanation {
  file: string;
  line: string;
  mutation: string;
  reason: string;
}

/** What names a mutant from one version of a file to the next. */
export const keyOf = ({ file, source, what }: Pick<Mutant, "file" | "source" | "what">) =>
  `${file}\n${source}\n${what}`;

export const showMutant = ({ file, line, source, what }: Mutant) => `${file}:${line}: ${what}: ${source}`;

export function allMutants(project: KernelProject): Mutant[] {
  const files = kernelFiles(project);
  const read = (path: string) => readFileSync(join(project.root, path), "utf8");
  const paths = [...new Set(files.flatMap(({ includes }) => includes))];
  return paths.flatMap((file) => {
    const kernels = files.filter(({ includes }) => includes.includes(file));
    const texts = [...new Set(kernels.flatMap(({ includes }) => includes))].filter((path) => path !== file).map(read);
    const source = read(file);
    const lines = source.split("\n");
    const used = (word: string) => texts.some((text) => new RegExp(`\\b${word}\\b`).test(text));
    const found = file.endsWith(".params.h") ? staleHeaders(source, used) : mutationsOf(source, texts);
    return found.map((mutation) => ({
      ...mutation,
      file,
      source: (lines[mutation.line - 1] as string).trim(),
      kernels,
    }));
  });
}

/** The reasons by mutant, and explanations of mutants that do not exist. */
export function explanationsOf(project: KernelProject, mutants: readonly Mutant[]) {
  const path = join(project.root, project.explained.mutants);
  const all = existsSync(path) ? (JSON.parse(readFileSync(path, "utf8")) as Explanation[]) : [];
  const key = ({ file, line, mutation }: Explanation) => keyOf({ file, source: line, what: mutation });
  const known = new Set(mutants.map(keyOf));
  return {
    reasons: new Map(all.map((each) => [key(each), each.reason])),
    stale: all.filter((each) => !known.has(key(each))),
  };
}
