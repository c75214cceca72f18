import { existsSync, mkdirSync, mkdtempSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

/** The package's folder, from `src/` and from `dist/` alike. */
const root = fileURLToPath(new URL("..", import.meta.url));

/** The folder of this package's code. */
export const codeFolder = join(root, existsSync(join(root, "src")) ? "src" : "dist");
export const nativeFolder = join(root, "native");
export const shimFolder = join(nativeFolder, "shim");
/** Headers of `@mlxts/core`, in a clone and in `node_modules/@mlxts` alike. */
export const coreHeaders = join(root, "..", "core", "native");

let cache: string | undefined;

/** Where compiled code is kept: the package's `build/` in a clone, a folder for temporary files elsewhere. */
export function cacheFolder(): string {
  if (cache === undefined) {
    const clone = existsSync(join(root, "src"));
    cache = clone ? join(root, "build") : join(tmpdir(), `metal-sim-${process.getuid?.() ?? "user"}`);
    mkdirSync(cache, { recursive: true, mode: 0o700 });
    // Code is loaded from here: a folder that somebody else has put in the way is not used.
    if (process.getuid && statSync(cache).uid !== process.getuid()) cache = mkdtempSync(join(tmpdir(), "metal-sim-"));
  }
  return cache;
}
