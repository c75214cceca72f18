// The Metal kernels of a project: which .metal files there are, and which headers each includes.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { metalLines } from "./metal_lines.ts";
import type { KernelProject } from "./project.ts";

export interface KernelFile {
  /** From the project's root: `packages/norms/native/rms_norm.metal`. */
  path: string;
  /** The package's name. */
  package: string;
  /** The kernel's name. */
  kernel: string;
  /** Itself and every header that it includes, however deep. */
  includes: readonly string[];
}

const INCLUDE = /^\s*#\s*include\s*"([^"]+)"/gm;

function closure(path: string, { root, headers }: Pick<KernelProject, "root" | "headers">): string[] {
  const found = new Set<string>();
  const visit = (file: string) => {
    if (found.has(file)) return;
    found.add(file);
    for (const [, name = ""] of metalLines(readFileSync(file, "utf8")).matchAll(INCLUDE)) {
      const folders = [dirname(file), ...headers.map((folder) => join(root, folder))];
      const at = folders.map((folder) => join(folder, name)).find((candidate) => existsSync(candidate));
      if (at === undefined) throw new Error(`${relative(root, file)}: "${name}" not found`);
      visit(at);
    }
  };
  visit(path);
  return [...found].map((file) => relative(root, file));
}

/** Every kernel of every package. */
export function kernelFiles(project: Pick<KernelProject, "root" | "headers" | "packages">): KernelFile[] {
  return project.packages.flatMap(({ name, native }) => {
    const folder = join(project.root, native);
    return readdirSync(folder)
      .filter((file) => file.endsWith(".metal"))
      .sort()
      .map((file) => ({
        path: relative(project.root, join(folder, file)),
        package: name,
        kernel: basename(file, ".metal"),
        includes: closure(join(folder, file), project),
      }));
  });
}
