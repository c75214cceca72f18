// A kernel's .metal text with its own headers in place: Metal compiles text at run time and has no include path.
import { existsSync, readFileSync } from "node:fs";
import { basename, dirname, join } from "node:path";

const INCLUDE = /^\s*#\s*include\s*"([^"]+)"/;
const ONCE = /^\s*#\s*pragma\s+once\b/;

/** Texts that stand in for files, by path: what mutation tests change. */
export const metalTexts = new Map<string, string>();

/** An include that cannot be resolved; the message is a compiler log's line. */
export class IncludeError extends Error {}

/** For whose compiler a text is put together: Metal's, or, by way of `metal-sim cuda`, NVIDIA's. */
export type ShaderLanguage = "metal" | "cuda";

/** What stands in the place of a header of ours in a CUDA translation, where that exists. */
const cudaForm = (path: string) => join(dirname(path), basename(path).replace(/^metal_(.*\.h)$/, "cuda_$1"));

/**
 * The text of a .metal file with every `#include "…"` replaced by that file's text, between `#line` markers so that
 * diagnostics name the right file and line. Headers are looked for beside the including file, then in `folders`.
 * `#include <…>` is the compiler's. `#pragma once` becomes a guard, so that it holds in inactive branches too. For CUDA,
 * `cuda_x.h` takes the place of a `metal_x.h` beside it; it may include that.
 */
export function inlineIncludes(
  path: string,
  folders: readonly string[] = [],
  language: ShaderLanguage = "metal",
): string {
  const guards = new Map<string, string>();

  const expand = (file: string, open: readonly string[]): string => {
    const name = basename(file);
    const lines = (metalTexts.get(file) ?? readFileSync(file, "utf8")).split("\n");
    const out = [`#line 1 "${name}"`];
    let once: string | undefined;
    for (const [index, line] of lines.entries()) {
      const wanted = INCLUDE.exec(line)?.[1];
      if (wanted !== undefined) {
        const where = `${name}:${index + 1}`;
        const written = [dirname(file), ...folders].map((folder) => join(folder, wanted)).find((at) => existsSync(at));
        if (written === undefined) throw new IncludeError(`${where}: error: "${wanted}" not found`);
        const other = cudaForm(written);
        const found = language === "cuda" && other !== file && existsSync(other) ? other : written;
        if (guards.has(found) && open.includes(found)) out.push("");
        else if (open.includes(found)) throw new IncludeError(`${where}: error: "${wanted}" includes itself`);
        else out.push(expand(found, [...open, found]), `#line ${index + 2} "${name}"`);
      } else if (ONCE.test(line)) {
        once = guards.get(file) ?? `MLXTS_ONCE_${guards.size}`;
        guards.set(file, once);
        out.push("");
      } else out.push(line);
    }
    if (once === undefined || open.length === 1) return out.join("\n");
    return [`#ifndef ${once}`, `#define ${once}`, ...out, "#endif"].join("\n");
  };

  return expand(path, [path]);
}
