// What the simulator's processes have written down of executed lines, merged by file.
import { basename } from "node:path";
import type { KernelFile } from "./kernel_files.ts";
import { metalLines } from "./metal_lines.ts";

/** By path: each line with code, and whether any process has executed it. */
export type Lines = Map<string, Map<number, boolean>>;

/** Logs are lines of `LIBRARY FILE:LINE 0|1`, both named without folder; the kernels' includes say where a file is. */
export function executedLines(logs: readonly string[], kernels: readonly KernelFile[]): Lines {
  const paths = new Map<string, string>();
  for (const { path, includes } of kernels)
    for (const file of includes) {
      const key = `${basename(path)} ${basename(file)}`;
      if (paths.has(key) && paths.get(key) !== file)
        throw new Error(`${paths.get(key)} and ${file} have one name, and so have the kernels that include them`);
      paths.set(key, file);
    }
  const found: Lines = new Map();
  for (const log of logs)
    for (const [, key = "", line = "", hit] of log.matchAll(/^(\S+ \S+):(\d+) ([01])$/gm)) {
      const path = paths.get(key);
      if (path === undefined) continue;
      const lines = found.get(path) ?? new Map<number, boolean>();
      lines.set(Number(line), hit === "1" || (lines.get(Number(line)) ?? false));
      found.set(path, lines);
    }
  return found;
}

export interface Exception {
  file: string;
  /** The line's text, without the white space around it. */
  line: string;
  reason: string;
}

interface Missed {
  file: string;
  line: number;
  text: string;
}

/** Lines that were not executed: unexpectedly, and as exceptions say; and exceptions that no such line bears out. */
export function missedLines(lines: Lines, read: (path: string) => string, exceptions: readonly Exception[]) {
  const missed: Missed[] = [];
  const excepted: (Missed & { reason: string })[] = [];
  const unused = new Set(exceptions);
  for (const [file, all] of [...lines].sort(([a], [b]) => (a < b ? -1 : 1))) {
    const texts = read(file).split("\n");
    for (const [line, hit] of [...all].sort(([a], [b]) => a - b)) {
      if (hit) continue;
      const text = (texts[line - 1] ?? "").trim();
      const exception = exceptions.find((each) => each.file === file && each.line === text);
      if (exception) {
        unused.delete(exception);
        excepted.push({ file, line, text, reason: exception.reason });
      } else missed.push({ file, line, text });
    }
  }
  return { missed, excepted, stale: [...unused] };
}

/** Words of the lines that were executed. */
export function executedWords(lines: Lines, read: (path: string) => string): Set<string> {
  const words = new Set<string>();
  for (const [file, all] of lines) {
    const texts = read(file).split("\n");
    for (const [line, hit] of all)
      if (hit) for (const [word] of (texts[line - 1] ?? "").matchAll(/\w+/g)) words.add(word);
  }
  return words;
}

/**
 * The lines at which functions begin that no kernel's code has anything of, and no executed line names: the compiler
 * leaves nothing of some that give constants.
 */
export function uncompiled(
  text: string,
  lines: ReadonlyMap<number, boolean> | undefined,
  named: ReadonlySet<string>,
): number[] {
  const code = metalLines(text).replace(/\/\/[^\n]*/g, "");
  const found: number[] = [];
  for (const { index, 0: head, 1: name = "" } of code.matchAll(/^(?:METAL|MLXTS)_FUNC\b[^;{(]*?(\w+)\([^;{]*\{/gm)) {
    let depth = 0;
    let end = index + head.length - 1;
    for (; end < code.length; end++) {
      if (code[end] === "{") depth++;
      else if (code[end] === "}" && --depth === 0) break;
    }
    const lineAt = (at: number) => code.slice(0, at).split("\n").length;
    const [first, last] = [lineAt(index), lineAt(end)];
    const compiled = [...(lines ?? new Map()).keys()].some((line) => line >= first && line <= last);
    if (!compiled && !named.has(name)) found.push(first);
  }
  return found;
}
