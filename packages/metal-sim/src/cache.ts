import { randomUUID } from "node:crypto";
import { mkdirSync, readdirSync, renameSync, rmSync, statSync, utimesSync } from "node:fs";
import { dirname, join } from "node:path";

/** Writes `path` whole: several processes may do so at once. */
export function write(path: string, build: (temporary: string) => void): void {
  mkdirSync(dirname(path), { recursive: true });
  const temporary = `${path}.${randomUUID()}.tmp`;
  try {
    build(temporary);
    renameSync(temporary, path);
  } finally {
    rmSync(temporary, { force: true });
  }
}

/** Makes `path` unless it is there. */
export function make(path: string, build: (temporary: string) => void): string {
  try {
    const now = new Date();
    // What is used stays when the rest is pruned.
    utimesSync(path, now, now);
  } catch {
    write(path, build);
  }
  return path;
}

/** Nothing that was used so recently is removed: somebody may be about to open it. */
const IN_USE_MS = 3_600_000;

/** Removes from a folder what has not been used for longest, until the rest takes no more than `bytes`. */
export function prune(folder: string, bytes: number): void {
  const now = Date.now();
  const entries = readdirSync(folder).flatMap((name) => {
    try {
      const { size, mtimeMs } = statSync(join(folder, name));
      return [{ path: join(folder, name), size, used: mtimeMs }];
    } catch {
      return [];
    }
  });
  let total = 0;
  for (const { path, size, used } of entries.sort((a, b) => b.used - a.used)) {
    total += size;
    if ((total > bytes || path.endsWith(".tmp")) && now - used > IN_USE_MS)
      rmSync(path, { recursive: true, force: true });
  }
}
