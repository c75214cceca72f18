// The repository's Metal kernels: which .metal files there are, and which headers each includes.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { basename, dirname, join, relative } from "node:path";
import { fileURLToPath } from "node:url";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
/** Headers that every package's kernels may include. */
const shared = join(root, "packages", "core", "native");

export interface MetalFile {
  /** Of the repository: `packages/norms/native/rms_norm.metal`. */
  path: string;
  /** The folder's name under `packages/`. */
  package: string;
  /** The kernel's name. */
  kernel: string;
  /** Itself and every header that it includes, however deep. */
  includes: readonly string[];
}

const INCLUDE = /^\s*#\s*include\s*"([^"]+)"/gm;

function closure(path: string): string[] {
  const found = new Set<string>();
  const visit = (file: string) => {
    if (found.has(file)) return;
    found.add(file);
    for (const [, name = ""] of readFileSync(file, "utf8").matchAll(INCLUDE)) {
      const at = [dirname(file), shared].map((folder) => join(folder, name)).find((candidate) => existsSync(candidate));
      if (at === undefined) throw new Error(`${relative(root, file)}: "${name}" not found`);
      visit(at);
    }
  };
  visit(path);
  return [...found].map((file) => relative(root, file));
}

/** Every kernel of every package. */
export function metalFiles(): MetalFile[] {
  return readdirSync(join(root, "packages")).flatMap((name) => {
    const folder = join(root, "packages", name, "native");
    if (!existsSync(folder)) return [];
    return readdirSync(folder)
      .filter((file) => file.endsWith(".metal"))
      .sort()
      .map((file) => ({
        path: relative(root, join(folder, file)),
        package: name,
        kernel: basename(file, ".metal"),
        includes: closure(join(folder, file)),
      }));
  });
}
